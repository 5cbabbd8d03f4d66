"""Which targets are near another: records of them are a guess where no record is at hand."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tilesmith.errors import TargetError
from tilesmith.targets.names import parse_target
from tilesmith.targets.target import CpuTarget, Target


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
            distance = abs(math.log(other.cores / target.cores))
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
