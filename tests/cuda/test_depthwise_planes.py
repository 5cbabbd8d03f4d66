"""Channels-first depthwise convolution: numbers through the emulator."""

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
from tilesmith.solvers.cuda.depthwise_planes.solver import DepthwisePlanesSolver
from tilesmith.solvers.solver import Accepted, Config

SOLVER = DepthwisePlanesSolver()
AXES = [axis.name for axis in SOLVER.axes]


def planes(c, size, taps, mode="fwd", n=2, dtype="bf16", **more):
    layout = "NCW" if len(size) == 1 else "NCHW"
    return ConvSignature((n, c, *size), (c, 1, *taps), groups=c, mode=mode, dtype=dtype, shared_layout=layout, **more)


FULL = Epilogue(bias=True, activation="leaky_relu", residual=True)
CASES = [
    (planes(5, (48,), (4,), padding=((3, 0),)), (8, 1, 64, 0)),
    (planes(3, (9, 12), (3, 5), padding=(1, 2), dilation=(2, 1), epilogue=FULL), (4, 2, 64, 0)),
    (planes(3, (7, 7), (3, 3), "bwd", dtype="fp32", padding=1), (1, 4, 64, 0)),
    (planes(4, (24,), (4,), "bwd", padding=((3, 0),)), (8, 1, 64, 0)),
    (planes(3, (5, 6), (3, 2), "wrw", n=3, dtype="fp16", padding=((1, 1), (1, 0))), (2, 1, 64, 2)),
    (planes(300, (8,), (4,), "wrw", padding=((3, 0),)), (8, 1, 64, 2)),
]


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
