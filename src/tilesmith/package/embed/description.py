"""A signature as assignments to the fields of ``ts_desc``, in C: for samples and tests that describe real problems."""

from __future__ import annotations

import math

from tilesmith.errors import PackageError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.dtypes import TF32
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.layouts import parse_layout
from tilesmith.problems.rewrite import Signature

Field = tuple[str, str]  # of ts_desc, and its value in C
_PITCHES = {"N": "image", "C": "channel", "D": "plane", "H": "row", "W": "c"}
_PLAIN = ("NCW", "NWC", "NCHW", "NHWC", "NCDHW", "NDHWC")


def fields_of(signature: Signature) -> tuple[Field, ...]:
    """The fields that differ from what ``ts_desc_init`` writes, in the order of a reader's interest."""
    convolution = isinstance(signature, ConvSignature)
    own = _convolution(signature) if convolution else _gemm(signature)  # type: ignore[arg-type]
    return (*own, *_common(signature))


def assignments(signature: Signature, desc: str = "desc.", indent: str = "  ") -> str:
    """The statements that describe ``signature``; ``desc`` begins each of them."""
    return "".join(f"{indent}{desc}{name} = {value};\n" for name, value in fields_of(signature))


def _convolution(sig: ConvSignature) -> list[Field]:
    (n, c, *size), dims = sig.input_logical, len(sig.stride)
    found = [] if sig.mode == "fwd" else [("mode", f"TS_{sig.mode.upper()}")]
    found += [("transposed", "1")] if sig.transposed else []
    found += [("dims", str(dims))] if dims != 2 else []
    layouts = {"x": sig.input_layout, "w": sig.kernel_layout, "y": sig.output_layout}
    if len(set(layouts.values())) == 1:
        found.append(("layout", _layout(sig.input_layout)))
    else:
        found += [(f"{tensor}_layout", _layout(name)) for tensor, name in layouts.items()]
    found += [("n", str(n)), ("c", str(c)), ("k", str(sig.output_channels))]
    found += [("groups", str(sig.groups))] if sig.groups != 1 else []
    for name, values, plain in (
        ("in", size, 0), ("filter", sig.kernel_logical[2:], 0), ("padding_low", sig.padding_low, 0),
        ("padding_high", sig.padding_high, 0), ("stride", sig.stride, 1), ("dilation", sig.dilation, 1),
        ("output_padding", sig.output_padding, 0),
    ):  # fmt: skip
        found += [(f"{name}[{at}]", str(value)) for at, value in enumerate(values) if value != plain]
    strides = {"x": sig.input_strides, "w": sig.kernel_strides, "y": sig.output_strides}
    for tensor, steps in strides.items():
        if steps is not None:
            order = parse_layout(layouts[tensor]).order
            found += [(f"{tensor}_pitch_{_PITCHES[axis]}", str(step)) for axis, step in zip(order, steps, strict=False)]
    return found + _dtypes(sig, sig.input_dtype, sig.kernel_dtype, sig.output_dtype)


def _gemm(sig: GemmSignature) -> list[Field]:
    if sig.groups:
        raise PackageError(f"ts_desc has no groups of rows, got {sig.groups}: leave out {sig.key()}")
    if sig.has_scales:
        raise PackageError(
            f"ts_desc has no scales of operands, got {sig.a_scale}, {sig.b_scale}: leave out {sig.key()}"
        )
    found = [("op", "TS_GEMM"), ("m", str(sig.m)), ("n", str(sig.n)), ("k", str(sig.k))]
    found += [("batch", str(sig.batch))] if sig.batch != 1 else []
    found += [(name, "1") for name in ("trans_a", "trans_b") if getattr(sig, name)]
    found += [
        (name, _real(getattr(sig, name))) for name, plain in (("alpha", "1.0"), ("beta", "0.0"))
        if _real(getattr(sig, name)) != plain
    ]  # fmt: skip
    names = ("lda", "ldb", "ldc", "stride_a", "stride_b", "stride_c")
    found += [(name, str(getattr(sig, name))) for name in names if getattr(sig, name) is not None]
    return found + _dtypes(sig, sig.a_dtype, sig.b_dtype, sig.c_dtype)


def _dtypes(sig: Signature, x: str, w: str, y: str) -> list[Field]:
    """Types of the tensors and of the sums; all are given, as their defaults depend on each other."""
    same = x == w == y and x not in ("fp32", "int8")
    names = [("dtype", x)] if same else []
    names += [] if x == w == y == "fp32" or same else [("x_dtype", x), ("w_dtype", w), ("y_dtype", y)]
    found = [(name, f"TS_{dtype.upper()}") for name, dtype in names]
    if sig.acc_dtype == TF32.name:
        return [*found, ("math_mode", "TS_MATH_TF32")]
    plain = "fp64" if "fp64" in (x, w, y) else "int32" if "int8" in (x, w, y) else "fp32"
    return found + ([] if sig.acc_dtype == plain else [("acc_dtype", f"TS_{sig.acc_dtype.upper()}")])


def _common(sig: Signature) -> list[Field]:
    epilogue = sig.epilogue
    found = [(name, "1") for name in ("bias", "residual") if getattr(epilogue, name)]
    found += [] if epilogue.activation == "none" else [("activation", f"TS_{epilogue.activation.upper()}")]
    found += [] if epilogue.scale == "none" else [("scale", f"TS_SCALE_{epilogue.scale.upper()}")]
    read = {"leaky_relu": ("slope",), "clamp": ("low", "high")}.get(epilogue.activation, ())
    found += [(name, _real(getattr(epilogue, name))) for name in read]
    found += [("deterministic", "1")] if sig.deterministic else []
    return found + ([] if sig.workspace_limit is None else [("workspace_limit", str(sig.workspace_limit))])


def _layout(name: str) -> str:
    layout = parse_layout(name)
    axes = f"TS_{layout.order}"
    if layout.order not in _PLAIN:
        axes = f"TS_LAYOUT{len(layout.order)}({', '.join(layout.order)})"
    return axes if layout.vector == 1 else f"{axes} | TS_VECTOR({layout.vector})"


def _real(value: float) -> str:
    return repr(float(value)) if math.isfinite(value) else f"{'-' if value < 0 else ''}INFINITY"
