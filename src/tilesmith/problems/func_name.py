"""Readable names: C identifiers that contain every field of a signature, in the user's spelling."""

from __future__ import annotations

import re

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.dtypes import default_acc_dtype
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.key_text import epilogue_text


def conv_func_name(sig: ConvSignature) -> str:
    """Such as ``conv2d_fwd_bf16_x2x16x32x3_nhwc_w10x2x2x3_nhwc_y_nhwc_s1x1_p0x0_d1x1_g1``.

    Each part begins with its own letters, so that no two signatures share a name; a transposed one begins with
    ``deconv``.
    """
    parts = [
        f"{'de' * sig.transposed}conv{sig.spatial_dims}d", sig.mode,
        _dtypes((sig.input_dtype, sig.kernel_dtype, sig.output_dtype), sig.acc_dtype),
        f"x{_sizes(sig.input_shape)}_{sig.input_layout.lower()}",
        f"w{_sizes(sig.kernel_shape)}_{sig.kernel_layout.lower()}", f"y_{sig.output_layout.lower()}",
        f"s{_sizes(sig.stride)}", f"p{_sizes(sig.padding_low)}", f"d{_sizes(sig.dilation)}", f"g{sig.groups}",
    ]  # fmt: skip
    if sig.padding_high != sig.padding_low:
        parts.append(f"ph{_sizes(sig.padding_high)}")
    if any(sig.output_padding):
        parts.append(f"op{_sizes(sig.output_padding)}")
    for letter, strides in (("x", sig.input_strides), ("w", sig.kernel_strides), ("y", sig.output_strides)):
        if strides is not None:
            parts.append(f"{letter}s{_sizes(strides)}")
    return "_".join(parts + _tail(sig))


def gemm_func_name(sig: GemmSignature) -> str:
    """Such as ``gemm_nt_bf16_m512_n256_k640_b1``."""
    parts = [
        f"gemm_{'t' if sig.trans_a else 'n'}{'t' if sig.trans_b else 'n'}",
        _dtypes((sig.a_dtype, sig.b_dtype, sig.c_dtype), sig.acc_dtype),
        f"m{sig.m}_n{sig.n}_k{sig.k}_b{sig.batch}",
    ]
    if sig.groups:
        parts.append(f"groups{sig.groups}")
    if sig.has_scales:
        parts.append(f"scales_{sig.a_scale}_{sig.b_scale}")
    for name in ("alpha", "beta"):
        value = getattr(sig, name)
        if value != (1.0 if name == "alpha" else 0.0):
            parts.append(f"{name}{_identifier(repr(value))}")
    for name in ("lda", "ldb", "ldc", "stride_a", "stride_b", "stride_c"):
        value = getattr(sig, name)
        if value is not None:
            parts.append(f"{name}{value}")
    return "_".join(parts + _tail(sig))


def _dtypes(tensors: tuple[str, str, str], acc: str) -> str:
    """One name when all tensors agree and the accumulator is the usual one."""
    text = tensors[0] if len(set(tensors)) == 1 else "_".join(tensors)
    return text if acc == default_acc_dtype(*tensors) else f"{text}_acc_{acc}"


def _tail(sig: ConvSignature | GemmSignature) -> list[str]:
    text = epilogue_text(sig.epilogue)
    limit = [] if sig.workspace_limit is None else [f"wlim{sig.workspace_limit}"]
    return ([_identifier(text)] if text else []) + (["det"] if sig.deterministic else []) + limit


def _identifier(text: str) -> str:
    """Spell numbers and lists with letters: ``clamp(-1.5,6.0)`` is ``clamp_m1p5_6p0``."""
    text = re.sub(r"\+(?=[a-z(])|[(,]", "_", text)
    return text.replace("+", "").replace("-", "m").replace(".", "p").replace(")", "")


def _sizes(values: tuple[int, ...]) -> str:
    return "x".join(map(str, values))
