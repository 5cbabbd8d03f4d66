"""Unequal padding in every direction and layout: the oracle against PyTorch, and every solver against the oracle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chain import TWO_THREADS, executables, function
from tilesmith.measure.accuracy import check_specials, verify
from tilesmith.measure.oracle import oracle
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.samples import sample_args
from tilesmith.solvers.solver import Accepted
from tilesmith.solvers.table import candidates
from torch_answer import torch_answer

PROBLEMS = [
    ConvSignature((2, 9, 10, 16), (24, 3, 3, 16), padding=((0, 1), (1, 0)), shared_layout="NHWC"),
    ConvSignature((2, 9, 10, 16), (24, 1, 1, 16), padding=((0, 2), (0, 1)), shared_layout="NHWC"),  # never a GEMM
    ConvSignature((2, 9, 10, 16), (24, 4, 2, 16), padding="same", shared_layout="NHWC", dtype="bf16"),
    ConvSignature((2, 16, 11, 9), (16, 16, 3, 3), padding=((0, 3), (2, 0)), stride=2, dilation=(1, 2)),
    ConvSignature((1, 8, 7, 6, 8), (8, 2, 3, 1, 8), padding=((1, 0), (0, 2), (0, 1)), shared_layout="NDHWC"),
    ConvSignature((2, 23, 16), (16, 4, 16), padding="causal", dilation=3, shared_layout="NWC"),
    ConvSignature((2, 9, 10, 32), (32, 3, 3, 8), padding=((0, 2), (0, 2)), groups=4, shared_layout="NHWC"),
    ConvSignature((2, 9, 10, 24), (24, 3, 3, 1), padding=((0, 2), (3, 1)), groups=24, shared_layout="NHWC"),
    ConvSignature((2, 6, 5, 16), (16, 3, 2, 8), padding=((1, 0), (0, 1)), stride=2, transposed=True,
                  output_padding=1, shared_layout="NHWC"),
    ConvSignature((1, 2, 9, 8, 8), (8, 16, 3, 3), padding=((0, 1), (0, 1)), input_layout="NCHWc8"),
]  # fmt: skip
FULL = Epilogue(bias=True, residual=True, activation="leaky_relu", slope=0.3)


@pytest.mark.parametrize("mode", ["fwd", "bwd", "wrw", "bgrad"])
def test_every_solver(mode):
    cases = []
    for number, problem in enumerate(PROBLEMS):
        signature = replace(
            problem, mode=mode, epilogue=FULL if number % 3 == 0 and mode in ("fwd", "bwd") else Epilogue()
        )
        assert (";padhi=" in signature.key()) == (mode != "bgrad")
        values = sample_args(signature)
        truth = oracle(signature, values)
        np.testing.assert_allclose(truth.value, torch_answer(signature, values), rtol=1e-9, atol=1e-9)
        for candidate in candidates(signature, TWO_THREADS):
            if isinstance(candidate.verdict, Accepted):
                config = candidate.solver.default_config(candidate.geometry, TWO_THREADS)
                draft = candidate.solver.draft(candidate.geometry, config, TWO_THREADS)
                cases.append((signature, candidate.name, draft, truth))
    names = {name.partition("@")[0].removesuffix("_nhwc") for _, name, _, _ in cases}
    wanted = {"fwd": {"c_dense", "c_grouped", "c_depthwise"}, "wrw": {"c_wrw", "c_wrw_grouped"}, "bgrad": {"c_bgrad"}}
    assert names >= wanted.get(mode, wanted["fwd"]) | {"c_reference"}
    built = executables([(signature, draft) for signature, _, draft, _ in cases])
    for (signature, name, _, truth), executable in zip(cases, built, strict=True):
        call = function(executable, signature)
        for verdict in (verify(call, signature, truth=truth), check_specials(call, signature, 2)):
            assert verdict.ok, f"{name} on {signature.key()}: {verdict.message}"
