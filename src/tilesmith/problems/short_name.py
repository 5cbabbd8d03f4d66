"""Short names of problems, for tables that people read: ``fwd 128x64x56x56 k64 3x3 p1 NHWC bf16``.

A short name leaves out what has its usual value, and the accumulation type, strides and the limit of the workspace are
only named where a problem has its own. It is not a key: two problems of a list may share one.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.dtypes import default_acc_dtype
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.key_text import epilogue_text
from tilesmith.problems.keys import parse_key
from tilesmith.problems.layouts import default_layout


def short_name(signature: ConvSignature | GemmSignature) -> str:
    """The short name of a problem.

    A convolution has its direction, input (batch, channels, sizes), ``k`` output channels, filter, then stride ``s``,
    padding ``p``, dilation ``d``, groups ``g`` and layouts where they are not the usual ones, and the element type. A
    matrix product has ``m x n x k``, two letters for what is stored transposed, and the element type.
    """
    parts = _gemm(signature) if isinstance(signature, GemmSignature) else _conv(signature)
    if text := epilogue_text(signature.epilogue):
        parts.append(f"+{text}")
    parts += ["deterministic"] * signature.deterministic
    if signature.workspace_limit is not None:
        parts.append(f"workspace<={signature.workspace_limit}")
    return " ".join(parts)


def short_key(key: str) -> str:
    """The short name of the problem that a key names."""
    return short_name(parse_key(key))


def _conv(sig: ConvSignature) -> list[str]:
    types = _types((sig.input_dtype, sig.kernel_dtype, sig.output_dtype), sig.acc_dtype)
    parts = [sig.mode, *["trans"] * sig.transposed, "x".join(map(str, sig.input_logical))]
    parts += [f"k{sig.output_logical[1]}", "x".join(map(str, sig.kernel_logical[2:]))]
    low, high = sig.padding_low, sig.padding_high
    parts += _axes("s", sig.stride, 1) + _axes("p", low, 0)
    if high != low:
        parts.append(f"to{_sizes(high)}")
    parts += _axes("d", sig.dilation, 1) + _axes("o", sig.output_padding, 0)
    parts += [f"g{sig.groups}"] * (sig.groups > 1)
    layouts = [str(each) for each in (sig.input_layout, sig.kernel_layout, sig.output_layout)]
    if set(layouts) != {str(default_layout(sig.spatial_dims))}:
        parts.append("/".join(layouts if len(set(layouts)) > 1 else layouts[:1]))
    strides = {"x": sig.input_strides, "w": sig.kernel_strides, "y": sig.output_strides}
    return parts + [f"{name}:{_sizes(each)}" for name, each in strides.items() if each is not None] + [types]


def _gemm(sig: GemmSignature) -> list[str]:
    types = _types((sig.a_dtype, sig.b_dtype, sig.c_dtype), sig.acc_dtype)
    parts = ["gemm", f"{sig.m}x{sig.n}x{sig.k}"]
    if sig.trans_a or sig.trans_b:
        parts.append(f"{'t' if sig.trans_a else 'n'}{'t' if sig.trans_b else 'n'}")
    parts += [f"b{sig.batch}"] * (sig.batch > 1)
    parts += [f"scales {sig.a_scale}/{sig.b_scale}"] * sig.has_scales
    parts += [f"alpha={sig.alpha:g}"] * (sig.alpha != 1.0) + [f"beta={sig.beta:g}"] * (sig.beta != 0.0)
    steps = {name: getattr(sig, name) for name in ("lda", "ldb", "ldc", "stride_a", "stride_b", "stride_c")}
    return parts + [f"{name}={value}" for name, value in steps.items() if value is not None] + [types]


def _axes(letter: str, values: Sequence[int], usual: int) -> list[str]:
    return [f"{letter}{_sizes(values)}"] if any(value != usual for value in values) else []


def _sizes(values: Sequence[int]) -> str:
    """One number where all are equal."""
    return str(values[0]) if len(set(values)) == 1 else "x".join(map(str, values))


def _types(tensors: tuple[str, str, str], acc: str) -> str:
    text = tensors[0] if len(set(tensors)) == 1 else "/".join(tensors)
    return text if acc == default_acc_dtype(*tensors) else f"{text}:{acc}"
