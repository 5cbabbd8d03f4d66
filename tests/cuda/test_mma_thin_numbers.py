"""The numbers of the kernels for few channels through the emulator: odd rows, tails, NaN and Inf."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_chain import H200, executable

from tilesmith.measure.accuracy import planted_copy
from tilesmith.measure.device_arrays import DeviceRechecker
from tilesmith.measure.oracle import oracle
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import rewrites
from tilesmith.problems.samples import sample_args
from tilesmith.runtime.device import device
from tilesmith.solvers.cuda.thin.solver import MmaThinSolver, WgmmaThinSolver
from tilesmith.solvers.solver import Accepted, Config

SOLVER, WIDE = MmaThinSolver(), WgmmaThinSolver()


def config(*values: int) -> Config:
    return Config(tuple(zip(("warps", "stage_rows", "stages", "blocks_per_sm"), values, strict=True)))


def conv(mode: str, c: int, k: int, **more):
    return ConvSignature((3, 7, 9, c), (k, 1, 1, c), mode=mode, shared_layout="NHWC", dtype="bf16", **more)


def gemm(m: int, n: int, k: int, dtype="bf16", **more):
    return GemmSignature(m, n, k, dtype=dtype, **more)


BIASED = Epilogue(bias=True, activation="leaky_relu")
CASES = [
    *((conv("fwd", c, k), config(4, 32, 3, 1)) for c, k in ((35, 35), (3, 17), (33, 64), (64, 7), (36, 10), (1, 1))),
    *((conv("bwd", c, k), config(4, 16, 2, 1)) for c, k in ((35, 35), (17, 66), (64, 3), (40, 48))),
    *((conv("wrw", c, k), config(4, 16, 3, 1)) for c, k in ((35, 35), (3, 17), (34, 50), (1, 1))),
    *(
        (conv("wrw", c, k), config(team, 32, 2, 1))
        for c, k, team in ((33, 127, 2), (64, 80, 2), (100, 128, 4), (127, 90, 4))
    ),
    (conv("wrw", 64, 64, kernel_dtype="fp32"), config(4, 16, 3, 1)),
    (conv("fwd", 35, 70, epilogue=BIASED), config(8, 32, 2, 1)),
    (gemm(300, 33, 130, "fp16", alpha=0.5), config(4, 32, 2, 1)),
    (gemm(250, 100, 200, trans_b=True, c_dtype="fp32"), config(4, 16, 2, 1)),
    (gemm(21, 39, 1000, "fp16", trans_a=True, alpha=2.0, epilogue=BIASED), config(8, 32, 4, 1)),
]
# Runs of 8, 4, 2 and 1 products, whole and cut short; odd rows on either side, on both, on none; blocks that have
# fewer slabs than warps.
WIDE_CASES = [
    *((conv("fwd", c, k), config(4, 16, 3, 1)) for c, k in ((127, 128), (33, 96), (100, 100), (35, 35), (1, 1))),
    *((conv("bwd", c, k), config(4, 16, 2, 1)) for c, k in ((127, 128), (33, 96), (35, 35), (36, 10), (17, 66))),
    *((conv("fwd", c, k), config(8, 32, 2, 1)) for c, k in ((37, 51), (64, 23), (34, 50), (7, 31))),
    (conv("fwd", 35, 70, epilogue=BIASED), config(4, 32, 2, 1)),
    (conv("fwd", 41, 33, epilogue=BIASED, output_dtype="fp32"), config(4, 16, 2, 1)),
    (gemm(1000, 33, 130, "fp16", alpha=0.5), config(4, 32, 2, 1)),
    (gemm(1030, 127, 255, alpha=0.5), config(4, 16, 2, 1)),
    (gemm(250, 100, 200, trans_b=True, c_dtype="fp32"), config(4, 16, 2, 1)),
    (gemm(250, 65, 31, "fp16", c_dtype="fp32"), config(12, 16, 2, 1)),
]


def named(value):
    return str(value) if isinstance(value, Config) else value.get_func_name()[:50]


@pytest.mark.parametrize(("signature", "chosen"), CASES, ids=named)
def test_numbers(signature, chosen, emulating):
    check(SOLVER, signature.canonical, chosen, emulating)


@pytest.mark.parametrize(("signature", "chosen"), WIDE_CASES, ids=named)
def test_numbers_of_warpgroups(signature, chosen, emulating):
    check(WIDE, signature.canonical, chosen, emulating)


def check(solver, signature, chosen, emulating):
    geometry = rewrites(signature)[-1].signature.geometry
    assert solver.applicable(geometry, H200) == Accepted()
    assert solver.search_space(geometry, H200).contains(chosen)
    made = executable(signature, solver.draft(geometry, chosen, H200), emulating)
    values = sample_args(signature)
    cases = [values, *((*values[:i], planted_copy(values[i], (np.nan, np.inf), i), *values[i + 1 :]) for i in (0, 1))]
    with np.errstate(all="ignore"):
        for case in cases:
            checker = DeviceRechecker(signature, case, oracle(signature, case), device(0))
            verdict = checker.check_plan(checker.plan(made), poison=True)
            assert verdict.ok, verdict.message
