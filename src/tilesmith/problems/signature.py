"""Any problem by its key."""

from __future__ import annotations

from tilesmith.errors import ProblemError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.keys import CONV_VERSIONS, GEMM_VERSIONS, VERSIONS

Signature = ConvSignature | GemmSignature


def parse_key(text: str) -> Signature:
    """The canonical signature whose ``key()`` is ``text``; ``ProblemError`` if there is none."""
    version = text.split(";", 1)[0] if isinstance(text, str) else ""
    if version in CONV_VERSIONS:
        return ConvSignature.parse(text)
    if version in GEMM_VERSIONS:
        return GemmSignature.parse(text)
    raise ProblemError(f"{text!r} is no key of a problem (they begin with {'; or '.join(VERSIONS)};)")
