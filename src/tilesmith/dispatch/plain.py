"""Warns once that only the plain reference, which is slow, computes an element type on CPUs."""

from __future__ import annotations

import logging

from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import Signature
from tilesmith.targets.target import Target

_FAST = ("fp32", "fp16", "bf16")  # what the other kernels of CPUs compute
_REFERENCE = "c_reference"
_told: set[str] = set()
_log = logging.getLogger("tilesmith.dispatch")


def why_only_plain(signature: Signature, target: Target, solver: str) -> str:
    """One line that explains why only the plain reference is available; empty if another solver is."""
    if target.family != "cpu" or solver.partition("@")[0] != _REFERENCE:
        return ""
    names = ("a_dtype", "b_dtype", "c_dtype")
    if not isinstance(signature, GemmSignature):
        names = ("input_dtype", "kernel_dtype", "output_dtype")
    slow = [name for name in (getattr(signature, each) for each in names) if name not in (*_FAST, "int32")]
    if not slow:
        return ""
    return (
        f"only the plain reference computes {slow[0]} on CPUs, which is right and slow; "
        f"{', '.join(_FAST)} have fast kernels"
    )


def tell_of_plain(signature: Signature, target: Target, solver: str) -> None:
    """Log the line, once for each process and element type."""
    line = why_only_plain(signature, target, solver)
    if line and line not in _told:
        _told.add(line)
        _log.warning("%s", line)
