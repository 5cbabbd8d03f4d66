"""GEMMs and 1x1 convolutions with few channels on both sides, whose rows lie densely: bound by memory, read once.

Rows of any width are read: no stride needs to be a multiple of 16 bytes.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import ceil

from tilesmith.plan.records import Draft
from tilesmith.problems.geometry import GemmGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.mma_thin_source import thin_draft
from tilesmith.solvers.cuda.mma_thin_tile import ThinForm, ThinTile, thin_form
from tilesmith.solvers.solver import Accepted, Config, Geometry, Rejected, SearchSpace
from tilesmith.targets.target import CudaTarget

_AXES = {"warps": (2, 4, 8, 16), "rows": (16, 32, 64), "stages": (2, 3, 4, 6), "blocks": (1, 2, 3, 4, 6)}
_START, _TOTAL = 3.6e-6, 2.2e-6  # seconds of a launch with its first rows, and of the sum of the blocks' sums
_LATENCY = 1.1e-6  # from asking for bytes of DRAM to their use, under load
_SHARE = 0.82  # of the memory's bandwidth
_OVERLAP = 0.2  # what the lesser of computing and moving adds to the greater
_CLOCK_SHARE = 0.9
_SLAB = 110  # cycles of a slab beside those of its rows


class MmaThinSolver:
    """Results of up to 128 columns from sums of up to 256; and sums over rows of up to 128 x 128 results.

    Axes: ``warps`` of a block, each with a ring of its own of ``stages`` times ``rows`` rows; ``blocks`` that share
    an SM.
    """

    name = "mma_thin"
    revision = 1

    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not isinstance(problem, GemmGeometry):
            return Rejected(reasons.OP)
        form = thin_form(problem)
        if isinstance(form, Rejected):
            return form
        if not target.has_cp_async or (form.dtype == "bf16" and not target.has_bf16):
            return Rejected(reasons.TARGET, "cp.async")
        return Accepted() if _ranked(form, target) else Rejected(reasons.SIZE)

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        form = _form(problem)
        return SearchSpace(_AXES, lambda config: ThinTile(form, config, target).fits)

    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return _ranked(_form(problem), target)[0]

    def ranked(self, problem: Geometry, target: CudaTarget) -> list[Config]:
        """Configs worth measuring, the untuned choice first."""
        return list(_ranked(_form(problem), target))

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return _seconds(ThinTile(_form(problem), config, target))

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return thin_draft(ThinTile(_form(problem), config, target))


def _form(problem: Geometry) -> ThinForm:
    assert isinstance(problem, GemmGeometry)
    form = thin_form(problem)
    if isinstance(form, Rejected):
        raise ValueError(f"the solver for few channels does not cover this problem: {form}")
    return form


@lru_cache(maxsize=256)
def _ranked(form: ThinForm, target: CudaTarget) -> tuple[Config, ...]:
    configs = (Config(tuple(zip(_AXES, values, strict=True))) for values in product(*_AXES.values()))
    tiles = [tile for config in configs if (tile := ThinTile(form, config, target)).fits]
    return tuple(tile.config for tile in sorted(tiles, key=_seconds))


def _seconds(t: ThinTile) -> float:
    """Estimated seconds: a stream of memory beside the work of shared memory and of tensor cores."""
    form, target = t.form, t.target
    resident = ceil(t.blocks / target.cores)
    turns = ceil(ceil(form.length / t.slab) / (t.blocks * t.rings))
    flying = t.blocks * t.rings * (t.stages - 1) * t.stage_bytes
    moving = form.moved_bytes / (_SHARE * target.bytes_per_s)
    moving = max(moving, turns * t.blocks * t.rings * t.stage_bytes / flying * _LATENCY)
    # Cycles of an SM for 16 rows: a tile's sums take the place of several warps' where they share the rows.
    if t.weights:
        loads = (t.tile[0] * 8, t.tile[1] * 4)
        reads = t.team * sum(count * t.conflicts(i, t.steps[1]) for i, count in enumerate(loads))
        products = t.tile[0] * t.tile[1] * t.team
    else:
        steps, tiles = t.products
        products = steps * tiles
        reads = steps * 10 + tiles * 8 + (0 if t.held else products * 64 // t.slab)
    work = max(reads, products * 2048 / _macs(target)) * t.slab / 16 + _SLAB
    busy = work * turns * t.rings * resident / (target.clock_hz * _CLOCK_SHARE)
    seconds = _START + max(busy, moving) + _OVERLAP * min(busy, moving)
    return seconds + (_TOTAL + t.partial_bytes / 2e12 if t.weights else 0.0)


def _macs(target: CudaTarget) -> float:
    """Multiply-adds that an SM starts in a cycle with ``mma.sync``."""
    return target.bf16_flops / 2 / (target.clock_hz * target.cores) * 0.6
