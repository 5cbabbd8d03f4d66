"""How the kernels that were made for one target suit a machine. csrc/ts_target.c has the same rules."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING

from tilesmith.errors import TargetError
from tilesmith.targets.cpu import CPU_TARGETS
from tilesmith.targets.names import parse_target
from tilesmith.targets.target import CpuTarget, Target

if TYPE_CHECKING:
    from fractions import Fraction


class Fit(IntEnum):
    """How the kernels of a target suit a machine's.

    ``NONE`` the machine lacks instructions of it, or it is a GPU of another arch; ``NEAREST`` they run, and were chosen
    for another machine (another card or number of SMs, or more threads than cores); ``RUNS`` a CPU of the same or a
    lower arch with no more threads than the machine has cores; ``EXACT`` the same name.
    """

    NONE = 0
    NEAREST = 1
    RUNS = 2
    EXACT = 3


def runs_on(target: Target, host: Target) -> bool:
    """Whether ``host`` has every instruction of ``target``."""
    if not isinstance(target, CpuTarget) or not isinstance(host, CpuTarget):
        return target.name == host.name
    return (
        target.zig_target == host.zig_target
        and target.vector_bytes <= host.vector_bytes
        and target.vector_registers <= host.vector_registers
        and (host.bf16_dot or not target.bf16_dot)
        and (host.bf16_tiles or not target.bf16_tiles)
        and (host.fp16_convert or not target.fp16_convert)
    )


def fit_of(machine: Target, name: str) -> Fit:
    """How the target of this name suits a machine's; ``NONE`` for what is no target."""
    other = _parsed(name)
    if other is None:
        return Fit.NONE
    if other.name == machine.name:
        return Fit.EXACT
    if isinstance(machine, CpuTarget) and isinstance(other, CpuTarget):
        if not runs_on(other, machine):
            return Fit.NONE
        return Fit.RUNS if other.cores <= machine.cores else Fit.NEAREST
    return Fit.NEAREST if other.arch == machine.arch else Fit.NONE


def nearest_names(machine: Target, names: Iterable[str]) -> tuple[str, ...]:
    """The targets that suit a machine at all, the nearest first."""
    suited = {name for name in names if fit_of(machine, name) != Fit.NONE}
    return tuple(sorted(suited, key=lambda name: distance(machine, name)))


def distance(machine: Target, name: str) -> tuple[bool, int, Fraction, bool, str]:
    """For sorting: first the same target; then the same arch, then the highest below it; then cores, card and name."""
    from fractions import Fraction  # a hit sorts nothing, and this imports `decimal`, too

    other = _parsed(name)
    assert other is not None
    archs = list(CPU_TARGETS)  # lowest first
    kin = 0 if other.arch == machine.arch else len(archs) - archs.index(other.arch) if other.arch in archs else 1
    return (
        other.name != machine.name,
        kin,
        Fraction(max(other.cores, machine.cores), min(other.cores, machine.cores)),
        other.card != machine.card,
        name,
    )


def _parsed(name: str) -> Target | None:
    try:
        return parse_target(name)
    except TargetError:  # a newer Tilesmith's
        return None
