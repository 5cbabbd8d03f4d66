"""The plain CUDA reference: one kernel a direction, tile shape and set of dtypes that computes every valid problem.

All floating-point sums are made in double, also where ``acc_dtype`` is fp32, so that the reference is exact to the last
rounding and can be the oracle on the device. int8 sums wrap modulo 2^32, as int32 does.
"""

from __future__ import annotations

from tilesmith.plan.records import Draft
from tilesmith.solvers.cuda.reference.draft import reference_kernel
from tilesmith.solvers.cuda.reference.tile import NARROW, extent
from tilesmith.solvers.solver import Config, Geometry, Plain
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget


class CudaReferenceSolver(Plain):
    """Covers every problem; last in the table."""

    name = "cuda_reference"

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        """Tile after tile on each SM: a share of the fp64 rate at most, and what was measured for a tile."""
        fit = fit_of(target).reference
        tile, tiles, depth = extent(problem)
        at_rate = 2.0 * tile.m * tile.n * depth * target.cores / (fit.fp64 * target.fp64_flops)
        alone, each = fit.narrow_tile if tile == NARROW else fit.square_tile
        return max(at_rate, (alone + each * depth) / target.clock_hz) * max(1.0, tiles / target.cores) + fit.start

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        source, launch = reference_kernel(problem, target)
        return Draft((source,), (launch,))
