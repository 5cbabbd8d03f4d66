"""The one spelling of a convolution, and its geometry."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.dtypes import sums_of
from tilesmith.problems.geometry import ConvGeometry, TensorView, Triple
from tilesmith.problems.layouts import Layout, default_layout, dense_strides, parse_layout
from tilesmith.problems.padding import canonical_high, joined, sides


def canonical_conv(sig: ConvSignature) -> ConvSignature:
    """See ``ConvSignature.canonical``."""
    if sig.mode == "bgrad":
        sig = _bias_gradient(sig)
    elif sig.transposed:
        sig = _untransposed(sig)
    if sig.spatial_dims == 1:
        sig = _with_height(sig)
    # Reset fields that a single tap or a single position never reads, so that equal problems compare equal.
    dilation = tuple(1 if f == 1 else d for f, d in zip(sig.kernel_logical[2:], sig.dilation, strict=True))
    padding, sizes = sig.padding, (sig.input_logical[2:], sig.kernel_logical[2:], sig.stride, dilation)
    pairs = sides(padding)
    if not isinstance(padding[0], int):
        axes = zip(pairs, *sizes, sig.output_logical[2:], strict=True)
        padding = joined(tuple((low, canonical_high(low, high, *rest)) for (low, high), *rest in axes))
        pairs = sides(padding)
    stride = tuple(
        [
            s if out > 1 else size + low + high - d * (f - 1)
            for (low, high), size, f, s, d, out in zip(pairs, *sizes, sig.output_logical[2:], strict=True)
        ]
    )
    changed = (dilation, stride, padding) != (sig.dilation, sig.stride, sig.padding)
    return replace(sig, dilation=dilation, stride=stride, padding=padding) if changed else sig


def _untransposed(sig: ConvSignature) -> ConvSignature:
    """Transposed forward is backward data of the convolution from its output to its input."""
    return replace(
        sig, transposed=False, output_padding=(0,) * sig.spatial_dims,
        mode={"fwd": "bwd", "bwd": "fwd", "wrw": "wrw"}[sig.mode],
        input_shape=sig.output_shape, input_layout=sig.output_layout, input_strides=sig.output_strides,
        output_layout=sig.input_layout, output_strides=sig.input_strides,
        input_dtype=sig.output_dtype, output_dtype=sig.input_dtype,
    )  # fmt: skip


def _bias_gradient(sig: ConvSignature) -> ConvSignature:
    """The bias gradient reads dy alone, so every problem with this dy is the 1x1 depthwise one."""
    k = sig.output_logical[1]
    dims = sig.spatial_dims
    ones = (1,) * dims
    return ConvSignature(
        input_shape=sig.output_shape, kernel_shape=(k, 1, *ones), groups=k, mode="bgrad",
        dtype=sig.output_dtype, acc_dtype=sums_of(sig.acc_dtype)["acc_dtype"],  # it multiplies nothing
        input_layout=sig.output_layout, kernel_layout=str(default_layout(dims)), output_layout=sig.output_layout,
        output_strides=sig.output_strides, deterministic=sig.deterministic, workspace_limit=sig.workspace_limit,
    )  # fmt: skip


def _with_height(sig: ConvSignature) -> ConvSignature:
    """The same problem with a unit height."""
    changes: dict[str, object] = {}
    for name in ("input", "kernel", "output"):
        layout = parse_layout(getattr(sig, f"{name}_layout"))
        at = layout.order.index("W")
        shape, strides = getattr(sig, f"{name}_shape"), getattr(sig, f"{name}_strides")
        changes[f"{name}_layout"] = str(Layout(layout.order[:at] + "H" + layout.order[at:], layout.vector))
        if name != "output":
            changes[f"{name}_shape"] = (*shape[:at], 1, *shape[at:])
        if strides is not None:
            changes[f"{name}_strides"] = (*strides[:at], strides[at] * shape[at], *strides[at:])
    for name, unit in (("stride", 1), ("dilation", 1), ("output_padding", 0)):
        changes[name] = (unit, *getattr(sig, name))
    changes["padding"] = joined(((0, 0), *sides(sig.padding)))
    return replace(sig, **changes)  # type: ignore[arg-type]


def conv_geometry(sig: ConvSignature) -> ConvGeometry:
    """The numbers of a canonical signature."""
    x, w, y = sig.input_logical, sig.kernel_logical, sig.output_logical
    return ConvGeometry(
        direction=sig.mode, n=x[0], c=x[1], k=y[1], groups=sig.groups,
        input=_triple(x[2:], 1), filter=_triple(w[2:], 1), output=_triple(y[2:], 1),
        stride=_triple(sig.stride, 1), padding=_triple(sig.padding_low, 0),
        padding_high=_triple(sig.padding_high, 0), dilation=_triple(sig.dilation, 1),
        x=_view("x", sig.input_dtype, sig.input_layout, sig.input_shape, sig.input_strides),
        w=_view("w", sig.kernel_dtype, sig.kernel_layout, sig.kernel_shape, sig.kernel_strides),
        y=_view("y", sig.output_dtype, sig.output_layout, sig.output_shape, sig.output_strides),
        epilogue=sig.epilogue, deterministic=sig.deterministic, **sums_of(sig.acc_dtype),
    )  # fmt: skip


def _triple(values: tuple[int, ...], fill: int) -> Triple:
    padded = (fill,) * (3 - len(values)) + tuple(values)
    return (padded[0], padded[1], padded[2])


def _view(
    name: str, dtype: str, layout_name: str, shape: tuple[int, ...], strides: tuple[int, ...] | None
) -> TensorView:
    layout = parse_layout(layout_name)
    n, c, *spatial = layout.logical_shape(shape)
    sn, sc, *steps = layout.logical_strides(strides or dense_strides(shape))
    d, h, w = _triple(tuple(spatial), 1)
    # A missing axis has size 1, so its stride never matters; 0 keeps equal memory equal.
    sd, sh, sw = _triple(tuple(steps), 0)
    return TensorView(name, dtype, (n, c, d, h, w), (sn, sc, sd, sh, sw), layout.vector)
