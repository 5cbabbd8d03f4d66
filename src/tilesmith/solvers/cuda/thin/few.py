"""The numbers that a config gives for rows of very few elements, whose products need no tensor cores."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, hypot
from typing import TYPE_CHECKING

from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.cuda.thin.form import ThinForm
from tilesmith.solvers.solver import Config, Configured, cached_property, steady
from tilesmith.targets.target import CudaTarget

if TYPE_CHECKING:
    from tilesmith.targets.fits.fit import FewFit

PIXELS = 8  # of a thread at a time: whole pieces of 16 bytes, however many channels there are
# Channels of a side, and products of a pixel, that registers hold. With many channels on one side, eight of them a
# thread, tensor cores were faster: on an H100 3 to 64 of 16x256x256 took 57.4 us, with mma_thin 54.3; backward data of
# 64 to 3 took 57.8, with mma_thin 54.2.
_MAX_CHANNELS, _MAX_FILTER = 8, 32


def takes(form: ThinForm) -> bool:
    """Whether a thread holds the filter, and its pixels, in registers."""
    widest = max(form.first, form.second)
    return form.kind == "rows" and widest <= _MAX_CHANNELS and form.first * form.second <= _MAX_FILTER


@dataclass(frozen=True)
class FewTile(Configured):
    """``form``, of rows, computed as ``config`` says; see the axes in ``solver``."""

    form: ThinForm
    config: Config
    target: CudaTarget
    varied = frozenset(("blocks_per_sm",))

    @property
    def threads(self) -> int:
        return self.value["threads"]

    @steady
    def groups(self) -> int:
        return -(-self.form.length // PIXELS)

    @cached_property
    def blocks(self) -> int:
        return min(self.target.cores * self.value["blocks_per_sm"], -(-self.groups // self.threads))

    @cached_property
    def fits(self) -> bool:
        """More blocks than there is work for are the same kernel."""
        each = self.value["blocks_per_sm"]
        return each == 1 or self.target.cores * (each // 2) * self.threads < self.groups

    @steady
    def registers(self) -> int:
        """An estimate of a thread's registers, no more than a block can have."""
        form = self.form
        wanted = form.first * (form.second + 8) + (form.second if form.bias else 0) + 40
        return min(wanted, self.target.registers_per_sm // self.threads)

    def seconds(self, fit: FewFit) -> float:
        """Estimated: a stream of memory beside the instructions of the turns that the slowest blocks take."""
        form, target = self.form, self.target
        turns = ceil(self.groups / (self.blocks * self.threads))
        nbytes = dtype(form.out_dtype).nbytes
        stored = PIXELS * form.second * nbytes // 16
        turn = PIXELS * form.second * (form.first + 0.5) + PIXELS * form.first + 2 * stored + form.first + 30
        warps = self.blocks * turns * self.threads / 32
        computing = warps * turn / (4 * target.cores * fit.issue * target.clock_hz)
        # Blocks that do not run at once read the filter again.
        resident = min(target.threads_per_sm, target.registers_per_sm // self.registers) // self.threads
        waves = max(0.0, self.value["blocks_per_sm"] / max(resident, 1) - 1)
        threads = min(self.value["blocks_per_sm"], resident) * self.threads  # of an SM, at once
        read = form.length * form.first * 2 * max(1.0, fit.under_way / (threads * form.first * 16)) ** 0.5
        apart = fit.apart * (min(threads, 512) / 128) ** fit.crowded if stored > 1 else 1.0
        written = form.length * form.second * nbytes * apart
        idle = self.blocks * turns * self.threads / self.groups  # the last turn's blocks wait for the slowest
        moving = (read + written) * idle**fit.unequal / target.bytes_per_s
        return fit.start + hypot(moving, computing) + waves * fit.wave
