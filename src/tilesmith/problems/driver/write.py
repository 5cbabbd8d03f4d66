"""From problems to commands."""

from __future__ import annotations

import shlex

from tilesmith.errors import CommandError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.driver.flags import AXES, CAST_NAMES, CONV_BASES, GEMM_BASES, Value, flags_of
from tilesmith.problems.dtypes import default_acc_dtype
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.key_text import epilogue_text

# Flags that a command shows whatever their value, as people write them.
_ALWAYS = {
    "batchsize", "in_channels", "out_channels", "mode", "group_count", "forw", "in_layout", "fil_layout", "out_layout",
    "a_h", "a_w", "b_w", "transA", "transB",
}  # fmt: skip
_SHORT = frozenset("ncHWkyxpquvljmgFtsiVSbAB")


def format_command(base: str, values: dict[str, Value]) -> str:
    """The text of a command: what defines the problem, and every option that is not the default."""
    words = [base]
    gemm = base in GEMM_BASES
    axes = "" if gemm else AXES[int(values["spatial_dim"])]
    for flag in flags_of(base):
        value = values[flag.long]
        name, _, axis = flag.long.rpartition("_")
        shown = flag.long in _ALWAYS and not (gemm and flag.long == "forw")
        if name in ("in", "fil", "pad", "conv_stride", "dilation") and axis in tuple("dhw"):
            shown = axis in axes
        if not shown and value == flag.default:
            continue
        short = not gemm and flag.short in _SHORT and flag.short
        text = repr(value) if isinstance(value, float) else str(value)
        words += [f"-{flag.short}" if short else f"--{flag.long}", shlex.quote(text)]
    return " ".join(words)


def command_of(signature: ConvSignature | GemmSignature) -> str:
    """The driver command of ``signature``; ``CommandError`` if no command describes it.

    Commands have one padding for both sides of an axis.
    """
    if isinstance(signature, GemmSignature) and signature.groups:
        raise CommandError(
            f"no command has groups of rows, got {signature.groups}; name the problem by its key, signature.key()"
        )
    if isinstance(signature, GemmSignature) and signature.has_scales:
        kinds = f"{signature.a_scale} and {signature.b_scale}"
        raise CommandError(
            f"no command has scales of operands, got {kinds}; name the problem by its key, signature.key()"
        )
    base, changes = _gemm_values(signature) if isinstance(signature, GemmSignature) else _conv_values(signature)
    values = {flag.long: flag.default for flag in flags_of(base)}
    return format_command(base, values | changes)


def command_or_key(signature: ConvSignature | GemmSignature) -> str:
    """For lists of problems: the command, that of the canonical spelling, or the key of a problem without a command."""
    for spelling in (signature, signature.canonical):
        try:
            return command_of(spelling)
        except CommandError:
            continue
    return signature.key()


def _base(bases: dict[str, str], dtype: str) -> str:
    for name, known in bases.items():
        if known == dtype:
            return name
    raise CommandError(f"no command has {dtype} operands")


def _conv_values(sig: ConvSignature) -> tuple[str, dict[str, Value]]:
    if sig.padding_high != sig.padding_low:
        raise CommandError(
            f"no command has padding {sig.padding}: flags such as --pad_h pad both sides alike; name the problem "
            "by its key, signature.key()"
        )
    n, c, *size = sig.input_logical
    integer = sig.acc_dtype == "int32"
    base = "convint8" if integer else _base(CONV_BASES, sig.input_dtype)
    values: dict[str, Value] = {
        "spatial_dim": sig.spatial_dims, "batchsize": n, "in_channels": c, "out_channels": sig.output_logical[1],
        "group_count": sig.groups, "mode": "trans" if sig.transposed else "conv",
        "forw": {"fwd": 1, "bwd": 2, "wrw": 4, "bgrad": 8}[sig.mode],
        "in_layout": sig.input_layout, "fil_layout": sig.kernel_layout, "out_layout": sig.output_layout,
        "deterministic": int(sig.deterministic),
        "workspace_limit": -1 if sig.workspace_limit is None else sig.workspace_limit,
    }  # fmt: skip
    for i, axis in enumerate(AXES[sig.spatial_dims]):
        values |= {
            f"in_{axis}": size[i], f"fil_{axis}": sig.kernel_logical[2 + i], f"pad_{axis}": sig.padding_low[i],
            f"conv_stride_{axis}": sig.stride[i], f"dilation_{axis}": sig.dilation[i],
            f"trans_output_pad_{axis}": sig.output_padding[i],
        }  # fmt: skip
    if not integer:
        if sig.kernel_dtype != sig.input_dtype:
            values["wei_cast_type"] = CAST_NAMES[sig.kernel_dtype]
        if sig.output_dtype != sig.input_dtype:
            values["out_cast_type"] = CAST_NAMES[sig.output_dtype]
        if sig.acc_dtype != default_acc_dtype(sig.input_dtype, sig.kernel_dtype, sig.output_dtype):
            values["acc_type"] = CAST_NAMES[sig.acc_dtype]
    for flag, strides in (("in", sig.input_strides), ("fil", sig.kernel_strides), ("out", sig.output_strides)):
        if strides is not None:
            values[f"{flag}_strides"] = "x".join(map(str, strides))
    if sig.mode == "fwd" and sig.epilogue == Epilogue(bias=True):
        values["bias"] = 1
    elif not sig.epilogue.is_identity:
        values["epilogue"] = epilogue_text(sig.epilogue)
    return base, _vector_flags(values)


def _vector_flags(values: dict[str, Value]) -> dict[str, Value]:
    """``-Z 1 -L 4`` where all three layouts are such vectors, as MIOpen has it."""
    names = ("in_layout", "fil_layout", "out_layout")
    for length in (4, 8):
        mark = f"c{length}"
        if all(str(values[name]).endswith(mark) for name in names):
            plain = {name: str(values[name]).removesuffix(mark) for name in names}
            return values | plain | {"tensor_vect": 1, "vector_length": length}
    return values


def _gemm_values(sig: GemmSignature) -> tuple[str, dict[str, Value]]:
    integer = sig.acc_dtype == "int32"
    values: dict[str, Value] = {
        "batch_count": sig.batch, "a_h": sig.m, "a_w": sig.k, "b_w": sig.n, "alpha": sig.alpha, "beta": sig.beta,
        "transA": int(sig.trans_a), "transB": int(sig.trans_b), "epilogue": epilogue_text(sig.epilogue),
        "deterministic": int(sig.deterministic),
        "workspace_limit": -1 if sig.workspace_limit is None else sig.workspace_limit,
    }  # fmt: skip
    for name in ("lda", "ldb", "ldc", "stride_a", "stride_b", "stride_c"):
        value = getattr(sig, name)
        if value is not None:
            values[name] = value
    if not integer:
        if sig.b_dtype != sig.a_dtype:
            values["b_type"] = CAST_NAMES[sig.b_dtype]
        if sig.c_dtype != sig.a_dtype:
            values["c_type"] = CAST_NAMES[sig.c_dtype]
        if sig.acc_dtype != default_acc_dtype(sig.a_dtype, sig.b_dtype, sig.c_dtype):
            values["acc_type"] = CAST_NAMES[sig.acc_dtype]
    return _base(GEMM_BASES, sig.a_dtype), values
