"""The numbers of the portable kernels through the emulator, whose ldmatrix and mma are written from the PTX manual."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_chain import H200, executable

from tilesmith.measure.accuracy import planted_copy
from tilesmith.measure.device_arrays import DeviceRechecker
from tilesmith.measure.oracle import oracle
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import LATER, Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.samples import sample_args
from tilesmith.runtime.device import device
from tilesmith.solvers.cuda.mma.solver import MmaDenseSolver
from tilesmith.solvers.solver import Accepted, Config

NAMES = ("block_m", "block_n", "block_k", "warps_m", "warps_n", "stages", "split_k", "group_m")
FULL = Epilogue(bias=True, activation="clamp", residual=True, low=-3.0, high=2000.0)


def tile(*values: int) -> Config:
    return Config(tuple(zip(NAMES, values, strict=True)))


def gemm(dtype, ta, tb, **more):
    return GemmSignature(37, 70, 45, trans_a=ta, trans_b=tb, dtype=dtype, lda=64, ldb=80, **more)


def conv(mode, c=7, **more):
    more = {"padding": 1} | more
    return ConvSignature((2, 5, 6, c), (9, 3, 2, c), mode=mode, stride=(2, 1), shared_layout="NHWC", **more)


BEHIND = {"padding": ((0, 3), (0, 2)), "dtype": "bf16"}  # zeros behind the image alone
TF32, MIXED = {"acc_dtype": "tf32"}, {"a_dtype": "fp8e5m2", "b_dtype": "fp8e4m3", "c_dtype": "bf16"}
CASES = [
    (gemm("bf16", False, False), tile(32, 64, 16, 2, 2, 2, 1, 1)),
    (gemm("fp16", True, True, beta=0.5, alpha=2.0), tile(64, 32, 32, 2, 1, 3, 2, 1)),
    (gemm("fp32", False, True, **TF32), tile(32, 64, 16, 1, 2, 2, 1, 1)),
    (gemm("fp32", True, False, **TF32), tile(16, 16, 16, 1, 1, 2, 1, 1)),
    (gemm("int8", False, True, epilogue=FULL), tile(32, 64, 32, 2, 2, 3, 1, 1)),
    (gemm("int8", True, False, alpha=3, beta=-2), tile(32, 128, 32, 1, 2, 2, 2, 1)),
    (gemm("fp8e4m3", True, False), tile(64, 32, 64, 2, 1, 2, 1, 1)),
    (gemm("fp8e5m2", False, True, c_dtype="fp32"), tile(32, 64, 32, 1, 2, 2, 1, 1)),
    (gemm("fp8e5m2", False, False, **MIXED), tile(32, 64, 32, 1, 2, 2, 2, 1)),
    (conv("bwd", 8, dtype="int8"), tile(32, 16, 32, 1, 1, 2, 1, 1)),
    (conv("bwd", dtype="fp8e5m2", output_dtype="fp8e4m3"), tile(32, 16, 32, 1, 1, 3, 1, 1)),
    (conv("wrw", dtype="fp8e4m3", kernel_dtype="fp32"), tile(16, 64, 32, 1, 2, 3, 2, 1)),
    (conv("fwd", 8, dtype="fp32", **TF32), tile(32, 16, 16, 1, 1, 3, 1, 1)),
    (conv("bwd", 8, dtype="bf16", output_dtype="bf16"), tile(32, 16, 32, 1, 1, 3, 2, 1)),
    *((conv("fwd", 8, dtype="bf16", epilogue=Epilogue(True, name, True)), tile(32, 16, 32, 1, 1, 3, 1, 1))
      for name in LATER[::3]),
    *((conv(mode, 8, **BEHIND), tile(32, 16, 32, 1, 1, 3, 1, 1)) for mode in ("fwd", "bwd")),
    (conv("wrw", 8, **BEHIND), tile(16, 64, 16, 1, 2, 3, 1, 1)),
    # Multiply-adds of fp32: fused results by rows.
    (conv("fwd", 8, dtype="fp32", epilogue=FULL), tile(32, 32, 16, 1, 1, 2, 1, 1)),
    (conv("bwd", 8, dtype="fp32", epilogue=FULL), tile(32, 32, 16, 1, 1, 2, 1, 1)),
]  # fmt: skip


def named(value):
    return "" if isinstance(value, Config) else value.get_func_name()[:40]


@pytest.mark.parametrize(("signature", "config"), CASES, ids=named)
def test_numbers(signature, config, emulating):
    signature = signature.canonical
    geometry = signature.geometry
    solver = MmaDenseSolver(exact=(signature.dtype, signature.acc_dtype) == ("fp32", "fp32"))
    assert solver.applicable(geometry, H200) == Accepted()
    assert solver.search_space(geometry, H200).contains(config)
    made = executable(signature, solver.draft(geometry, config, H200), emulating)
    values = sample_args(signature)
    cases = [values]
    for place, value in enumerate(values[:2]):
        if value.dtype.kind != "i":
            cases.append((*values[:place], planted_copy(value, (np.nan, np.inf), place), *values[place + 1 :]))
    with np.errstate(all="ignore"):
        for case in cases:
            checker = DeviceRechecker(signature, case, oracle(signature, case), device(0))
            verdict = checker.check_plan(checker.plan(made), poison=True)
            assert verdict.ok, verdict.message
