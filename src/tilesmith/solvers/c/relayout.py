"""Any layout for solvers that read channels-last tensors: copies before and after, inside the plan."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilesmith.codegen.c.layout import layout_copy
from tilesmith.plan.records import Draft, Launch, Memset, Parameter, Pointer, Source, Space, Step
from tilesmith.plan.slots import slot_names
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.solvers import reasons
from tilesmith.solvers.solver import Accepted, Config, Geometry, Rejected, SearchSpace, Solver
from tilesmith.targets.target import CpuTarget

_ALIGNMENT = 64
# A copy reads and writes; one core moves about this much (measured: 40 to 60 GB/s in the caches, 15 outside).
_BYTES_PER_SECOND = 30e9
_LAUNCH_SECONDS = 2e-6


@dataclass(frozen=True)
class _Change:
    """A tensor of the problem that the inner solver shall find in ``space``: slot ``slot`` lies as ``view``."""

    slot: int
    view: TensorView
    is_result: bool
    space: Space

    @property
    def nbytes(self) -> int:
        n, c, d, h, w = self.view.shape
        return n * c * d * h * w * dtype(self.view.dtype).nbytes


class Relayout:
    """``inner`` on dense channels-last copies of the tensors that do not lie so.

    It covers what ``inner`` covers once layouts are changed, and only problems with something to change: activations
    that are not channels-last, filters in vectors. Other filters stay as they are, for packing reads any strides. A
    filter's copy is made in ``prepare`` and lies behind the packed filter.
    """

    def __init__(self, inner: Solver[CpuTarget]) -> None:
        self.inner = inner
        self.name = f"{inner.name}_nhwc"
        self.own_revision = 1

    @property
    def revision(self) -> int:
        return self.inner.revision + self.own_revision - 1

    def applicable(self, problem: Geometry, target: CpuTarget) -> Accepted | Rejected:
        if not isinstance(problem, ConvGeometry):
            return Rejected(reasons.OP)
        if not _changes(problem):
            return Rejected(reasons.UNCHANGED)
        return self.inner.applicable(_changed(problem), target)

    def search_space(self, problem: Geometry, target: CpuTarget) -> SearchSpace:
        return self.inner.search_space(_changed(problem), target)

    def default_config(self, problem: Geometry, target: CpuTarget) -> Config:
        return self.inner.default_config(_changed(problem), target)

    def predict(self, problem: Geometry, config: Config, target: CpuTarget) -> float:
        moved = [2 * change.nbytes for change in _changes(problem) if change.space == Space.WORKSPACE]
        copies = sum(moved) / _BYTES_PER_SECOND / target.cores + len(moved) * _LAUNCH_SECONDS
        return self.inner.predict(_changed(problem), config, target) + copies

    def draft(self, problem: Geometry, config: Config, target: CpuTarget) -> Draft:
        inner = self.inner.draft(_changed(problem), config, target)
        sources = list(inner.sources)
        used = {Space.WORKSPACE: _round_up(inner.workspace_bytes), Space.PACKED: _round_up(inner.packed_bytes)}
        moved: dict[int, Pointer] = {}
        prepare: list[Step] = []
        before: list[Step] = []
        after: list[Step] = []
        for change in _changes(problem):
            copy = Pointer(change.space, 0, used[change.space])
            used[change.space] += _round_up(change.nbytes)
            moved[change.slot] = copy
            slot, dense = Pointer(Space.SLOT, change.slot), _dense(change.view)
            if change.is_result:
                after.append(_added(sources, *layout_copy(dense, change.view, copy, slot, target)))
            else:
                step = _added(sources, *layout_copy(change.view, dense, slot, copy, target))
                (prepare if change.space == Space.PACKED else before).append(step)
        prepare += [_rebased(step, moved) for step in inner.prepare]
        run = tuple(_rebased(step, moved) for step in inner.run)
        # A draft without prepare steps has no packed memory.
        packed = used[Space.PACKED] if prepare else inner.packed_bytes
        return Draft(tuple(sources), (*before, *run, *after), tuple(prepare), packed, used[Space.WORKSPACE])


def _changes(problem: Geometry) -> tuple[_Change, ...]:
    """The tensors of ``problem`` that must be copied, the residual (which lies as the result does) included."""
    if not isinstance(problem, ConvGeometry) or problem.direction == "bgrad":
        return ()
    names = slot_names(problem)
    result = len(names) - 1
    found = []
    for place, name in enumerate(names):
        like = names[result] if name == "z" else name
        if like in ("x", "y"):
            view: TensorView = getattr(problem, like)
            if not view.channels_last:
                found.append(_Change(place, view, place == result, Space.WORKSPACE))
        elif name == "w" and problem.w.vector > 1:
            space = Space.WORKSPACE if place == result else Space.PACKED
            found.append(_Change(place, problem.w, place == result, space))
    return tuple(found)


def _changed(problem: Geometry) -> ConvGeometry:
    """``problem`` with its activations channels-last and its filter without vectors."""
    assert isinstance(problem, ConvGeometry)
    x, y = (view if view.channels_last else _dense(view) for view in (problem.x, problem.y))
    w = _dense(problem.w) if problem.w.vector > 1 else problem.w
    return replace(problem, x=x, y=y, w=w)


def _dense(view: TensorView) -> TensorView:
    """The same tensor as dense ``N, D, H, W, C``."""
    _, c, d, h, w = view.shape
    return replace(view, strides=(d * h * w * c, 1, h * w * c, w * c, c), vector=1)


def _added(sources: list[Source], source: Source, launch: Launch) -> Launch:
    """``launch`` with its source among ``sources``, once."""
    if source not in sources:
        sources.append(source)
    return replace(launch, artifact=sources.index(source))


def _rebased(step: Step, moved: dict[int, Pointer]) -> Step:
    """``step`` with the moved slots' pointers into the workspace."""

    def place(value: Parameter) -> Parameter:
        if not isinstance(value, Pointer) or value.space != Space.SLOT or value.index not in moved:
            return value
        base = moved[value.index]
        return Pointer(base.space, base.index, base.offset + value.offset)

    if isinstance(step, Memset):
        pointer = place(step.pointer)
        assert isinstance(pointer, Pointer)
        return replace(step, pointer=pointer)
    return replace(step, parameters=tuple(place(value) for value in step.parameters))


def _round_up(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
