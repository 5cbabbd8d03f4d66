"""Depthwise convolution on tensor cores: numbers through the emulator, choices, refusals, its text for every arch."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_chain import H200, executable

from tilesmith.measure.accuracy import planted_copy
from tilesmith.measure.device_arrays import DeviceRechecker
from tilesmith.measure.oracle import oracle
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.samples import sample_args
from tilesmith.runtime.device import device
from tilesmith.solvers.cuda.depthwise_mma.solver import DepthwiseMmaSolver
from tilesmith.solvers.solver import Accepted, Config

SOLVER = DepthwiseMmaSolver()
AXES = [axis.name for axis in SOLVER.axes]


def depthwise(c, size, taps, mode="fwd", n=2, dtype="bf16", **more):
    layout = "NHWC" if len(size) == 2 else "NDHWC"
    return ConvSignature((n, *size, c), (c, *taps, 1), groups=c, mode=mode, dtype=dtype, shared_layout=layout, **more)


FULL = Epilogue(bias=True, activation="leaky_relu", residual=True)
# The values of a config are block_c, block_w, products_m, strips, group_rows, stages, filter_rows.
CASES = [
    (depthwise(20, (9, 18), (3, 3), padding=1), (16, 32, 1, 1, 2, 2, 0)),
    (depthwise(16, (6, 21), (7, 7), padding=(2, 3), epilogue=FULL), (16, 16, 1, 2, 1, 3, 0)),
    (depthwise(8, (9, 13), (4, 3), n=3, padding=((1, 2), (0, 2)), stride=2, dtype="fp16"), (16, 16, 2, 1, 1, 2, 0)),
    (depthwise(4, (12, 9), (9, 8), padding=4), (16, 16, 1, 1, 1, 2, 0)),
    (depthwise(8, (11, 12), (3, 2), padding=2, stride=(2, 3), dilation=(3, 2), output_dtype="fp32"),
     (16, 16, 1, 2, 1, 2, 0)),
    (depthwise(8, (4, 5, 6), (3, 2, 3), n=1, padding=1, stride=(2, 1, 1)), (16, 16, 2, 1, 1, 2, 0)),
    (depthwise(12, (7, 17), (5, 3), "bwd", padding=(3, 1)), (16, 32, 1, 1, 1, 2, 0)),
    (depthwise(8, (5, 9), (3, 4), "bwd", padding=(0, 2), dilation=(1, 2), dtype="fp16"), (16, 16, 1, 1, 4, 2, 0)),
    (depthwise(4, (9, 6), (35, 2), "bwd", n=1, padding=(17, 1), dtype="fp16"), (16, 16, 1, 1, 1, 2, 0)),
    (depthwise(20, (9, 18), (3, 3), "wrw", n=3, padding=1), (16, 32, 1, 1, 2, 2, 3)),
    (depthwise(8, (6, 21), (5, 7), "wrw", padding=(2, 3), dtype="fp16"), (16, 16, 1, 2, 1, 3, 2)),
    (depthwise(8, (9, 13), (4, 3), "wrw", n=3, padding=((1, 2), (0, 2)), stride=(2, 3), dilation=(1, 2)),
     (16, 16, 3, 1, 1, 2, 4)),
    (depthwise(8, (4, 5, 6), (3, 2, 3), "wrw", n=1, padding=1, stride=(2, 1, 1)), (16, 16, 2, 1, 1, 2, 2)),
]  # fmt: skip


def config(values) -> Config:
    return Config(tuple(zip(AXES, values, strict=True)))


@pytest.mark.parametrize(("signature", "values"), CASES, ids=lambda v: v.key()[6:70] if hasattr(v, "key") else "")
def test_numbers(signature, values, emulating):
    signature = signature.canonical
    geometry, chosen = signature.geometry, config(values)
    assert SOLVER.applicable(geometry, H200) == Accepted()
    assert SOLVER.search_space(geometry, H200).contains(chosen)
    made = executable(signature, SOLVER.draft(geometry, chosen, H200), emulating)
    given = sample_args(signature)
    cases = [given, *((*given[:i], planted_copy(given[i], (np.nan, np.inf), i), *given[i + 1 :]) for i in (0, 1))]
    with np.errstate(all="ignore"):
        for case in cases:
            checker = DeviceRechecker(signature, case, oracle(signature, case), device(0))
            verdict = checker.check_plan(checker.plan(made), poison=True)
            assert verdict.ok, verdict.message
