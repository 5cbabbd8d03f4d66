"""Dense problems on every CUDA arch since sm_80: convolution in all directions and GEMM from one template.

bf16, fp16, int8, fp8 and fp32 by way of TF32 run on tensor cores (``mma.sync``), fp32 else as single multiply-adds. Any
strides are read in place; loads are as wide as the strides allow.

fp8 is widened to fp16 in registers: the tensor cores' own fp8 products are summed with some 13 bits of fraction
(measured by Zhang et al., SageAttention2, 2024), which is no fp32 sum.
"""

from __future__ import annotations

from tilesmith.plan.records import Draft
from tilesmith.problems.features import GEMM, USUAL, WINDOW
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import BYTES, DenseForm, dense_form
from tilesmith.solvers.cuda.mma.cost import predicted_seconds
from tilesmith.solvers.cuda.mma.source import mma_draft
from tilesmith.solvers.cuda.mma.space import AXES, mma_default, mma_fits, mma_space
from tilesmith.solvers.cuda.mma.tile import MmaTile
from tilesmith.solvers.solver import Accepted, Config, Geometry, Rejected, SearchSpace, Unranked, remembered
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget


class MmaDenseSolver(Unranked):
    """Every layout without vectors, any channel counts, groups, strides, dilations, epilogues; fp32 sums."""

    revision = 4
    features = USUAL | GEMM | WINDOW | {"fwd", "bwd", "wrw", "groups", "acc=int32"}
    axes = AXES

    def __init__(self, exact: bool) -> None:
        self.exact = exact
        self.name = "ffma_dense" if exact else "mma_dense"

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        form = dense_form(problem, self.exact)
        if isinstance(form, Rejected):
            return form
        if form.exact != self.exact:
            return Rejected(reasons.DTYPE, form.dtype)
        if not target.has_fp8 and any(name in BYTES for name in (form.dtype, form.b_dtype, form.out_dtype)):
            return Rejected(reasons.TARGET, "fp8")
        if not target.has_cp_async or (form.dtype == "bf16" and not target.has_bf16):
            return Rejected(reasons.TARGET, "cp.async")
        return Accepted() if mma_fits(form, target) else Rejected(reasons.SIZE)

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        return mma_space(self._form(problem), target)

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return mma_default(self._form(problem), target)

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return predicted_seconds(self.tile(problem, config, target), fit_of(target).mma)

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> MmaTile:
        """What ``config`` means for ``problem``: what its time is estimated from."""
        return MmaTile(self._form(problem), config, target)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return mma_draft(self.tile(problem, config, target))

    def _form(self, problem: Geometry) -> DenseForm:
        form = dense_form(problem, self.exact)
        if isinstance(form, Rejected):
            raise ValueError(f"the mma solver does not cover this problem: {form}")
        return form
