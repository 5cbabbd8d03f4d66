"""Applies a config of the channel sums to a problem: threads, blocks, shares."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers.cuda.channel_sums.form import SumsForm, sums_form
from tilesmith.solvers.solver import Config, Configured, cached_property
from tilesmith.targets.target import CudaTarget

_ROW_BYTES = 512  # of neighbouring columns that a block reads at once, at most
_LAST_THREADS = 1024  # of a block of the second kernel, at most


@dataclass(frozen=True)
class SumsTile(Configured):
    """``g`` computed as ``config`` says; see the axes in ``solver``."""

    g: ConvGeometry
    config: Config
    target: CudaTarget

    @cached_property
    def form(self) -> SumsForm:
        return sums_form(self.g)

    @cached_property
    def lanes(self) -> int:
        """Threads side by side: they read neighbouring columns, or the items of one channel."""
        f, threads = self.form, self.value["threads"]
        if f.columns:
            most = max(32, _ROW_BYTES // (f.vector * dtype(f.dtype).nbytes))
            return -(-f.chunks // -(-f.chunks // min(most, threads)))
        lanes = 32
        while lanes * 2 <= threads and lanes * self.value["loads_ahead"] < f.items:
            lanes *= 2
        return lanes

    @property
    def slots(self) -> int:
        """Threads beside those: they read other rows of the same columns, or other channels."""
        most = self.value["threads"] // self.lanes
        return max(1, min(most, self.form.items if self.form.columns else self.form.channels))

    @property
    def threads(self) -> int:
        return self.lanes * self.slots

    @property
    def step(self) -> int:
        """Items of a sum that a block reads at once."""
        return self.slots if self.form.columns else self.lanes

    @property
    def blocks_wide(self) -> int:
        """Blocks that read the same items of other columns or channels."""
        return -(-self.form.chunks // (self.lanes if self.form.columns else self.slots))

    @cached_property
    def each(self) -> int:
        """Items of a share."""
        each = -(-self.form.items // self.value["split_n"])
        return -(-each // self.step) * self.step

    @property
    def splits(self) -> int:
        """Shares that have items."""
        return -(-self.form.items // self.each)

    @property
    def is_whole(self) -> bool:
        """Whether the first kernel stores the results."""
        return self.splits == 1 and self.form.fold == 1

    @property
    def parts(self) -> int:
        """Partial sums of a channel."""
        return self.splits * self.form.fold

    @property
    def registers(self) -> int:
        """Of a thread, about as the compiler gives them out."""
        loads, f = self.value["loads_ahead"], self.form
        if f.row:
            return {2: 56, 4: 64, 8: 104}[loads]
        if f.columns:
            return 32 if len(f.axes) == 1 and dtype(f.dtype).nbytes == 2 else 40
        return {2: 32, 4: 40, 8: 48}[loads]

    @property
    def resident(self) -> int:
        """Blocks that an SM holds."""
        threads = min(self.target.threads_per_sm, self.target.registers_per_sm // self.registers)
        return max(1, threads // (-(-self.threads // 32) * 32))

    @property
    def last_lanes(self) -> int:
        """Channels of a block of the second kernel: a sector of 32 bytes, or a line where the parts are few."""
        return min(self.form.channels, 32 if self.parts <= 32 else 8)

    @property
    def last_shares(self) -> int:
        """Threads of it that share the parts of a channel."""
        shares = 4
        while shares * 2 <= _LAST_THREADS // self.last_lanes and shares * 2 < self.parts:
            shares *= 2
        return shares

    @property
    def workspace_bytes(self) -> int:
        return 0 if self.is_whole else self.splits * self.form.sums * 4
