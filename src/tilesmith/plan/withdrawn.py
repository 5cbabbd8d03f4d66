"""Kernels that computed wrong numbers until a mend: their plans are not launched, wherever they lie.

A plan of an earlier version launches as well as ever, from a cache where there is no compiler and from a package. A
mend that must keep such plans from it gets a line of ``MENDS`` here, and none is ever removed. The provenance of a plan
counts the mends that its kernels have: a plan is withdrawn if it is of a kind that a later one has mended. Records and
configs stay, as a kernel is checked before it is recorded; raise the solver's revision where they must not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_MENDS = re.compile(r" mends ([0-9]{1,9})\Z")


@dataclass(frozen=True)
class Mend:
    """The kind of kernels that were wrong: how their solvers' names begin, what the keys of their problems and their
    configs hold, and what was wrong with them.
    """

    solver: str
    problem: str
    config: str
    wrong: str

    def is_of(self, solver: str, problem: str, config: str) -> bool:
        return solver.startswith(self.solver) and self.problem in problem and self.config in config


MENDS = (
    Mend("wgmma_gemm", "acc=tf32", "swap_mn=1", "it copies sums that products are still writing"),
)  # fmt: skip
MENDED = f" mends {len(MENDS)}"  # ends the provenance of plans that are made today


def why_withdrawn(solver: str, problem: str, config: str, provenance: str) -> str:
    """Says why a plan's kernels compute wrong numbers; empty if nothing is known."""
    held = _MENDS.search(provenance)
    for mend in MENDS[int(held[1]) if held else 0 :]:
        if mend.is_of(solver, problem, config):
            return mend.wrong
    return ""
