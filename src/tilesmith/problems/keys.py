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

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tilesmith.errors import ProblemError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import IDENTITY, SCALES, Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.limits import check_length, refuse_empty

CONV_VERSIONS = ("conv1", "conv2")  # what problems had from the start, and with what came later
GEMM_VERSIONS = ("gemm1", "gemm2", "gemm3", "gemm4")
VERSIONS = (*CONV_VERSIONS, *GEMM_VERSIONS)
_TENSORS = (("x", "input"), ("w", "kernel"), ("y", "output"))
_OPTIONAL_GEMM = (
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


def _later(sig: ConvSignature | GemmSignature) -> list[str]:
    """The fields that keys of the first version do not have."""
    found = []
    if isinstance(sig, ConvSignature) and not isinstance(sig.padding[0], int):
        found.append(f"padhi={_sizes(sig.padding_high)}")
    return found if sig.workspace_limit is None else [*found, f"wlim={sig.workspace_limit}"]


def parse_conv_key(text: str) -> ConvSignature:
    """The inverse of ``conv_key``; ``ProblemError`` for any other text."""

    def build(fields: _Fields) -> ConvSignature:
        x, w, y = (fields.take(letter).split(",") for letter in "xwy")
        low = _read_sizes(fields.take("pad"))
        high = _read_strides(fields, "padhi") or low
        return ConvSignature(
            mode=fields.mode, input_shape=_read_sizes(x[2]), kernel_shape=_read_sizes(w[2]),
            input_dtype=x[0], kernel_dtype=w[0], output_dtype=y[0], dtype=x[0],
            input_layout=x[1], kernel_layout=w[1], output_layout=y[1],
            stride=_read_sizes(fields.take("stride")), padding=tuple(zip(low, high, strict=True)),
            dilation=_read_sizes(fields.take("dil")), groups=int(fields.take("groups")), acc_dtype=fields.take("acc"),
            input_strides=_read_strides(fields, "xs"), kernel_strides=_read_strides(fields, "ws"),
            output_strides=_read_strides(fields, "ys"),
            epilogue=parse_epilogue(fields.take("epi", "")), deterministic=fields.flag("det"),
            workspace_limit=_read_optional(fields, "wlim"),
        )  # fmt: skip

    return _parse(text, CONV_VERSIONS, 2, build, conv_key)


def gemm_key(sig: GemmSignature) -> str:
    """The key of a canonical signature."""
    later = _later(sig)
    parts = [
        GEMM_VERSIONS[3 if sig.has_scales else 2 if sig.groups else sig.epilogue.is_late or bool(later)],
        *(f"{name}={getattr(sig, name)}" for name in ("m", "n", "k", "batch")),
        f"a={sig.a_dtype},{'t' if sig.trans_a else 'n'}", f"b={sig.b_dtype},{'t' if sig.trans_b else 'n'}",
        f"c={sig.c_dtype}", f"acc={sig.acc_dtype}", f"alpha={sig.alpha!r}", f"beta={sig.beta!r}",
    ]  # fmt: skip
    for short, name in _OPTIONAL_GEMM:
        value = getattr(sig, name)
        if value is not None:
            parts.append(f"{short}={value}")
    newest = [f"groups={sig.groups}"] if sig.groups else []
    newest += [f"scales={sig.a_scale},{sig.b_scale}"] if sig.has_scales else []
    return ";".join(parts + _tail(sig.epilogue, sig.deterministic) + later + newest)


def parse_gemm_key(text: str) -> GemmSignature:
    """The inverse of ``gemm_key``; ``ProblemError`` for any other text."""

    def build(fields: _Fields) -> GemmSignature:
        (a, trans_a), (b, trans_b) = (fields.take(name).split(",") for name in "ab")
        m, n, k, batch = (int(fields.take(name)) for name in ("m", "n", "k", "batch"))
        lda, ldb, ldc, sa, sb, sc = (_read_optional(fields, short) for short, _ in _OPTIONAL_GEMM)
        a_scale, b_scale = fields.take("scales", "none,none").split(",")
        return GemmSignature(
            m=m, n=n, k=k, batch=batch, trans_a=trans_a == "t", trans_b=trans_b == "t", dtype=a, a_dtype=a, b_dtype=b,
            c_dtype=fields.take("c"), acc_dtype=fields.take("acc"),
            alpha=float(fields.take("alpha")), beta=float(fields.take("beta")),
            lda=lda, ldb=ldb, ldc=ldc, stride_a=sa, stride_b=sb, stride_c=sc,
            epilogue=parse_epilogue(fields.take("epi", "")), deterministic=fields.flag("det"),
            workspace_limit=_read_optional(fields, "wlim"), groups=_read_optional(fields, "groups") or 0,
            a_scale=a_scale, b_scale=b_scale,
        )  # fmt: skip

    return _parse(text, GEMM_VERSIONS, 1, build, gemm_key)


# --- epilogues ----------------------------------------------------------------------------------------------------


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


_SCALE_NAMES = {f"scale_{name}": name for name in SCALES[1:]}
_PART = re.compile(r"([a-z_]+)(?:\(([^()]*)\))?")


def parse_epilogue(text: str) -> Epilogue:
    """The inverse of ``epilogue_text``; ``leaky_relu`` and ``clamp`` may come without their numbers."""
    if not text:
        return IDENTITY
    bias = residual = False
    activation, numbers, scale = "none", {}, "none"
    # A plus within a number (1e+20) does not part anything.
    for part in re.split(r"\+(?=[a-z])", text):
        match = _PART.fullmatch(part)
        name = match[1] if match else ""
        given = [] if match is None or match[2] is None else match[2].split(",")
        wanted = {"leaky_relu": ("slope",), "clamp": ("low", "high")}.get(name, ())
        if match is None or (given and len(given) != len(wanted)):
            raise ProblemError(
                f"epilogue part {part!r} is none of scale_tensor, scale_channel, bias, residual or an activation"
            )
        if name in _SCALE_NAMES and scale == "none" and not given:
            scale = _SCALE_NAMES[name]
            continue
        if name in ("bias", "residual") and not (bias if name == "bias" else residual):
            bias, residual = bias or name == "bias", residual or name == "residual"
        elif activation == "none":
            activation, numbers = name, {key: _real(part, value) for key, value in zip(wanted, given, strict=False)}
        else:
            raise ProblemError(f"epilogue {text!r} says {name!r} after {activation!r}")
    return Epilogue(bias=bias, residual=residual, activation=activation, scale=scale, **numbers)


def _real(part: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ProblemError(f"epilogue part {part!r}: {text!r} is not a number") from None


# --- fields -------------------------------------------------------------------------------------------------------


@dataclass
class _Fields:
    """``name=value`` parts of a key that are still to be read."""

    mode: str
    values: dict[str, str]

    def take(self, name: str, default: str | None = None) -> str:
        value = self.values.pop(name, default)
        if value is None:
            raise ValueError(name)
        return value

    def flag(self, name: str) -> bool:
        return self.take(name, "no") == ""


_Sig = TypeVar("_Sig", ConvSignature, GemmSignature)


def _parse(
    text: str, versions: tuple[str, ...], head: int, build: Callable[[_Fields], _Sig], key: Callable[[_Sig], str]
) -> _Sig:
    """Read a key, and print it again: only text that comes back unchanged is a key."""
    check_length("key", text, ProblemError)
    parts = text.split(";") if isinstance(text, str) else [""]
    version = parts[0]
    if version not in versions:
        raise ProblemError(f"{text!r} is no {' or '.join(versions)} key")
    pairs = [part.partition("=") for part in parts[head:]]
    fields = _Fields(parts[1] if len(parts) > 1 else "", {name: value for name, _, value in pairs})
    try:
        sig = build(fields)
    except ProblemError as error:
        raise ProblemError(f"{text!r} is no {version} key: {error}") from None
    except (ValueError, IndexError):
        raise ProblemError(f"{text!r} is no {version} key") from None
    refuse_empty(sig)
    if fields.values or key(sig.canonical) != text:
        raise ProblemError(f"{text!r} is no {version} key: it reads as {key(sig.canonical)!r}")
    return sig


def _tail(epilogue: Epilogue, deterministic: bool) -> list[str]:
    text = epilogue_text(epilogue)
    return ([f"epi={text}"] if text else []) + (["det"] if deterministic else [])


def _sizes(values: tuple[int, ...]) -> str:
    return "x".join(map(str, values))


def _read_sizes(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("x"))


def _read_strides(fields: _Fields, name: str) -> tuple[int, ...] | None:
    text = fields.take(name, "")
    return _read_sizes(text) if text else None


def _read_optional(fields: _Fields, name: str) -> int | None:
    text = fields.take(name, "")
    return int(text) if text else None


Signature = ConvSignature | GemmSignature


def parse_key(text: str) -> Signature:
    """The canonical signature whose ``key()`` is ``text``; ``ProblemError`` if there is none."""
    version = text.split(";", 1)[0] if isinstance(text, str) else ""
    if version in CONV_VERSIONS:
        return ConvSignature.parse(text)
    if version in GEMM_VERSIONS:
        return GemmSignature.parse(text)
    raise ProblemError(f"{text!r} is no key of a problem (they begin with {'; or '.join(VERSIONS)};)")
