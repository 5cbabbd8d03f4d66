"""The keys of MIOpen's find-db, such as ``64-56-56-3x3-128-28-28-16-1x1-2x2-1x1-0-NHWC-NHWC-NHWC-FP16-F_g2``.

In the order of the operation's own tensors (for backward data and weights the first is ``dy``, the second ``dx`` or
``x``): channels, sizes, filter, channels, sizes, batch, padding, stride, dilation, bias, layouts (one for all, or those
of the first tensor, the filter and the second), element type (one, or three), direction; then ``_gG`` for G groups.
"""

from __future__ import annotations

import re

from tilesmith.errors import ProblemError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.layouts import default_layout, parse_layout
from tilesmith.problems.limits import check_length, refuse_empty

_DTYPES = {
    "FP64": "fp64", "FP32": "fp32", "FP16": "fp16", "BF16": "bf16", "BFP16": "bf16", "FP8": "fp8e4m3",
    "BFP8": "fp8e5m2", "INT8": "int8", "INT32": "int32",
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in reversed(_DTYPES.items())}
_DIRECTIONS = {"F": "fwd", "B": "bwd", "W": "wrw"}
_LETTERS = {mode: letter for letter, mode in _DIRECTIONS.items()}
_END = re.compile(r"([FBW])(?:_g([1-9][0-9]{0,8}))?")
_TYPES = re.compile("|".join(sorted(_DTYPES, key=len, reverse=True)))


def find_key(signature: ConvSignature) -> str:
    """The key of a problem; ``ProblemError`` when such keys cannot say all of it. The inverse of ``parse_find_key``."""
    sig = signature.canonical
    if sig.mode not in _LETTERS:
        raise ProblemError(f"mode {sig.mode} has no find-db key")
    if sig.padding_high != sig.padding_low:
        raise ProblemError(f"padding {sig.padding}: unequal sides have no place in find-db keys")
    first, last = ("input", "output") if sig.mode == "fwd" else ("output", "input")
    n, channels, *sizes = getattr(sig, f"{first}_logical")
    _, others, *results = getattr(sig, f"{last}_logical")
    layouts = [getattr(sig, f"{name}_layout") for name in (first, "kernel", last)]
    dtypes = [_NAMES[getattr(sig, f"{name}_dtype")] for name in (first, "kernel", last)]
    default = str(default_layout(sig.spatial_dims))
    parts = [
        *map(str, (channels, *sizes)), _by(sig.kernel_logical[2:]), *map(str, (others, *results, n)),
        _by(sig.padding_low), _by(sig.stride), _by(sig.dilation), "0",
        *([default] if set(layouts) == {default} else layouts),
        dtypes[0] if len(set(dtypes)) == 1 else "".join(dtypes),
        _LETTERS[sig.mode] + (f"_g{sig.groups}" if sig.groups > 1 else ""),
    ]  # fmt: skip
    key = "-".join(parts)
    if parse_find_key(key).canonical != sig:
        raise ProblemError(
            "pitches, epilogues, accumulation types, determinism and limits have no place in find-db keys"
        )
    return key


def parse_find_key(text: str) -> ConvSignature:
    """The problem of a key; ``ProblemError`` for text that is none, or a problem that cannot exist."""
    check_length("find-db key", text, ProblemError)
    parts = text.split("-")
    end = _END.fullmatch(parts[-1])
    if end is None:
        raise ProblemError(f"{text!r} is no find-db key")
    try:
        return _read(parts, _DIRECTIONS[end[1]], int(end[2] or 1))
    except ProblemError as error:
        raise ProblemError(f"find-db key {text!r}: {error}") from None
    except (ValueError, StopIteration):
        raise ProblemError(f"{text!r} is no find-db key") from None


def _read(parts: list[str], mode: str, groups: int) -> ConvSignature:
    dims = next(place for place, part in enumerate(parts) if "x" in part) - 1
    numbers = 2 * dims + 8  # and the bias flag is the last of them
    named = parts[numbers:-2]
    if len(named) not in (1, 3) or parts[numbers - 1] != "0" or dims not in (2, 3):
        raise ValueError
    channels, *sizes = map(int, parts[: 1 + dims])
    taps = _sizes(parts[1 + dims], dims)
    others, *results = map(int, parts[2 + dims : 3 + 2 * dims])
    n = int(parts[3 + 2 * dims])
    padding, stride, dilation = (_sizes(part, dims) for part in parts[4 + 2 * dims : 7 + 2 * dims])
    layouts = named * 3 if len(named) == 1 else named
    found = _TYPES.findall(parts[-2])
    if "".join(found) != parts[-2] or len(found) not in (1, 3):
        raise ProblemError(f"element type {parts[-2]!r} does not exist; known: {', '.join(_DTYPES)}")
    dtypes = [_DTYPES[name] for name in (found * 3 if len(found) == 1 else found)]
    if mode == "fwd":
        c, size, k, result = channels, sizes, others, results
    else:  # what comes first is the gradient of the output
        c, size, k, result = others, results, channels, sizes
        layouts, dtypes = layouts[::-1], dtypes[::-1]
    if c % groups:
        raise ProblemError(f"{groups} groups do not divide {c} channels")
    signature = ConvSignature(
        input_shape=parse_layout(layouts[0], dims).layout_shape((n, c, *size)),
        kernel_shape=parse_layout(layouts[1], dims).layout_shape((k, c // groups, *taps)),
        input_layout=layouts[0], kernel_layout=layouts[1], output_layout=layouts[2],
        stride=stride, padding=padding, dilation=dilation, groups=groups, mode=mode,
        dtype=dtypes[0], input_dtype=dtypes[0], kernel_dtype=dtypes[1], output_dtype=_result(mode, dtypes),
    )  # fmt: skip
    refuse_empty(signature)
    if signature.output_logical[2:] != tuple(result):
        raise ProblemError(f"the output's sizes are {_by(signature.output_logical[2:])}, not {_by(result)}")
    return signature


def _result(mode: str, dtypes: list[str]) -> str:
    """Keys of int8 problems may name int8 alone; their result is int32."""
    return "int32" if mode == "fwd" and dtypes[0] == "int8" else dtypes[2]


def _by(values: tuple[int, ...] | list[int]) -> str:
    return "x".join(map(str, values))


def _sizes(text: str, dims: int) -> tuple[int, ...]:
    values = tuple(int(part) for part in text.split("x"))
    if len(values) != dims:
        raise ValueError
    return values
