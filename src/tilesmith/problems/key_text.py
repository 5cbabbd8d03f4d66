"""The keys of problems: text, versioned, stable for ever, one for each canonical signature.

- ``conv1;fwd;x=fp32,NHWC,2x16x32x3;w=fp32,NHWC,10x2x2x3;y=fp32,NHWC;stride=1x1;pad=0x0;dil=1x1;groups=1;acc=fp32``,
  then, only when present, ``xs= ws= ys=`` (element strides in layout order), ``epi=`` and ``det``.
- ``gemm1;m=4;n=5;k=6;batch=1;a=fp32,n;b=fp32,t;c=fp32;acc=fp32;alpha=1.0;beta=0.0``, then, only when present,
  ``lda= ldb= ldc= sa= sb= sc= epi= det``.

Newer features have a new key version, so that a problem without them keeps its first key:

- ``conv2;...`` is ``conv1;...`` with at least one of these behind it, in this order: ``padhi=`` (padding behind the
  last element of each spatial axis, where it is not that of ``pad=``), ``wlim=`` (the most bytes of workspace).
- ``gemm2;...`` is ``gemm1;...`` with ``wlim=`` behind it.
- ``gemm3;...`` is either with ``groups=`` behind it: groups of rows, whose ends are an argument.
- ``gemm4;...`` is ``gemm1;...`` or ``gemm2;...`` with ``scales=`` behind it: the kinds of factors of ``a`` and ``b``.

In both, ``epi=`` may begin with ``scale_tensor`` or ``scale_channel``, or name one of ``epilogue.LATER``: each of these
alone makes a key of version 2.

Numbers are written as Python's ``repr``, which reads back to the same float. A version that is not among these is of a
newer Tilesmith, or no key: reading it is a ``ProblemError``, and a database passes its records over.
"""

from __future__ import annotations

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature

CONV_VERSIONS = ("conv1", "conv2")  # what problems had from the start, and with what came later
GEMM_VERSIONS = ("gemm1", "gemm2", "gemm3", "gemm4")
VERSIONS = (*CONV_VERSIONS, *GEMM_VERSIONS)
_TENSORS = (("x", "input"), ("w", "kernel"), ("y", "output"))
OPTIONAL_GEMM = (
    ("lda", "lda"), ("ldb", "ldb"), ("ldc", "ldc"), ("sa", "stride_a"), ("sb", "stride_b"), ("sc", "stride_c"),
)  # fmt: skip


def conv_key(sig: ConvSignature) -> str:
    """The key of a canonical signature."""
    later = _later(sig)
    parts = [
        CONV_VERSIONS[sig.epilogue.is_late or bool(later)], sig.mode,
        f"x={sig.input_dtype},{sig.input_layout},{_sizes(sig.input_shape)}",
        f"w={sig.kernel_dtype},{sig.kernel_layout},{_sizes(sig.kernel_shape)}",
        f"y={sig.output_dtype},{sig.output_layout}", f"stride={_sizes(sig.stride)}", f"pad={_sizes(sig.padding_low)}",
        f"dil={_sizes(sig.dilation)}", f"groups={sig.groups}", f"acc={sig.acc_dtype}",
    ]  # fmt: skip
    for letter, name in _TENSORS:
        strides = getattr(sig, f"{name}_strides")
        if strides is not None:
            parts.append(f"{letter}s={_sizes(strides)}")
    return ";".join(parts + _tail(sig.epilogue, sig.deterministic) + later)


def gemm_key(sig: GemmSignature) -> str:
    """The key of a canonical signature."""
    later = _later(sig)
    parts = [
        GEMM_VERSIONS[3 if sig.has_scales else 2 if sig.groups else sig.epilogue.is_late or bool(later)],
        *(f"{name}={getattr(sig, name)}" for name in ("m", "n", "k", "batch")),
        f"a={sig.a_dtype},{'t' if sig.trans_a else 'n'}", f"b={sig.b_dtype},{'t' if sig.trans_b else 'n'}",
        f"c={sig.c_dtype}", f"acc={sig.acc_dtype}", f"alpha={sig.alpha!r}", f"beta={sig.beta!r}",
    ]  # fmt: skip
    for short, name in OPTIONAL_GEMM:
        value = getattr(sig, name)
        if value is not None:
            parts.append(f"{short}={value}")
    newest = [f"groups={sig.groups}"] if sig.groups else []
    newest += [f"scales={sig.a_scale},{sig.b_scale}"] if sig.has_scales else []
    return ";".join(parts + _tail(sig.epilogue, sig.deterministic) + later + newest)


def epilogue_text(epilogue: Epilogue) -> str:
    """``scale_channel+bias+residual+clamp(0.0,6.0)``; empty when nothing happens."""
    parts = [f"scale_{epilogue.scale}"] if epilogue.is_scaled else []
    parts += [name for name in ("bias", "residual") if getattr(epilogue, name)]
    if epilogue.activation == "leaky_relu":
        parts.append(f"leaky_relu({epilogue.slope!r})")
    elif epilogue.activation == "clamp":
        parts.append(f"clamp({epilogue.low!r},{epilogue.high!r})")
    elif epilogue.activation != "none":
        parts.append(epilogue.activation)
    return "+".join(parts)


def _later(sig: ConvSignature | GemmSignature) -> list[str]:
    """The fields that keys of the first version do not have."""
    found = []
    if isinstance(sig, ConvSignature) and not isinstance(sig.padding[0], int):
        found.append(f"padhi={_sizes(sig.padding_high)}")
    return found if sig.workspace_limit is None else [*found, f"wlim={sig.workspace_limit}"]


def _tail(epilogue: Epilogue, deterministic: bool) -> list[str]:
    text = epilogue_text(epilogue)
    return ([f"epi={text}"] if text else []) + (["det"] if deterministic else [])


def _sizes(values: tuple[int, ...]) -> str:
    return "x".join(map(str, values))
