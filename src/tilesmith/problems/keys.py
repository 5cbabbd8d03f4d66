"""Reads the keys of problems (``problems.key_text`` describes and writes them)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tilesmith.errors import ProblemError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import IDENTITY, SCALES, Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.key_text import CONV_VERSIONS, GEMM_VERSIONS, OPTIONAL_GEMM, VERSIONS, conv_key, gemm_key
from tilesmith.problems.limits import check_length, refuse_empty


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


def parse_gemm_key(text: str) -> GemmSignature:
    """The inverse of ``gemm_key``; ``ProblemError`` for any other text."""

    def build(fields: _Fields) -> GemmSignature:
        (a, trans_a), (b, trans_b) = (fields.take(name).split(",") for name in "ab")
        m, n, k, batch = (int(fields.take(name)) for name in ("m", "n", "k", "batch"))
        lda, ldb, ldc, sa, sb, sc = (_read_optional(fields, short) for short, _ in OPTIONAL_GEMM)
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
