"""A choice with its evidence and its plan: all that a hit needs of a decision, so no solver is imported here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilesmith.db.records import Record
from tilesmith.plan.records import Plan
from tilesmith.plan.serial import Serial
from tilesmith.problems.rewrite import Signature
from tilesmith.toolchain.cache import Artifact

# Values of ``Choice.basis``.
DATABASE, NEAREST, NEIGHBOUR, PREDICTION, MEASUREMENT, SPEC, PACKAGE, NEAREST_PACKAGE = (
    "database", "nearest target", "neighbour", "prediction", "measurement", "tuning spec", "package", "nearest package",
)  # fmt: skip
PACKAGES = (PACKAGE, NEAREST_PACKAGE)


@dataclass(frozen=True)
class Considered:
    """One line of the trace: a candidate, the reason why it was refused or not chosen, and its times."""

    solver: str
    reason: str
    config: str = ""
    predicted_us: float | None = None
    time_us: float | None = None
    spread_us: float | None = None
    layer: str = ""
    chosen: bool = False


@dataclass(frozen=True)
class Choice:
    """The decision.

    ``basis`` is ``database``, ``nearest target``, ``neighbour`` (a problem of another batch or image size),
    ``prediction``, ``measurement``, ``tuning spec``, ``package``, or ``nearest package`` (for another machine whose
    kernels run here). ``layer`` names the database or file, ``role`` says whether it is a ``system``, ``team`` or
    ``user`` layer or a ``package``, ``record`` is what it holds. ``time_us`` is the record's time, None if it was
    measured on another target or problem. The trace has predictions only where they were needed (``Launchable.trace``
    has them all).
    """

    solver: str
    config: str
    basis: str
    layer: str
    time_us: float | None
    trace: tuple[Considered, ...]
    role: str = ""
    record: Record | None = None


@dataclass(frozen=True)
class BuiltPlan:
    """A plan and its artifacts; ``remembered`` is true if no source had to be generated."""

    serial: Serial
    artifacts: tuple[Artifact, ...]
    remembered: bool

    @property
    def plan(self) -> Plan:
        return self.serial.plan


@dataclass(frozen=True)
class Resolved:
    """A choice and the plan that runs it.

    If the choice is a kernel of another library, ``bind`` makes a callable from signature, config and bound plan. The
    plan is the best generated one; it runs the calls that the library cannot run.
    """

    choice: Choice
    built: BuiltPlan
    bind: Callable[[Signature, str, Callable[..., Any]], Callable[..., Any]] | None = None
