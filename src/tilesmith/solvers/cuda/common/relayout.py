"""Layout changes on GPUs around a solver that reads channels-last tensors whose pixels are multiples of 16 bytes."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.codegen.cuda.layout import copied_unit, layout_copy
from tilesmith.plan.records import Launch, Pointer, Source
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import TensorView
from tilesmith.problems.linear import Axis, merge_axes
from tilesmith.solvers.cuda.common.form import aligned, steps_along
from tilesmith.solvers.relayout import channels_last, view_bytes
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

_UNITS = (16, 8, 4, 2, 1)  # bytes that a copy moves as one; a transposition moves them as 16
_SECTOR = 32  # bytes
_CHUNK = 16  # bytes: what the bulk tensor copy engine counts in, and the widest load


class CudaCopies:
    """Every tensor becomes channels-last, its pixels (a filter's taps) padded to multiples of 16 bytes."""

    suffix, of_results, alignment = "nhwc", True, 256

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


class PlaneCopies(CudaCopies):
    """Channels of images that lie channel by channel are padded to whole sectors; results and filters stay."""

    suffix, of_results = "padded", False

    def wanted(self, view: TensorView) -> TensorView:
        n, c, d, h, w = view.shape
        steps = steps_along((c, n), (view.strides[1], view.strides[0]))
        if view.name == "w" or not has_planes(view) or aligned(*steps):
            return view
        sector = _SECTOR // dtype(view.dtype).nbytes
        pitch = -(-d * h * w // sector) * sector
        return replace(view, strides=(c * pitch, pitch, h * w, w, 1))


def has_planes(view: TensorView) -> bool:
    """Whether the pixels of a channel are contiguous."""
    merged = merge_axes([Axis(size, step, step) for size, step in zip(view.shape[2:], view.strides[2:], strict=True)])
    return view.vector == 1 and len(merged) <= 1 and all(axis.first == 1 for axis in merged)


CUDA_COPIES = CudaCopies()
PLANE_COPIES = PlaneCopies()
