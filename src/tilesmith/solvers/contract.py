"""The contract of a solver: facts in, values out, no device touched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from tilesmith.plan.records import Draft
from tilesmith.solvers.solver import Accepted, Axis, Config, Geometry, Rejected, SearchSpace
from tilesmith.targets.target import CpuTarget, CudaTarget

TargetKind_contra = TypeVar("TargetKind_contra", bound=CpuTarget | CudaTarget, contravariant=True)


class Solver(Protocol[TargetKind_contra]):
    """One family of kernels, for targets of one kind. All methods are pure.

    ``applicable`` and ``default_config`` answer in under 50 us about a problem that they were asked about before
    (``remembered``).
    """

    @property
    def name(self) -> str:
        """Written once by hand, stored in databases: never renamed."""
        ...

    @property
    def revision(self) -> int:
        """Raised when generated code changes what a record says."""
        ...

    @property
    def features(self) -> frozenset[str]:
        """The features that it computes (``problems.features``); a problem that uses another never reaches it."""
        ...

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of its search spaces, in the order of its configs' names: the reference page is made of them."""
        ...

    def applicable(self, problem: Geometry, target: TargetKind_contra) -> Accepted | Rejected:
        """Whether it computes ``problem``, whose features are all among ``features``."""
        ...

    def search_space(self, problem: Geometry, target: TargetKind_contra) -> SearchSpace: ...

    def default_config(self, problem: Geometry, target: TargetKind_contra) -> Config:
        """Always inside the search space."""
        ...

    def ranked(self, problem: Geometry, target: TargetKind_contra) -> Sequence[Config]:
        """Configs worth measuring, the most promising first.

        Empty where the solver has no order of its own (``Unranked``): a search then draws points of the space.
        """
        ...

    def predict(self, problem: Geometry, config: Config, target: TargetKind_contra) -> float:
        """Estimated seconds of ``run``, on one scale for all solvers of a target, so that they can be compared.

        Infinite for what is measured or not used. What was measured on a card comes from its fit (``targets/fits``).
        """
        ...

    def draft(self, problem: Geometry, config: Config, target: TargetKind_contra) -> Draft:
        """Sources and steps. Slots are counted in the order of ``slot_names(problem)``."""
        ...
