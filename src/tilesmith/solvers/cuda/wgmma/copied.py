"""GEMM by wgmma on copies of operands that bulk tensor copies, or the instruction, cannot read as they lie.

Rows that are no multiples of 16 bytes are copied to rows that are. wgmma multiplies bytes and TF32 along k alone: where
k is not contiguous, the operand is transposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilesmith.codegen.cuda.layout import layout_copy
from tilesmith.codegen.cuda.pad_rows import Rows, pad_rows
from tilesmith.plan.records import Draft, Launch, Pointer, Source, Space, Step
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import GemmGeometry, MatrixView, TensorView
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import slot
from tilesmith.solvers.cuda.common.form import aligned, steps_along
from tilesmith.solvers.cuda.wgmma.solver import GemmSm90Solver
from tilesmith.solvers.cuda.wgmma.space import AXES
from tilesmith.solvers.relayout import added, rebased
from tilesmith.solvers.solver import Accepted, Config, Geometry, Rejected, SearchSpace, remembered
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

_ALIGNMENT = 256


@dataclass(frozen=True)
class _Copy:
    """An operand of ``layers`` times ``lines`` times ``k`` elements, by its strides, and its copy: by k or by lines."""

    slot: int
    dtype: str
    layers: int
    lines: int
    k: int
    strides: tuple[int, int, int]  # of the layers, lines and k
    by_k: bool

    @property
    def _shape(self) -> tuple[int, int]:
        """Rows of the copy, and elements of a row."""
        return (self.lines, self.k) if self.by_k else (self.k, self.lines)

    @property
    def pitch(self) -> int:
        chunk = 16 // dtype(self.dtype).nbytes
        return -(-self._shape[1] // chunk) * chunk

    @property
    def copied_strides(self) -> tuple[int, int, int]:
        layer = self._shape[0] * self.pitch if self.layers > 1 else 0
        return (layer, self.pitch, 1) if self.by_k else (layer, 1, self.pitch)

    @property
    def nbytes(self) -> int:
        return self.layers * self._shape[0] * self.pitch * dtype(self.dtype).nbytes

    @property
    def turned(self) -> bool:
        """Whether the copy transposes."""
        return self.strides[2 if self.by_k else 1] != 1

    def rows(self, read: Pointer, write: Pointer) -> Rows:
        nbytes = dtype(self.dtype).nbytes
        rows, length = self._shape
        step = self.strides[1 if self.by_k else 2] * nbytes
        return Rows(read, write, self.layers, rows, length * nbytes, step, self.strides[0] * nbytes)

    def launch(self, read: Pointer, write: Pointer, target: CudaTarget) -> tuple[Source, Launch]:
        """Transposes the operand."""
        shape = (self.layers, self.k, 1, 1, self.lines)
        views = [
            TensorView("x", self.dtype, shape, (layer, k, 0, 0, line))
            for layer, line, k in (self.strides, self.copied_strides)
        ]
        return layout_copy(views[0], views[1], read, write, target)

    def seconds(self, target: CudaTarget) -> float:
        share = fit_of(target).copy.bandwidth[-1 if self.turned and dtype(self.dtype).nbytes == 1 else 0]
        return 2 * self.nbytes / (share * target.bytes_per_s)


def _copy_of(index: int, view: MatrixView) -> _Copy | None:
    """The copy that operand ``index`` needs; None if it is read as it lies."""
    nbytes = dtype(view.dtype).nbytes
    lines, k = (view.rows, view.columns) if index == 0 else (view.columns, view.rows)
    layer, line, along = view.strides if index == 0 else (view.strides[0], view.strides[2], view.strides[1])
    layers = 1 if layer == 0 else view.batch
    for inner, step, outer, other in ((k, along, lines, line), (lines, line, k, along)):
        between = steps_along((outer, layers), (other, layer), nbytes)
        if (step == 1 or inner == 1) and aligned(*between, nbytes=nbytes):
            return None
        if nbytes != 2:
            break
    by_k = nbytes != 2 or along == 1 or line != 1
    return _Copy(index, view.dtype, layers, lines, k, (layer if layers > 1 else 0, line, along), by_k)


class CopiedGemmSolver:
    """What ``wgmma_gemm`` computes, of operands with any strides. The copies are made in each call."""

    name = "wgmma_gemm_copied"
    inner = GemmSm90Solver()
    features = inner.features
    axes = AXES
    revision = 1

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not isinstance(problem, GemmGeometry):
            return Rejected(reasons.OP)
        if not self._copies(problem):
            return Rejected(reasons.UNCHANGED)
        return self.inner.applicable(self.changed(problem), target)

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        return self.inner.search_space(self.changed(problem), target)

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return self.inner.default_config(self.changed(problem), target)

    def ranked(self, problem: Geometry, target: CudaTarget) -> Sequence[Config]:
        return self.inner.ranked(self.changed(problem), target)

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        copies = self._copies(problem)
        start = 1e-6 * (1 + sum(copy.turned for copy in copies))
        moved = sum(copy.seconds(target) for copy in copies)
        return self.inner.predict(self.changed(problem), config, target) + moved + start

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        inner = self.inner.draft(self.changed(problem), config, target)
        sources, used = list(inner.sources), _round_up(inner.workspace_bytes)
        moved: dict[int, Pointer] = {}
        before: list[Step] = []
        padded = []
        for copy in self._copies(problem):
            moved[copy.slot] = to = Pointer(Space.WORKSPACE, 0, used)
            used += _round_up(copy.nbytes)
            if copy.turned:
                before.append(added(sources, *copy.launch(slot(copy.slot), to, target)))
            else:
                padded.append(copy.rows(slot(copy.slot), to))
        if padded:
            made = pad_rows(padded[0], padded[1] if len(padded) > 1 else None, target)
            before.append(added(sources, *made))
        run = tuple(rebased(step, moved) for step in inner.run)
        return Draft(tuple(sources), (*before, *run), workspace_bytes=used)

    def changed(self, problem: Geometry) -> GemmGeometry:
        """``problem`` with its operands as ``inner`` reads them."""
        assert isinstance(problem, GemmGeometry)
        for copy in self._copies(problem):
            layer, line, k = copy.copied_strides
            if copy.slot == 0:
                problem = replace(problem, a=replace(problem.a, strides=(layer, line, k)))
            else:
                problem = replace(problem, b=replace(problem.b, strides=(layer, k, line)))
        return problem

    def _copies(self, problem: Geometry) -> tuple[_Copy, ...]:
        assert isinstance(problem, GemmGeometry)
        found = (_copy_of(index, view) for index, view in enumerate((problem.a, problem.b)))
        return tuple(copy for copy in found if copy is not None)


def _round_up(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
