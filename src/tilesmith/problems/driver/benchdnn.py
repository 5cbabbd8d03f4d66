"""Reads a line of oneDNN's benchdnn: ``benchdnn --conv --dir=FWD_B --stag=axb mb8ic64ih56oc64oh56kh3ph1``.

The rules are those of benchdnn's ``str2desc``: sizes that are left out are square, padding follows from the output, a
dilation counts the elements between taps (ours counts steps, one more), the batch is 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tilesmith.errors import CommandError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.driver.command import Signature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.limits import check_length

_LINE = re.compile(r"(?:(?:\S*/)?benchdnn(?:\s|$)|--(?:conv|deconv|matmul)(?:\s|$))")
_DTYPES = {
    "f32": "fp32", "f16": "fp16", "bf16": "bf16", "f64": "fp64", "s8": "int8", "s32": "int32", "f8_e4m3": "fp8e4m3",
    "f8_e5m2": "fp8e5m2",
}  # fmt: skip
_MODES = {
    "FWD_B": ("fwd",), "FWD_D": ("fwd",), "FWD_I": ("fwd",), "BWD_D": ("bwd",), "BWD_W": ("wrw",),
    "BWD_WB": ("wrw", "bgrad"),
}  # fmt: skip
_ACTIVATIONS = {
    "relu": "relu", "tanh": "tanh", "logistic": "sigmoid", "gelu_erf": "gelu", "gelu_tanh": "gelu_tanh",
    "swish": "silu", "hardswish": "hardswish", "hardsigmoid": "hardsigmoid", "clip": "clamp", "clip_v2": "clamp",
}  # fmt: skip
# The numbers that oneDNN's function must have to be ours.
_NUMBERS = {"swish": (1.0, 0.0), "hardswish": (1 / 6, 0.5), "hardsigmoid": (1 / 6, 0.5)}
_KNOBS = ("dir", "dt", "cfg", "stag", "wtag", "dtag", "mb", "attr-post-ops", "attr-deterministic", "attr-fpmath",
          "bia-dt", "bia_dt", "bia-mask", "bia_mask")  # fmt: skip
# They say how to run, not what to compute.
_UNHEEDED = re.compile(
    r"v\d+|mode|mode-modifier|skip-impl|impl|alg|engine|reset|match|canonical|perf-template|fast-ref|fast-ref-gpu|"
    r"fix-times-per-prb|max-ms-per-prb|num-streams|repeats-per-prb|memory-kind|allow-enum-tags-only|ctx-init|ctx-exe|"
    r"attr-scratchpad|cold-cache|inplace"
)
_SIZE = re.compile(r"(g|mb|[io]c|[iokspd][dhw])(\d{1,18})_?", re.ASCII)


def is_benchdnn(text: str) -> bool:
    """Whether a text begins like a line of benchdnn."""
    return _LINE.match(text.lstrip()) is not None


def parse_benchdnn(text: str) -> tuple[Signature, ...]:
    """The problems of one line: one, or two for ``--dir=BWD_WB``.

    Raises:
        CommandError: An option or a value has no meaning here; the message names it.
    """
    check_length("line of benchdnn", text, CommandError)
    words = text.partition("#")[0].split()
    words = words[1:] if not words[0].startswith("-") else words
    driver, knobs, described = "", {"dir": "FWD_B"}, ""
    for word in words:
        if not word.startswith("-"):
            if described:
                raise CommandError(f"two problems, {described} and {word}: write each on a line of its own")
            described = word
            continue
        name, _, value = word.lstrip("-").partition("=")
        if name in ("conv", "deconv", "matmul"):
            driver = name
        elif name in _KNOBS:
            if "," in value:
                raise CommandError(f"--{name}={value}: write a line for each of these values")
            knobs[name] = value
        elif not _UNHEEDED.fullmatch(name):
            raise CommandError(f"--{name} of benchdnn has no meaning here; known: {', '.join(_KNOBS)}")
    if not driver or not described:
        raise CommandError(
            f"{text.strip()!r} needs --conv, --deconv or --matmul, and a problem such as ic64ih56oc64kh3"
        )
    return _matmul(described, knobs) if driver == "matmul" else _conv(described, knobs, driver == "deconv")


def _one_of(name: str, value: str, known: dict[str, Any]) -> Any:
    if value not in known:
        raise CommandError(f"--{name}={value} has no meaning here; known: {', '.join(known)}")
    return known[value]


def _dtypes(knobs: dict[str, str]) -> tuple[str, str, str]:
    text = knobs.get("dt") or ":".join(re.findall(r"f8_e\dm\d|bf16|f\d\d|[su]\d+", knobs.get("cfg", "f32")))
    names = [_one_of("dt", part, _DTYPES) for part in text.split(":")]
    if len(names) not in (1, 3):
        raise CommandError(f"--dt={text}: give one type, or those of source, weights and destination")
    if names == ["int8"]:
        return "int8", "int8", "int32"
    return (names[0], names[-2] if len(names) == 3 else names[0], names[-1])


def _post_ops(text: str, bias: bool) -> Epilogue:
    """Ours adds bias and residual first, and then takes one activation."""
    given: dict[str, Any] = {"bias": bias}
    for part in filter(None, text.strip("'\"").split("+")):
        name, *numbers = part.split(":")
        if "activation" in given or (name in ("sum", "add") and "residual" in given):
            raise CommandError(f"--attr-post-ops={text}: one residual, then one activation, is what kernels compute")
        if (name == "sum" and not numbers) or (name == "add" and numbers[1:] == ["per_tensor"]):
            given["residual"] = True
        elif name in _ACTIVATIONS:
            values = [_number(part, number) for number in numbers]
            given["activation"] = _ACTIVATIONS[name]
            if name == "relu" and values[:1] not in ([], [0.0]):
                given |= {"activation": "leaky_relu", "slope": values[0]}
            elif name.startswith("clip"):
                given |= dict(zip(("low", "high"), [*values, 0.0, 0.0], strict=False))
            elif any(abs(v - w) > 1e-3 for v, w in zip(values, _NUMBERS.get(name, values), strict=False)):
                raise CommandError(f"--attr-post-ops={part}: only {_NUMBERS[name]} is computed here")
        else:
            raise CommandError(f"--attr-post-ops={part} has no meaning here; known: sum, {', '.join(_ACTIVATIONS)}")
    return Epilogue(**given)


def _number(place: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise CommandError(f"{place}: {text!r} is no number") from None


def _is_size(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,18}", text) is not None


def _common(knobs: dict[str, str]) -> dict[str, Any]:
    tf32 = knobs.get("attr-fpmath", "strict").partition(":")[0] == "tf32"
    return {"deterministic": knobs.get("attr-deterministic") == "true", **({"acc_dtype": "tf32"} if tf32 else {})}


def _sizes(text: str) -> dict[str, int]:
    sizes, at = {}, 0
    while at < len(text) and text[at] != "n":
        found = _SIZE.match(text, at)
        if found is None:
            raise CommandError(f"{text!r}: {text[at:]!r} is no size such as ic64, ih56 or kh3")
        sizes[found[1]] = int(found[2])
        at = found.end()
    for name in ("ic", "oc"):
        if not sizes.get(name):
            raise CommandError(f"{text!r} has no {name}")
    return sizes


def _axes(text: str, sizes: dict[str, int]) -> list[dict[str, int]]:
    """The sizes of each spatial axis, by the first letters of their names. A smaller axis may be left out: square."""
    axes: list[dict[str, int]] = []
    for axis in "dhw":
        own = {name: sizes[name + axis] for name in "iokspd" if name + axis in sizes}
        if not own and axes:
            own = axes[-1]
        if own:
            if not own.get("i") or not own.get("k") or own.get("s") == 0:
                raise CommandError(f"{text!r} needs i{axis} and k{axis}, and no stride of 0")
            axes.append(own)
    if not axes:
        raise CommandError(f"{text!r} has no spatial size such as ih56")
    return axes


def _padding(own: dict[str, int], transposed: bool) -> tuple[int, int, int]:
    """Padding at both ends, and the output padding of a transposed axis."""
    size, step = own["i"], own.get("s", 1)
    taps = (own["k"] - 1) * (own.get("d", 0) + 1) + 1
    if transposed:
        whole = (size - 1) * step + taps
        low = own.get("p", (whole - own["o"]) // 2 if "o" in own else 0)
        more = own.get("o", whole - 2 * low) - (whole - 2 * low)
        return (low, low, more) if more >= 0 else (low, low - more, 0)
    needed = ((own["o"] - 1) * step + taps - size) if "o" in own else 0
    low = own.get("p", needed // 2 if "o" in own else 0)
    if "o" not in own or own["o"] == (size + 2 * low - taps) // step + 1:
        return low, low, 0
    return low, needed - low, 0


def _layout(tag: str, name: str, axes: int, *, exact: bool = False) -> str:
    """``exact``: the filter of a transposed convolution, whose output channels come first in oneDNN's plain order."""
    spatial = "dhw"[3 - axes :]
    channels_first, channels_last = f"nc{spatial}".upper(), f"n{spatial}c".upper()
    known = {"any": channels_first, "abx": channels_first, "axb": channels_last}
    if name == "wtag":
        known |= {f"oi{spatial}": channels_first, f"goi{spatial}": channels_first, f"o{spatial}i": channels_last}
        if exact:
            turned, last = f"cn{spatial}".upper(), f"c{spatial}n".upper()
            known = {"any": channels_first, "abx": turned, f"oi{spatial}": turned, "axb": last, f"o{spatial}i": last}
            known |= {f"io{spatial}": channels_first, f"gio{spatial}": channels_first}
    else:
        known |= {f"nc{spatial}": channels_first, f"n{spatial}c": channels_last}
    return str(_one_of(name, tag, known))


