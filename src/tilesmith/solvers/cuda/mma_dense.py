"""Dense problems on every CUDA arch since sm_80: convolution in all directions and GEMM from one template.

bf16 and fp16 run on tensor cores (``mma.sync``), fp32 as single multiply-adds. Any strides are read in place; loads are
as wide as the strides allow.
"""

from __future__ import annotations

from functools import lru_cache

from tilesmith.plan.records import Draft
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.mma_cost import predicted_seconds
from tilesmith.solvers.cuda.mma_form import MmaForm, mma_form
from tilesmith.solvers.cuda.mma_source import mma_draft
from tilesmith.solvers.cuda.mma_space import mma_default, mma_space
from tilesmith.solvers.cuda.mma_tile import MmaTile
from tilesmith.solvers.solver import Accepted, Config, Geometry, Rejected, SearchSpace
from tilesmith.targets.target import CudaTarget


class MmaDenseSolver:
    """Every layout without vectors, any channel counts, groups, strides, dilations, epilogues; fp32 sums."""

    revision = 1

    def __init__(self, exact: bool) -> None:
        self.exact = exact
        self.name = "ffma_dense" if exact else "mma_dense"

    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        form = mma_form(problem)
        if isinstance(form, Rejected):
            return form
        if (form.dtype == "fp32") != self.exact:
            return Rejected(reasons.DTYPE, form.dtype)
        if not target.has_cp_async or (form.dtype == "bf16" and not target.has_bf16):
            return Rejected(reasons.TARGET, "cp.async")
        try:
            _default(form, target)
        except ValueError:
            return Rejected(reasons.SIZE)
        return Accepted()

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        return mma_space(_form(problem), target)

    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return _default(_form(problem), target)

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return predicted_seconds(MmaTile(_form(problem), config, target))

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return mma_draft(MmaTile(_form(problem), config, target))


@lru_cache(maxsize=1024)
def _default(form: MmaForm, target: CudaTarget) -> Config:
    return mma_default(form, target)


def _form(problem: Geometry) -> MmaForm:
    form = mma_form(problem)
    if isinstance(form, Rejected):
        raise ValueError(f"the mma solver does not cover this problem: {form}")
    return form
