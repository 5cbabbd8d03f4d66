"""Any layout for solvers that read channels-last tensors: copies before and after, inside the plan.

The target family (``Copies``) defines the copies, their kernels and their cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from tilesmith.plan.records import Draft, Launch, Memset, Parameter, Pointer, Source, Space, Step, TensorMap
from tilesmith.plan.slots import slot_names, span_bytes
from tilesmith.problems.features import features_of
from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.solvers import reasons
from tilesmith.solvers.contract import Solver
from tilesmith.solvers.delegating import Delegating
from tilesmith.solvers.solver import (
    Accepted,
    Config,
    Geometry,
    Rejected,
    refusal,
    remembered,
)
from tilesmith.targets.target import CpuTarget, CudaTarget

Kind = TypeVar("Kind", bound=CpuTarget | CudaTarget)
Kind_contra = TypeVar("Kind_contra", bound=CpuTarget | CudaTarget, contravariant=True)


class Copies(Protocol[Kind_contra]):
    """How a family of targets copies tensors."""

    @property
    def alignment(self) -> int:
        """Bytes that copies in the workspace begin at multiples of."""
        ...

    @property
    def most_bytes(self) -> float:
        """The most bytes that one copy can write."""
        ...

    def wanted(self, view: TensorView) -> TensorView:
        """The tensor as solvers read it: ``view`` itself where that will do."""
        ...

    def copy(
        self, source: TensorView, result: TensorView, read: Pointer, write: Pointer, target: Kind_contra
    ) -> tuple[Source, Launch]: ...

    def seconds(self, view: TensorView, wanted: TensorView, target: Kind_contra) -> float:
        """Estimated time of a copy between ``view`` and the tensor as solvers read it."""
        ...


@dataclass(frozen=True)
class _Change:
    """Slot ``slot`` lies as ``view``; the inner solver shall find it as ``wanted``, in ``space``."""

    slot: int
    view: TensorView
    wanted: TensorView
    is_result: bool
    space: Space

    @property
    def nbytes(self) -> int:
        return view_bytes(self.wanted)


class Relayout(Delegating[Kind]):
    """``inner`` on copies of the tensors that do not lie as it reads them.

    It covers what ``inner`` covers once layouts are changed, and only problems with something to change. A filter's
    copy is made in ``prepare`` and lies behind the packed filter.
    """

    def __init__(self, inner: Solver[Kind], copies: Copies[Kind]) -> None:
        self.inner = inner
        self.copies = copies
        self.name = f"{inner.name}_nhwc"
        self.own_revision = 1
        self.features = inner.features - {"gemm"} | {"vector", "pitch"}  # the strides of products are read in place

    @property
    def revision(self) -> int:
        return self.inner.revision + self.own_revision - 1

    @remembered
    def applicable(self, problem: Geometry, target: Kind) -> Accepted | Rejected:
        if not isinstance(problem, ConvGeometry):
            return Rejected(reasons.OP)
        changes = self._changes(problem)
        # A filter that would be padded alone is no faster than one that is read as it lies (and up to 3 times slower).
        padded = all(change.space == Space.PACKED and change.view.channels_last for change in changes)
        if not changes or (padded and isinstance(self.inner.applicable(problem, target), Accepted)):
            return Rejected(reasons.UNCHANGED)
        if longest := next((change for change in changes if change.nbytes > self.copies.most_bytes), None):
            return Rejected(reasons.SIZE, f"a copy of {longest.nbytes} bytes")
        changed = self.changed(problem)
        return refusal(self.inner.features, features_of(changed)) or self.inner.applicable(changed, target)

    def predict(self, problem: Geometry, config: Config, target: Kind) -> float:
        moved = [change for change in self._changes(problem) if change.space == Space.WORKSPACE]
        copies = sum(self.copies.seconds(change.view, change.wanted, target) for change in moved)
        return self.inner.predict(self.changed(problem), config, target) + copies

    def draft(self, problem: Geometry, config: Config, target: Kind) -> Draft:
        inner = self.inner.draft(self.changed(problem), config, target)
        sources = list(inner.sources)
        used = {
            Space.WORKSPACE: self._round_up(inner.workspace_bytes),
            Space.PACKED: self._round_up(inner.packed_bytes),
        }
        moved: dict[int, Pointer] = {}
        prepare: list[Step] = []
        before: list[Step] = []
        after: list[Step] = []
        for change in self._changes(problem):
            copy = Pointer(change.space, 0, used[change.space])
            used[change.space] += self._round_up(change.nbytes)
            moved[change.slot] = copy
            slot = Pointer(Space.SLOT, change.slot)
            if change.is_result:
                made = self.copies.copy(change.wanted, change.view, copy, slot, target)
                after.append(added(sources, *made))
            else:
                step = added(sources, *self.copies.copy(change.view, change.wanted, slot, copy, target))
                (prepare if change.space == Space.PACKED else before).append(step)
        prepare += [rebased(step, moved) for step in inner.prepare]
        run = tuple(rebased(step, moved) for step in inner.run)
        # A draft without prepare steps has no packed memory.
        packed = used[Space.PACKED] if prepare else inner.packed_bytes
        return Draft(tuple(sources), (*before, *run, *after), tuple(prepare), packed, used[Space.WORKSPACE])

    def _changes(self, problem: Geometry) -> tuple[_Change, ...]:
        """The tensors of ``problem`` that must be copied, the residual (which lies as the result does) included."""
        if not isinstance(problem, ConvGeometry) or problem.direction == "bgrad":
            return ()
        names = slot_names(problem)
        result = len(names) - 1
        found = []
        for place, name in enumerate(names):
            like = names[result] if name == "z" else name
            if like not in ("x", "y", "w"):
                continue
            view: TensorView = getattr(problem, like)
            wanted = self.copies.wanted(view)
            if wanted != view:
                space = Space.PACKED if like == "w" and place != result else Space.WORKSPACE
                found.append(_Change(place, view, wanted, place == result, space))
        return tuple(found)

    def changed(self, problem: Geometry) -> ConvGeometry:
        """``problem`` with its tensors as ``inner`` reads them."""
        assert isinstance(problem, ConvGeometry)
        x, w, y = (self.copies.wanted(view) for view in (problem.x, problem.w, problem.y))
        return replace(problem, x=x, y=y, w=w)

    def _round_up(self, nbytes: int) -> int:
        return -(-nbytes // self.copies.alignment) * self.copies.alignment


def view_bytes(view: TensorView) -> int:
    """From the first to the last element."""
    return span_bytes(view.dtype, view.shape, view.strides)


def channels_last(view: TensorView, multiple: int = 1) -> TensorView:
    """A copy of the tensor as ``N, D, H, W, C``; channels of a pixel are padded to a multiple of ``multiple``."""
    _, c, d, h, w = view.shape
    pitch = -(-c // multiple) * multiple
    strides = (d * h * w * pitch, 1, h * w * pitch, w * pitch, pitch)
    return replace(view, strides=strides, vector=1, owns_gaps=pitch > c)


def added(sources: list[Source], source: Source, launch: Launch) -> Launch:
    """``launch`` with its source among ``sources``, once."""
    if source not in sources:
        sources.append(source)
    return replace(launch, artifact=sources.index(source))


def rebased(step: Step, moved: dict[int, Pointer]) -> Step:
    """``step`` with the moved slots' pointers into the workspace."""

    def place(value: Parameter) -> Parameter:
        if isinstance(value, TensorMap):
            pointer = place(value.pointer)
            assert isinstance(pointer, Pointer)
            return replace(value, pointer=pointer)
        if not isinstance(value, Pointer) or value.space != Space.SLOT or value.index not in moved:
            return value
        base = moved[value.index]
        return Pointer(base.space, base.index, base.offset + value.offset)

    if isinstance(step, Memset):
        pointer = place(step.pointer)
        assert isinstance(pointer, Pointer)
        return replace(step, pointer=pointer)
    return replace(step, parameters=tuple(place(value) for value in step.parameters))
