"""Terms of the models that rank configs, from the facts of a target and the constants of a card (``targets/fits``)."""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING

from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import TensorView
from tilesmith.targets.target import CpuTarget

if TYPE_CHECKING:
    from tilesmith.targets.fits.cpu_fit import CoreFit, MemoryFit, WrwFit


def view_bytes(view: TensorView) -> int:
    """Bytes of the elements, without gaps."""
    return prod(view.shape) * dtype(view.dtype).nbytes


def speedup(items: int, target: CpuTarget) -> float:
    """Threads that work, on average: the last turns leave some idle, and so does a thread that is held up."""
    threads = target.cores
    if threads == 1:
        return 1.0
    turns = -(-items // max(1, items // (8 * threads)))
    busy = turns / -(-turns // threads)
    return max(1.0, busy / (1.0 + 0.1 * threads / turns))


def step_cycles(products: float, loads: float, others: float, latency: float, target: CpuTarget, fit: CoreFit) -> float:
    """One step of a reduction: the slowest of its arithmetic, its latency, its loads, and all instructions."""
    issued = products + loads + others
    return max(products / target.fma_per_cycle, latency, loads / fit.loads, issued / fit.issued)


def level(nbytes: float, target: CpuTarget, fit: MemoryFit) -> float:
    """Bytes a cycle from where ``nbytes`` stay."""
    if nbytes <= 0.6 * target.l2_bytes:
        return fit.l2
    return fit.l3 if nbytes <= 0.5 * target.l3_bytes else fit.dram


def gradient_seconds(cycles: float, items: int, fold: float, target: CpuTarget, fit: WrwFit) -> float:
    """Seconds of ``items`` equal items of ``cycles`` cycles together, and of the kernel that adds their sums."""
    shared = cycles * ceil(items / target.cores) / items / fit.clock
    return shared + fold / target.cores / fit.clock
