"""Convolution commands: flag values to signatures."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.errors import CommandError, ProblemError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.driver.command import Direction
from tilesmith.problems.driver.flags import ACC_TYPES, AXES, CAST_TYPES, CONV_BASES, CONV_FLAGS, Value
from tilesmith.problems.driver.tokens import read_value
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.keys import parse_epilogue
from tilesmith.problems.layouts import default_layout, parse_layout

_FLAGS = {flag.long: flag for flag in CONV_FLAGS}
_SPATIAL = ("in", "fil", "pad", "conv_stride", "dilation", "trans_output_pad")
TENSORS = ("in", "fil", "out")


def resolve_conv(base: str, values: dict[str, Value], given: set[str]) -> None:
    """Replace defaults that depend on other flags, and check the rules that name several flags."""
    dims = _resolve_dims(base, values, given)
    for axis in "dhw":
        for name in _SPATIAL:
            long = f"{name}_{axis}"
            if axis in AXES[dims]:
                read_value(base, _FLAGS[long], str(values[long]))
            else:
                values[long] = _FLAGS[long].default
    values["group_count"] = values["group_count"] or 1
    for name, known in (("mode", ("conv", "trans")), ("pad_mode", ("default", "same", "valid"))):
        if values[name] not in known:
            raise CommandError(f"{base}: flag {_FLAGS[name]} {values[name]!r} is none of {', '.join(known)}")
    for name in ("in_channels", "out_channels"):
        if int(values[name]) % int(values["group_count"]):
            raise CommandError(
                f"{base}: flag {_FLAGS['group_count']} {values['group_count']} does not divide "
                f"{_FLAGS[name]} {values[name]}"
            )
    _resolve_layouts(base, values, dims)
    if values["mode"] == "conv":
        for axis in AXES[dims]:
            if values[f"trans_output_pad_{axis}"]:
                raise CommandError(f"{base}: flag {_FLAGS[f'trans_output_pad_{axis}']} goes with --mode trans")
        _resolve_padding(values, AXES[dims])
    values["pad_mode"] = "default"


def _resolve_dims(base: str, values: dict[str, Value], given: set[str]) -> int:
    """The number of spatial axes; layouts say it when ``--spatial_dim`` does not."""
    dims = int(values["spatial_dim"])
    for tensor in TENSORS:
        name = str(values[f"{tensor}_layout"])
        if name and "spatial_dim" not in given:
            dims = parse_layout(name).spatial_dims
            break
    for tensor in TENSORS:
        name = str(values[f"{tensor}_layout"])
        if name and parse_layout(name).spatial_dims != dims:
            raise CommandError(
                f"{base}: flag {_FLAGS[f'{tensor}_layout']} {name} has {parse_layout(name).spatial_dims} spatial axes, "
                f"the problem has {dims}"
            )
    values["spatial_dim"] = dims
    return dims


def _resolve_layouts(base: str, values: dict[str, Value], dims: int) -> None:
    """Fill in default layouts and write the vector flags into them."""
    vector, length = int(values["tensor_vect"]), int(values["vector_length"])
    if (vector, length) not in ((0, 1), (1, 4), (1, 8)):
        raise CommandError(
            f"{base}: flags {_FLAGS['tensor_vect']} {vector} and {_FLAGS['vector_length']} {length}: "
            "they are 0 and 1, 1 and 4, or 1 and 8"
        )
    for tensor in TENSORS:
        name = str(values[f"{tensor}_layout"]) or str(default_layout(dims))
        if vector and parse_layout(name).vector > 1:
            raise CommandError(f"{base}: flag {_FLAGS['tensor_vect']} 1 goes with plain layouts, got {name}")
        values[f"{tensor}_layout"] = name + (f"c{length}" if vector else "")
    values["tensor_vect"], values["vector_length"] = 0, 1


def _resolve_padding(values: dict[str, Value], axes: str) -> None:
    """``--pad_mode``: it works without dilation, or with a filter of a single tap; MIOpen ignores it elsewhere."""
    dilated = any(values[f"dilation_{axis}"] != 1 for axis in axes)
    if values["pad_mode"] == "default" or (dilated and any(values[f"fil_{axis}"] != 1 for axis in axes)):
        return
    for axis in axes:
        size, tap, step = (int(values[f"{name}_{axis}"]) for name in ("in", "fil", "conv_stride"))
        same = max(tap - (size % step or step), 0) // 2
        values[f"pad_{axis}"] = same if values["pad_mode"] == "same" else 0


def conv_directions(base: str, values: dict[str, Value]) -> tuple[Direction, ...]:
    """The problems of resolved values."""
    mask = int(values["forw"]) or (1 if base == "convint8" else 7)
    names = [name for bit, name in ((1, "fwd"), (2, "bwd"), (4, "wrw"), (8, "bgrad")) if mask & bit]
    if values["bias"] and "bgrad" not in names and names != ["fwd"]:
        names.append("bgrad")
    return tuple((name, _signature(base, values, name)) for name in names)


def _signature(base: str, values: dict[str, Value], mode: str) -> ConvSignature:
    axes = AXES[int(values["spatial_dim"])]
    groups = int(values["group_count"])
    c, k = int(values["in_channels"]), int(values["out_channels"])
    transposed = values["mode"] == "trans"

    def per_axis(name: str) -> tuple[int, ...]:
        return tuple(int(values[f"{name}_{axis}"]) for axis in axes)

    _check_results(base, values, transposed)
    layouts = {tensor: str(values[f"{tensor}_layout"]) for tensor in TENSORS}
    filter_channels = (c, k // groups) if transposed else (k, c // groups)
    try:
        return ConvSignature(
            input_shape=parse_layout(layouts["in"]).layout_shape((int(values["batchsize"]), c, *per_axis("in"))),
            kernel_shape=parse_layout(layouts["fil"]).layout_shape((*filter_channels, *per_axis("fil"))),
            stride=per_axis("conv_stride"), padding=per_axis("pad"), dilation=per_axis("dilation"), groups=groups,
            transposed=transposed, output_padding=per_axis("trans_output_pad"), mode=mode, dtype=CONV_BASES[base],
            input_dtype=_cast(base, values, "in_cast_type"), kernel_dtype=_cast(base, values, "wei_cast_type"),
            output_dtype=_cast(base, values, "out_cast_type"), acc_dtype=_cast(base, values, "acc_type"),
            input_layout=layouts["in"], kernel_layout=layouts["fil"], output_layout=layouts["out"],
            input_strides=_strides(values, "in"), kernel_strides=_strides(values, "fil"),
            output_strides=_strides(values, "out"),
            epilogue=_epilogue(base, values, mode), deterministic=values["deterministic"] == 1,
            workspace_limit=workspace_limit(values),
        )  # fmt: skip
    except ProblemError as error:
        raise CommandError(f"{base}: {error}") from None


def workspace_limit(values: dict[str, Value]) -> int | None:
    limit = int(values["workspace_limit"])
    return None if limit < 0 else limit


def _check_results(base: str, values: dict[str, Value], transposed: bool) -> None:
    """Each result size is at least 1; the message names the flags that make it less."""
    for axis in AXES[int(values["spatial_dim"])]:
        size, tap, pad, step, dilation, extra = (int(values[f"{name}_{axis}"]) for name in _SPATIAL)
        reach = dilation * (tap - 1) + 1
        result = (size - 1) * step - 2 * pad + reach + extra if transposed else (size + 2 * pad - reach) // step + 1
        if result < 1:
            shown = f"--in_{axis} {size}, --fil_{axis} {tap}, --pad_{axis} {pad}, --conv_stride_{axis} {step}"
            raise CommandError(f"{base}: {shown}, --dilation_{axis} {dilation} give an output of {result}, below 1")
        if transposed and extra >= step:
            raise CommandError(
                f"{base}: flag {_FLAGS[f'trans_output_pad_{axis}']} {extra} must be smaller than the stride {step}"
            )


def _cast(base: str, values: dict[str, Value], flag: str) -> str:
    text = str(values[flag])
    if text in ("-1", ""):
        return ""
    known = ACC_TYPES if flag == "acc_type" else CAST_TYPES
    if text not in known:
        raise CommandError(f"{base}: flag {_FLAGS[flag]} {text!r} is none of -1, {', '.join(known)}")
    return known[text]


def _strides(values: dict[str, Value], tensor: str) -> tuple[int, ...] | None:
    text = str(values[f"{tensor}_strides"])
    return tuple(int(part) for part in text.split("x")) if text else None


def _epilogue(base: str, values: dict[str, Value], mode: str) -> Epilogue:
    """The bias is that of the forward result; anything else goes with each direction that computes an image."""
    if mode not in ("fwd", "bwd"):
        return Epilogue()
    try:
        epilogue = parse_epilogue(str(values["epilogue"]))
    except ProblemError as error:
        raise CommandError(f"{base}: flag {_FLAGS['epilogue']}: {error}") from None
    bias = epilogue.bias or (mode == "fwd" and values["bias"] == 1)
    return replace(epilogue, bias=bias)
