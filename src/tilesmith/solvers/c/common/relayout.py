"""Layout changes on CPUs around a solver that reads channels-last activations."""

from __future__ import annotations

import math

from tilesmith.codegen.c.layout import layout_copy
from tilesmith.plan.records import Launch, Pointer, Source
from tilesmith.problems.geometry import TensorView
from tilesmith.solvers.relayout import channels_last, view_bytes
from tilesmith.targets.target import CpuTarget

# A copy reads and writes; one core moves about this much (measured: 40 to 60 GB/s in the caches, 15 outside).
_BYTES_PER_SECOND = 30e9
_LAUNCH_SECONDS = 2e-6


class CpuCopies:
    """Activations become channels-last. Filters without vectors stay as they are: packing reads any strides."""

    alignment = 64
    most_bytes = math.inf

    def wanted(self, view: TensorView) -> TensorView:
        will_do = view.vector == 1 if view.name == "w" else view.channels_last
        return view if will_do else channels_last(view)

    def copy(
        self, source: TensorView, result: TensorView, read: Pointer, write: Pointer, target: CpuTarget
    ) -> tuple[Source, Launch]:
        return layout_copy(source, result, read, write, target)

    def seconds(self, view: TensorView, wanted: TensorView, target: CpuTarget) -> float:
        return 2 * view_bytes(wanted) / _BYTES_PER_SECOND / target.cores + _LAUNCH_SECONDS


CPU_COPIES = CpuCopies()
