"""GEMM by wgmma on copies of operands that bulk tensor copies, or the instruction, cannot read as they lie.

Rows that are no multiples of 16 bytes are copied to rows that begin at sectors. wgmma multiplies bytes along k alone,
and at least one operand of TF32: where k is not contiguous, the operand is transposed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from tilesmith.codegen.cuda.layout import layout_copy
from tilesmith.codegen.cuda.pad_rows import MOST_BYTES, Rows, pad_rows
from tilesmith.plan.records import Draft, Launch, Pointer, Source, Space, Step
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import GemmGeometry, MatrixView, TensorView
from tilesmith.solvers import reasons
from tilesmith.solvers.contract import Solver
from tilesmith.solvers.cuda.common.dense import slot
from tilesmith.solvers.cuda.common.form import aligned, steps_along
from tilesmith.solvers.cuda.wgmma.solver import GemmSm90Solver
from tilesmith.solvers.delegating import Delegating
from tilesmith.solvers.relayout import added, rebased
from tilesmith.solvers.solver import Accepted, Config, Geometry, Rejected, remembered
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

_ALIGNMENT = 256
_SECTOR = 32  # bytes: a row that begins inside a sector takes the copy engine twice as long
# What `mma_thin` reads in place, in one pass over memory; copies were not measured beside it. That of a filter alone is
# little beside the rows, but of few columns the product takes longer: 33 of 96 28.6 us, `wgmma_thin` 18.1 (H200).
_FEW_COLUMNS, _SHORT = 128, 256
_STORED_AT_ONCE = 64


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
        sector = _SECTOR // dtype(self.dtype).nbytes
        return -(-self._shape[1] // sector) * sector

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
        return Rows(read, write, self.layers, rows, length * nbytes, step, self.strides[0] * nbytes, _SECTOR)

    def launch(self, read: Pointer, write: Pointer, target: CudaTarget) -> tuple[Source, Launch]:
        """Transposes the operand."""
        shape = (self.layers, self.k, 1, 1, self.lines)
        views = [
            TensorView("x", self.dtype, shape, (layer, k, 0, 0, line))
            for layer, line, k in (self.strides, self.copied_strides)
        ]
        return layout_copy(views[0], views[1], read, write, target)

    def seconds(self, target: CudaTarget) -> float:
        # Transposed bytes, then transposed words or rows of 16 bytes; rows that begin anywhere lose a third.
        one, wide, shifted = (fit_of(target).copy.bandwidth[i] for i in (-1, 0, 1))
        share = (one if dtype(self.dtype).nbytes == 1 else wide) if self.turned else shifted
        return 2 * self.nbytes / (share * target.bytes_per_s)


def _operand(index: int, view: MatrixView) -> _Copy:
    """Operand ``index`` with a copy that lies in its own order."""
    lines, k = (view.rows, view.columns) if index == 0 else (view.columns, view.rows)
    layer, line, along = view.strides if index == 0 else (view.strides[0], view.strides[2], view.strides[1])
    layers = 1 if layer == 0 else view.batch
    by_k = along == 1 or (k == 1 and line != 1) or (lines > 1 and line != 1)
    return _Copy(index, view.dtype, layers, lines, k, (layer if layers > 1 else 0, line, along), by_k)


def _is_read(operand: _Copy) -> bool:
    """Whether a tensor map reads the operand as it lies, in its own order."""
    nbytes = dtype(operand.dtype).nbytes
    layer, line, along = operand.strides
    inner, step, outer, other = (
        (operand.k, along, operand.lines, line) if operand.by_k else (operand.lines, line, operand.k, along)
    )
    between = steps_along((outer, operand.layers), (other, layer), nbytes)
    return (step == 1 or inner == 1) and aligned(*between, nbytes=nbytes)


@lru_cache(maxsize=256)
def copies_of(problem: GemmGeometry) -> tuple[_Copy, ...]:
    """The copies that the operands need: both of bytes by k, one of TF32, none of 16 bits."""
    operands = [_operand(0, problem.a), _operand(1, problem.b)]
    nbytes = dtype(problem.a.dtype).nbytes
    turned = [operand for operand in operands if not operand.by_k]
    if nbytes == 4:
        turned = [min(turned, key=lambda operand: operand.nbytes)] if len(turned) == 2 else []
    elif nbytes == 2:
        turned = []
    found = [replace(operand, by_k=True) if operand in turned else operand for operand in operands]
    return tuple(operand for operand in found if not _is_read(operand))


class CopiedGemmSolver(Delegating[CudaTarget]):
    """Computes products as ``inner`` does, of operands with any strides, which it copies in each call."""

    revision = 1

    def __init__(self, inner: Solver[CudaTarget] | None = None) -> None:
        """``inner`` reads operands whose rows are multiples of 16 bytes. None: ``wgmma_gemm``."""
        self.inner = inner or GemmSm90Solver()
        self.name = f"{self.inner.name}_copied"
        self.features = self.inner.features

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not isinstance(problem, GemmGeometry):
            return Rejected(reasons.OP)
        copies = copies_of(problem)
        if not copies:
            return Rejected(reasons.UNCHANGED)
        if (longest := max(copy.nbytes for copy in copies)) > MOST_BYTES:
            return Rejected(reasons.SIZE, f"a copy of {longest} bytes")
        short = dtype(problem.a.dtype).nbytes == 2 and not problem.groups and problem.k <= _SHORT
        alone = problem.m > problem.k and all(copy.slot == 1 for copy in copies)
        if short and problem.n <= (_STORED_AT_ONCE if alone else _FEW_COLUMNS):
            return Rejected(reasons.SMALL, f"{problem.n} columns, sums of {problem.k}")
        return self.inner.applicable(self.changed(problem), target)

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        assert isinstance(problem, GemmGeometry)
        copies = copies_of(problem)
        moved = sum(copy.seconds(target) for copy in copies)
        return self.inner.predict(self.changed(problem), config, target) + moved + fit_of(target).copy.start

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        inner = self.inner.draft(self.changed(problem), config, target)
        sources, used = list(inner.sources), _round_up(inner.workspace_bytes)
        moved: dict[int, Pointer] = {}
        before: list[Step] = []
        padded = []
        assert isinstance(problem, GemmGeometry)
        for copy in copies_of(problem):
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
        for copy in copies_of(problem):
            layer, line, k = copy.copied_strides
            if copy.slot == 0:
                problem = replace(problem, a=replace(problem.a, strides=(layer, line, k)))
            else:
                problem = replace(problem, b=replace(problem.b, strides=(layer, k, line)))
        return problem


def _round_up(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
