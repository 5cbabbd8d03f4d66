"""Any problem by its key."""

from __future__ import annotations

from tilesmith.errors import ProblemError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.keys import CONV_VERSION, GEMM_VERSION

Signature = ConvSignature | GemmSignature


def parse_key(text: str) -> Signature:
    """The canonical signature whose ``key()`` is ``text``; ``ProblemError`` if there is none."""
    version = text.split(";", 1)[0] if isinstance(text, str) else ""
    if version == CONV_VERSION:
        return ConvSignature.parse(text)
    if version == GEMM_VERSION:
        return GemmSignature.parse(text)
    raise ProblemError(f"{text!r} is no key of a problem (they begin with {CONV_VERSION}; or {GEMM_VERSION};)")
