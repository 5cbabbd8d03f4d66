"""Parts of configs that families share: blocks of a dense problem; warpgroups of sm_90a and their registers."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from tilesmith.solvers.cuda.common.dense import DenseForm
from tilesmith.solvers.solver import Config, Configured, cached_property, steady
from tilesmith.targets.target import CudaTarget

MAX_BOX = 256  # elements of an axis that a tensor map can load
# Registers a thread of the multiplying and of the copying warpgroups, and the most sums that they hold, by the number
# of the former and of blocks on an SM: 512 registers for all its warpgroups' threads.
_REGISTERS = {
    (1, 1): (((240, 128), 128),),
    (2, 1): (((216, 72), 128), ((232, 40), 160)),
    (3, 1): (((152, 56), 96),),
    (1, 2): (((192, 64), 96),),  # NOTE: ptxas refuses 64x216 here, though setmaxnreg grants the registers
    (2, 2): (((88, 64), 40),),
}


def most_sums(warpgroups: int, per_sm: int, promoted: bool = False) -> int:
    """The most sums that a thread can hold; 0 if so many warpgroups do not fit.

    ``promoted``: they are added while no product is under way, which takes no registers but theirs.
    """
    if promoted and (warpgroups, per_sm) == (2, 1):
        return 192
    # NOTE: from 160 sums on, anything extra serialises wgmma; 192 lost wherever they were tried.
    return _REGISTERS[warpgroups, per_sm][-1][1] if (warpgroups, per_sm) in _REGISTERS else 0


@dataclass(frozen=True)
class BlockTile(Configured):
    """``form`` computed as ``config`` says, in blocks; see the axes in ``solver``."""

    form: DenseForm
    config: Config
    target: CudaTarget

    @steady
    def block_m(self) -> int:
        return self.value["block_m"]

    @steady
    def block_n(self) -> int:
        return self.value["block_n"]

    @steady
    def block_k(self) -> int:
        return self.value["block_k"]


class WarpgroupTile(Configured):
    """A config as numbers: ``warpgroups`` multiply, and one more copies."""

    config: Config
    target: CudaTarget

    @steady
    def warpgroups(self) -> int:
        return self.value["warpgroups"]

    @steady
    def threads(self) -> int:
        return (self.warpgroups + 1) * 128

    @steady
    def pingpong(self) -> bool:
        """Whether each warpgroup has a tile of its own."""
        return bool(self.value["pingpong"])

    @steady
    def block_k(self) -> int:
        return self.value["block_k"]

    @property
    @abstractmethod
    def sums(self) -> int:
        """Registers of sums a thread."""

    @cached_property
    def registers(self) -> tuple[int, int]:
        """Registers a thread of the multiplying and of the copying warpgroups."""
        choices = _REGISTERS[self.warpgroups, self.value.get("blocks_per_sm", 1)]
        return next((pair for pair, most in choices if self.sums <= most), choices[-1][0])
