"""The plain reference: one kernel for each direction, activation and set of dtypes, which computes every valid problem.

All floating-point sums are made in double, also where ``acc_dtype`` is fp32: gathering dominates, so double costs
little, and the reference is then exact to the last rounding even for the longest reductions. int8 sums wrap modulo
2^32, as int32 does.
"""

from __future__ import annotations

from tilesmith.codegen.c.scalar import TYPES
from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Draft, Launch, Parameter, Pointer, Source, Space
from tilesmith.plan.slots import slot_names
from tilesmith.solvers.c.reference.cost import predicted_seconds
from tilesmith.solvers.c.reference.text import M, N, Q
from tilesmith.solvers.c.reference.tile import reference_tile
from tilesmith.solvers.solver import Config, Geometry, Plain
from tilesmith.targets.target import CpuTarget


class ReferenceSolver(Plain):
    """Covers every problem; last in the table."""

    name = "c_reference"

    def predict(self, problem: Geometry, config: Config, target: CpuTarget) -> float:
        return predicted_seconds(problem, target)

    def draft(self, problem: Geometry, config: Config, target: CpuTarget) -> Draft:
        source, launch = _reference(problem, target)
        return Draft((source,), (launch,), in_place=True)


def guarded_reference(problem: Geometry, target: CpuTarget, flag: Pointer) -> tuple[Source, Launch]:
    """The reference launch that returns at once when the int32 at ``flag`` is 0.

    It follows a fast kernel that is exact only for finite filters, whose packing writes the flag (``dense``).
    ``Launch.artifact`` is 0: the caller puts the source where it belongs and renumbers.
    """
    return _reference(problem, target, flag)


def _reference(problem: Geometry, target: CpuTarget, *flag: Pointer) -> tuple[Source, Launch]:
    t = reference_tile(problem)
    dtypes = "".join(name.replace("fp", "f").replace("int", "i") for name in t.dtypes)
    text = t.text(target, bool(flag))
    source = make_source("c", f"reference{t.op}", dtypes, f"m{M}n{N}q{Q}", target.arch, TYPES, text)
    tensors: list[Parameter] = [Pointer(Space.SLOT, i) for i in range(len(slot_names(problem)))]
    arguments = (*tensors, *flag, *t.numbers)
    return source, Launch(0, source.symbol, (t.items, 1, 1), arguments, shared_bytes=t.scratch_bytes)
