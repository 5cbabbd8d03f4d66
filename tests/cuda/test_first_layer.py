"""Convolutions of few input channels: numbers through the emulator, choices, refusals, and text for every arch."""

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
from tilesmith.solvers.cuda.first.solver import FirstLayerSolver, FirstLayerWrwSolver
from tilesmith.solvers.solver import Accepted, Config

SOLVERS = {"fwd": FirstLayerSolver(), "wrw": FirstLayerWrwSolver()}


def conv(c=3, k=24, taps=(7, 7), size=(15, 17), **more):
    more = {"dtype": "bf16", "padding": 1, **more}
    return ConvSignature((2, *size, c), (k, *taps, c), shared_layout="NHWC", **more)


BIASED = Epilogue(bias=True, activation="leaky_relu")
CASES = [
    (conv(stride=2, padding=3), (16, 4, 1, 32, 0, 1)),
    (conv(k=32, taps=(5, 5), size=(12, 48), padding=2), (16, 4, 1, 32, 0, 1)),
    (conv(k=21, taps=(3, 3), epilogue=BIASED), (8, 4, 1, 16, 0, 1)),
    (conv(1, 40, (5, 5), stride=1, padding=((2, 1), (0, 3)), dtype="fp16"), (16, 4, 2, 48, 0, 2)),
    (conv(2, 8, (3, 7), stride=(1, 3), dilation=(2, 1), padding=3), (32, 4, 1, 8, 0, 1)),
    (conv(4, 16, (4, 4), stride=4, padding=0, size=(17, 23)), (8, 4, 1, 16, 0, 1)),
    (conv(4, 16, (1, 3), padding=(0, 2), dilation=(1, 2), output_dtype="fp32"), (8, 4, 1, 16, 0, 1)),
    (conv(7, 9, (2, 3), stride=(3, 2)), (8, 4, 1, 16, 0, 1)),
    (conv(stride=2, padding=3, mode="wrw"), (2, 16, 4, 2, 2, 1)),
    (conv(1, 40, (5, 5), stride=1, padding=((2, 1), (0, 3)), dtype="fp16", mode="wrw"), (4, 8, 4, 1, 1, 1)),
    (conv(2, 9, (3, 7), stride=(1, 3), dilation=(2, 1), padding=3, mode="wrw"), (4, 8, 2, 1, 2, 1)),
    (conv(7, 16, (2, 3), stride=(3, 2), kernel_dtype="fp32", mode="wrw"), (2, 8, 2, 1, 1, 1)),
]


def config(solver, values) -> Config:
    return Config(tuple(zip((axis.name for axis in solver.axes), values, strict=True)))


@pytest.mark.parametrize(("signature", "values"), CASES, ids=lambda v: v.key()[12:70] if hasattr(v, "key") else "")
def test_numbers(signature, values, emulating):
    signature = signature.canonical
    geometry, solver = signature.geometry, SOLVERS[signature.mode]
    chosen = config(solver, values)
    assert solver.applicable(geometry, H200) == Accepted()
    assert solver.search_space(geometry, H200).contains(chosen)
    made = executable(signature, solver.draft(geometry, chosen, H200), emulating)
    given = sample_args(signature)
    cases = [given, *((*given[:i], planted_copy(given[i], (np.nan, np.inf), i), *given[i + 1 :]) for i in (0, 1))]
    with np.errstate(all="ignore"):
        for case in cases:
            checker = DeviceRechecker(signature, case, oracle(signature, case), device(0))
            verdict = checker.check_plan(checker.plan(made), poison=True)
            assert verdict.ok, verdict.message
