"""Targets by name: ``arch:cores``, such as ``x86_64-v4:2`` and ``sm_90a:132``."""

from __future__ import annotations

from tilesmith.errors import TargetError
from tilesmith.targets.cpu import CPU_TARGETS, cpu_target
from tilesmith.targets.cuda import CUDA_TARGETS, cuda_target
from tilesmith.targets.target import Target


def as_target(target: Target | str) -> Target:
    """A target, or the one of this name; ``TargetError`` for anything else."""
    if isinstance(target, str):
        return parse_target(target)
    if not isinstance(target, Target):
        raise TargetError(f"target {target!r} is no target; write it as 'x86_64-v4:2', or give host_target()")
    return target


def parse_target(text: str) -> Target:
    """The target named ``arch:cores``; the inverse of ``target.name``.

    Without ``:cores``, one core of a CPU, or the SMs of a common card of a GPU's arch.
    """
    if not isinstance(text, str):
        raise TargetError(f"target {text!r} is no text; write it as x86_64-v4:2")
    arch, colon, count = text.partition(":")
    if colon and not (count.isascii() and count.isdecimal() and len(count) < 10):
        raise TargetError(f"target {text!r}: {count!r} is not a number of cores; write it as x86_64-v4:2")
    cores = int(count) if colon else None
    if arch in CUDA_TARGETS:
        return cuda_target(arch, cores)
    if arch not in CPU_TARGETS:
        known = ", ".join((*CPU_TARGETS, *CUDA_TARGETS))
        raise TargetError(f"target arch {arch!r} does not exist; known: {known}")
    return cpu_target(arch, 1 if cores is None else cores)
