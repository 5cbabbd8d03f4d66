"""Targets by name: ``arch:cores:card``, such as ``x86_64-v4:2:zen5`` and ``sm_90a:132:h200``."""

from __future__ import annotations

from collections.abc import Iterable

from tilesmith.errors import TargetError
from tilesmith.spelling import among
from tilesmith.targets.cards import GENERIC
from tilesmith.targets.cpu import CPU_TARGETS, archs_within, cpu_target
from tilesmith.targets.cuda import GPU_ARCHS, cuda_target
from tilesmith.targets.detect import host_cpu
from tilesmith.targets.target import CpuTarget, Target

_FORM = "write it as x86_64-v4:2:zen5 (arch, cores, processor) or sm_90a:132:h200 (arch, SMs, card)"


def as_target(target: Target | str) -> Target:
    """A target, or the one of this name; ``TargetError`` for anything else.

    A name that leaves the processor out means this machine's, where that runs the arch.
    """
    if isinstance(target, str):
        found = parse_target(target)
        if isinstance(found, CpuTarget) and target.count(":") < 2 and found.arch in archs_within(host_cpu().arch):
            return cpu_target(found.arch, found.cores, host_cpu().caches, host_cpu().card)
        return found
    if not isinstance(target, Target):
        raise TargetError(f"target {target!r} is no target; write it as 'x86_64-v4:2', or give host_target()")
    return target


def parse_target(text: str) -> Target:
    """The target named ``arch:cores:card``; the inverse of ``target.name``.

    What is left out: of a CPU one core and the processor ``generic``, of a GPU the SMs and the name of the arch's
    common card (``targets/cards.py``). Raises ``TargetError``.
    """
    if not isinstance(text, str):
        raise TargetError(f"target {text!r} is no text; {_FORM}")
    arch, *rest = text.split(":")
    count, card = (*rest, "", "")[:2]
    if len(rest) > 2 or (rest and not (count.isascii() and count.isdecimal() and len(count) < 10)):
        raise TargetError(f"target {text!r}: {':'.join(rest)!r} is not a number of cores and a card; {_FORM}")
    if len(rest) == 2 and not card:
        raise TargetError(f"target {text!r} ends where a card should stand; {_FORM}")
    cores = int(count) if rest else None
    if arch in GPU_ARCHS:
        return cuda_target(arch, cores, card)
    if arch not in CPU_TARGETS:
        raise TargetError(f"target arch {arch!r} does not exist{among(arch, (*CPU_TARGETS, *GPU_ARCHS))}")
    return cpu_target(arch, 1 if cores is None else cores, card=card or GENERIC)


def nearest_first(target: Target, names: Iterable[str]) -> tuple[str, ...]:
    """Those of ``names`` that are targets of the same family, without ``target`` itself.

    First the same arch with the nearest number of cores (or SMs), of two with the same number the same card first; then
    archs of the same instruction set (or major compute capability); then the rest of the family. Ties in the order of
    names.
    """
    ranked = []
    for name in names:
        try:
            other = parse_target(name)
        except TargetError:  # a newer Tilesmith's, or another program's
            continue
        if name != target.name and other.family == target.family:
            # Grows with |log(cores / the target's)|, and is the same number for twice and half as many.
            distance = max(other.cores, target.cores) / min(other.cores, target.cores)
            ranked.append((_kin(target, other), distance, other.card != target.card, name))
    return tuple(name for *_, name in sorted(ranked))


def _kin(target: Target, other: Target) -> int:
    if other.arch == target.arch:
        return 0
    if isinstance(target, CpuTarget) or isinstance(other, CpuTarget):
        close = isinstance(target, CpuTarget) and isinstance(other, CpuTarget) and other.zig_target == target.zig_target
    else:
        close = other.cc_major == target.cc_major
    return 1 if close else 2
