"""Layout changes on GPUs around a solver that reads channels-last tensors whose pixels are multiples of 16 bytes."""

from __future__ import annotations

from tilesmith.codegen.cuda.layout import copied_unit, layout_copy
from tilesmith.codegen.cuda.pad_rows import MOST_BYTES
from tilesmith.plan.records import Launch, Pointer, Source
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import TensorView
from tilesmith.solvers.relayout import channels_last, view_bytes
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

_UNITS = (16, 8, 4, 2, 1)  # bytes that a copy moves as one; a transposition moves them as 16
_CHUNK = 16  # bytes: what the bulk tensor copy engine counts in, and the widest load


class CudaCopies:
    """Every tensor becomes channels-last, its pixels (a filter's taps) padded to multiples of 16 bytes."""

    alignment = 256
    most_bytes = MOST_BYTES

    def wanted(self, view: TensorView) -> TensorView:
        chunk = _CHUNK // min(_CHUNK, dtype(view.dtype).nbytes)
        steps = [stride for axis, stride in enumerate(view.strides) if axis != 1 and view.shape[axis] > 1]
        if view.channels_last and not any(step % chunk for step in steps):
            return view
        return channels_last(view, chunk)

    def copy(
        self, source: TensorView, result: TensorView, read: Pointer, write: Pointer, target: CudaTarget
    ) -> tuple[Source, Launch]:
        return layout_copy(source, result, read, write, target)

    def seconds(self, view: TensorView, wanted: TensorView, target: CudaTarget) -> float:
        fit = fit_of(target).copy
        unit = 1 if dtype(view.dtype).nbytes == 1 else copied_unit(view, wanted)
        share = fit.bandwidth[_UNITS.index(unit)]
        return 2 * view_bytes(wanted) / (share * target.bytes_per_s) + fit.start


CUDA_COPIES = CudaCopies()
