"""The numbers that a config gives for rows of very few elements, whose products need no tensor cores."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, hypot

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.thin.form import ThinForm
from tilesmith.solvers.solver import Config, Configured, cached_property
from tilesmith.targets.target import CudaTarget

PIXELS = 8  # of a thread at a time: whole pieces of 16 bytes, however many channels there are
_MAX_READ, _MAX_FILTER = 8, 32
_MAX_READ_BY_COLUMNS = 4  # of which a thread holds 8 columns
# Reasoned, not measured: what the launch and the first rows take, and the share of the memory's bandwidth and of issue
# slots that a kernel of independent loads and stores reaches.
_START, _BANDWIDTH, _ISSUED = 2.8e-6, 0.86, 0.6


def takes(form: ThinForm) -> bool:
    """Whether a thread holds what it needs of the filter, and of the pixels, in registers."""
    if form.kind != "rows":
        return False
    if form.second % 8 == 0:
        return form.first <= _MAX_READ_BY_COLUMNS
    return form.first <= _MAX_READ and form.first * form.second <= _MAX_FILTER


@dataclass(frozen=True)
class FewTile(Configured):
    """``form``, of rows, computed as ``config`` says; see the axes in ``solver``."""

    form: ThinForm
    config: Config
    target: CudaTarget

    @property
    def threads(self) -> int:
        return self.value["threads"]

    @property
    def by_columns(self) -> bool:
        """Whether a thread has 8 of a pixel's results, and not all."""
        return self.form.second % 8 == 0

    @property
    def columns(self) -> int:
        return 8 if self.by_columns else self.form.second

    @cached_property
    def slots(self) -> int:
        """Threads of a block that have pixels of their own."""
        return self.threads // (self.form.second // 8 if self.by_columns else 1)

    @cached_property
    def groups(self) -> int:
        return -(-self.form.length // PIXELS)

    @cached_property
    def blocks(self) -> int:
        return min(self.target.cores * self.value["blocks_per_sm"], -(-self.groups // self.slots))

    @cached_property
    def fits(self) -> bool:
        """More blocks than there is work for are the same kernel."""
        each = self.value["blocks_per_sm"]
        return each == 1 or self.target.cores * (each // 2) * self.slots < self.groups

    @cached_property
    def registers(self) -> int:
        """An estimate of a thread's registers."""
        form = self.form
        return form.first * (self.columns + 8) + (self.columns if form.bias else 0) + 40

    @cached_property
    def seconds(self) -> float:
        """Estimated: a stream of memory beside the instructions of the turns that the slowest blocks take."""
        form, target = self.form, self.target
        turns = ceil(self.groups / (self.blocks * self.slots))
        stored = PIXELS * self.columns * dtype(form.out_dtype).nbytes // 16
        turn = PIXELS * self.columns * (form.first + 0.5) + PIXELS * form.first + 2 * stored + form.first + 30
        warps = self.blocks * turns * self.threads / 32
        computing = warps * turn / (4 * target.cores * _ISSUED * target.clock_hz)
        # Blocks that do not run at once read the filter again.
        resident = min(target.threads_per_sm, target.registers_per_sm // self.registers) // self.threads
        waves = max(0.0, self.value["blocks_per_sm"] / max(resident, 1) - 1)
        moving = form.moved_bytes / (_BANDWIDTH * target.bytes_per_s)
        idle = self.blocks * turns * self.slots / self.groups  # the last turn's blocks wait for the slowest
        few = min(1.0, min(self.value["blocks_per_sm"], resident) * self.threads * form.first * 16 / 32768)
        return _START + hypot(moving * idle**0.5 / few**0.25, computing) + waves * 2e-8