def _conv(text: str, knobs: dict[str, str], transposed: bool) -> tuple[Signature, ...]:
    sizes = _sizes(text)
    axes = _axes(text, sizes)
    if not _is_size(knobs.get("mb", "0")):
        raise CommandError(f"--mb={knobs['mb']} is no number of images")
    groups, batch = max(sizes.get("g", 1), 1), int(knobs.get("mb", "0")) or sizes.get("mb", 2)
    modes = _one_of("dir", knobs["dir"], _MODES)
    x, w, y = _dtypes(knobs)
    if transposed and groups > 1 and knobs.get("wtag", "any") not in ("any", "giohw", "giodhw", "giow"):
        raise CommandError(f"--wtag={knobs['wtag']}: no layout of ours has groups outside; write any or gio...")
    pads = [_padding(own, transposed) for own in axes]
    if any(high < 0 for _, high, _ in pads):
        raise CommandError(f"{text!r}: an output this small crops the input, which no problem of ours does")
    first, second = (sizes["ic"], sizes["oc"]) if transposed else (sizes["oc"], sizes["ic"])
    taps, image = tuple(own["k"] for own in axes), tuple(own["i"] for own in axes)

    def laid(shape: tuple[int, int, tuple[int, ...]], layout: str) -> tuple[int, ...]:
        by_letter = dict(zip("NC" + "DHW"[3 - len(axes) :], (shape[0], shape[1], *shape[2]), strict=True))
        return tuple(by_letter[letter] for letter in layout)

    tag: Callable[..., str] = lambda name, **more: _layout(knobs.get(name, "any"), name, len(axes), **more)  # noqa: E731
    stag, wtag, dtag = tag("stag"), tag("wtag", exact=transposed), tag("dtag")
    found = []
    for mode in modes:
        epilogue = Epilogue()
        if mode == "fwd":
            epilogue = _post_ops(knobs.get("attr-post-ops", ""), knobs["dir"] == "FWD_B")
        elif knobs.get("attr-post-ops"):
            raise CommandError(f"--attr-post-ops goes with a forward direction, not --dir={knobs['dir']}")
        found.append(
            ConvSignature(
                laid((batch, sizes["ic"], image), stag),
                laid((first, second // groups, taps), wtag),
                stride=tuple(own.get("s", 1) for own in axes),
                padding=tuple(pad[:2] for pad in pads),
                dilation=tuple(own.get("d", 0) + 1 for own in axes),
                groups=groups,
                transposed=transposed,
                output_padding=tuple(pad[2] for pad in pads),
                mode=mode,
                input_dtype=x,
                kernel_dtype=w,
                output_dtype=y,
                dtype=x,
                input_layout=stag,
                kernel_layout=wtag,
                output_layout=dtag,
                epilogue=epilogue,
                **_common(knobs),
            )  # fmt: skip
        )
    return tuple(found)


def _matmul(text: str, knobs: dict[str, str]) -> tuple[Signature, ...]:
    parts = [part.split("x") for part in re.split(r"n(?=\D)|_?n\"", text)[0].rstrip("_").split(":")]
    whole = all(len(part) >= 2 and all(_is_size(size) for size in part) for part in parts)
    if len(parts) not in (2, 3) or not whole:
        raise CommandError(f"{text!r} is no product such as 32x64:64x16 or 8x32x64:8x64x16")
    (*outer_a, m, k), (*outer_b, rows, n) = ([int(size) for size in part] for part in parts[:2])
    batch_a, batch_b = _product(outer_a), _product(outer_b)
    if rows != k or (batch_a != batch_b and 1 not in (batch_a, batch_b)):
        raise CommandError(f"{text!r}: source {parts[0]} and weights {parts[1]} do not fit")
    rank = len(parts[0])
    known = {"any": False, "abcdef"[:rank]: False, "abcdef"[: rank - 2] + "abcdef"[rank - 1] + "abcdef"[rank - 2]: True}
    if _one_of("dtag", knobs.get("dtag", "any"), known):
        raise CommandError(f"--dtag={knobs['dtag']}: results of ours are row-major")
    a, b, c = _dtypes(knobs)
    bias = knobs.get("bia-dt", knobs.get("bia_dt", "undef")) != "undef"
    mask = knobs.get("bia-mask", knobs.get("bia_mask", str(2 ** (rank - 1))))
    if bias and mask != str(2 ** (rank - 1)):
        raise CommandError(f"--bia-mask={mask}: a bias of ours has one element for each column")
    batch = max(batch_a, batch_b)
    shared_a, shared_b = (0 if own == 1 < batch else None for own in (batch_a, batch_b))
    return (
        GemmSignature(
            m=m, n=n, k=k, batch=batch, trans_a=_one_of("stag", knobs.get("stag", "any"), known), dtype=a, a_dtype=a,
            trans_b=_one_of("wtag", knobs.get("wtag", "any"), known), b_dtype=b, c_dtype=c, stride_a=shared_a,
            stride_b=shared_b, epilogue=_post_ops(knobs.get("attr-post-ops", ""), bias), **_common(knobs),
        ),
    )  # fmt: skip


def _product(sizes: list[int]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result
