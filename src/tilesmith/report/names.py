"""Problems in a few words, and the groups that they belong to."""

from __future__ import annotations

from functools import lru_cache

from tilesmith.errors import ProblemError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.key_text import epilogue_text
from tilesmith.problems.keys import parse_key
from tilesmith.problems.rewrite import Signature

_DIRECTIONS = {"fwd": "", "bwd": " (data)", "wrw": " (weights)", "bgrad": " (bias)"}


@lru_cache(maxsize=4096)
def signature_of(key: str) -> Signature | None:
    """The signature of a key; None for a key that this version cannot read."""
    try:
        return parse_key(key)
    except ProblemError:
        return None


def short_name(signature: Signature) -> str:
    """Such as ``conv 3x3 stride 2, 64x56x56 to 128, batch 8, bf16 (data)`` or ``gemm 512x1024x512, bf16``.

    Two problems that differ in a layout, a pitch or an epilogue alone may share a name.
    """
    if isinstance(signature, GemmSignature):
        batch = f", batch {signature.batch}" if signature.batch > 1 else ""
        sizes = f"{signature.m}x{signature.n}x{signature.k}"
        return f"gemm {sizes}{batch}, {signature.a_dtype}{_epilogue(signature)}"
    g = signature.geometry
    axes = [axis for axis in range(3) if g.input[axis] > 1 or g.filter[axis] > 1 or g.output[axis] > 1] or [2]
    taps = "x".join(str(g.filter[axis]) for axis in axes)
    image = "x".join(str(g.input[axis]) for axis in axes)
    strides = {g.stride[axis] for axis in axes}
    stride = (
        ""
        if strides == {1}
        else " stride " + (str(*strides) if len(strides) == 1 else "x".join(str(g.stride[axis]) for axis in axes))
    )
    groups = "" if g.groups == 1 else " depthwise" if g.groups == g.c else f" groups {g.groups}"
    batch = f", batch {g.n}" if g.n > 1 else ""
    return (
        f"conv {taps}{stride}{groups}, {g.c}x{image} to {g.k}{batch}, {signature.input_dtype}"
        f"{_epilogue(signature)}{_DIRECTIONS[g.direction]}"
    )


def _epilogue(signature: Signature) -> str:
    text = epilogue_text(signature.epilogue)
    return f", {text}" if text else ""


def operation_of(signature: Signature) -> str:
    """The kind of problem, as a group of a chart: ``gemm``, ``conv 1x1``, ``conv 3x3``, ``conv depthwise``, ..."""
    if isinstance(signature, GemmSignature):
        return "gemm" if signature.batch == 1 else "gemm, batched"
    g = signature.geometry
    if g.groups > 1:
        return "conv, depthwise" if g.groups == g.c else "conv, grouped"
    if g.input[0] > 1 or g.filter[0] > 1:
        return "conv, 3-D"
    return f"conv {g.filter[1]}x{g.filter[2]}"


def direction_of(signature: Signature) -> str:
    """The direction in words."""
    mode = signature.mode if isinstance(signature, ConvSignature) else "fwd"
    return {"fwd": "forward", "bwd": "backward data", "wrw": "backward weights", "bgrad": "bias gradient"}[mode]


def dtype_of(signature: Signature) -> str:
    """The element type of the first operand."""
    return signature.a_dtype if isinstance(signature, GemmSignature) else signature.input_dtype


def family_of(solver: str) -> str:
    """The kernel family of a candidate, without the rewrite that it is used on."""
    return solver.partition("@")[0]
