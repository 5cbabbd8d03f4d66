"""cuDNN's and cuBLAS's side without a GPU: the same operators on the CPU, against the float64 oracle."""

import sys

import numpy as np
import pytest
import torch

from tilesmith.env import takes_part
from tilesmith.errors import PlanError
from tilesmith.measure.accuracy import check
from tilesmith.measure.oracle import oracle
from tilesmith.plan.slots import arguments
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.samples import sample_args, torch_args
from tilesmith.solvers.external.candidate import CUDNN
from tilesmith.solvers.external.library import ConvCall, array_of, library_call
from tilesmith.solvers.solver import Accepted, Config
from tilesmith.solvers.table import candidates, external_solver
from tilesmith.solvers.table_cpu import CPU_SOLVERS
from tilesmith.solvers.table_cuda import CUDA_SOLVERS
from tilesmith.targets.cpu import CPU_TARGETS
from tilesmith.targets.cuda import CUDA_TARGETS

H200 = CUDA_TARGETS["sm_90a"]
FULL = Epilogue(bias=True, residual=True, activation="silu")
LAST = {"shared_layout": "NHWC"}
PROBLEMS = [
    *(
        ConvSignature(*shapes, mode=mode, **options)
        for mode in ("fwd", "bwd", "wrw")
        for *shapes, options in (
            ((2, 9, 8, 6), (10, 3, 2, 6), {"padding": 1, **LAST}),
            ((2, 6, 9, 8), (10, 3, 3, 3), {"stride": 2, "groups": 2}),
            ((2, 6, 9), (10, 6, 3), {"dilation": 2, "padding": 2}),
            ((1, 4, 5, 6, 7), (6, 4, 3, 3, 2), {"stride": (1, 2, 2), "padding": 1}),
            ((2, 5, 6, 8), (8, 4, 4, 6), {"stride": 2, "padding": 1, "transposed": True, **LAST}),
            ((2, 7, 6, 5), (8, 3, 3, 5), {"input_strides": (42 * 8, 48, 8, 1), **LAST}),
        )
    ),
    ConvSignature((2, 9, 8, 6), (10, 3, 3, 6), epilogue=FULL, **LAST),
    ConvSignature((2, 9, 8, 6), (10, 3, 3, 6), mode="bwd", epilogue=FULL, **LAST),
    ConvSignature((2, 6, 9, 8), (10, 6, 3, 3), output_layout="NHWC", dtype="bf16"),
    *(GemmSignature(7, 9, 12, trans_a=ta, trans_b=tb) for ta in (False, True) for tb in (False, True)),
    GemmSignature(7, 9, 12, batch=3, lda=20, trans_b=True, alpha=0.5),
    GemmSignature(7, 9, 12, alpha=0.5, beta=2.0, epilogue=FULL),
    GemmSignature(7, 9, 12, batch=2, beta=-1.0, ldc=11),
    GemmSignature(7, 9, 12, epilogue=Epilogue(bias=True, activation="relu"), dtype="bf16"),
]


@pytest.mark.parametrize("signature", PROBLEMS, ids=lambda signature: signature.get_func_name())
def test_one_call(signature):
    values = sample_args(signature)
    *inputs, result = arguments(signature)
    tensors = [
        torch.empty_strided(slot.shape, slot.strides, dtype=tensor.dtype).copy_(tensor)
        for slot, tensor in zip([*inputs, result], torch_args(values, "cpu"), strict=False)
    ]
    before = torch.backends.cuda.preferred_blas_library()
    found = library_call(signature, "lt=0")(*tensors)
    assert tuple(found.shape) == result.shape
    assert all(n == 1 or a == b for n, a, b in zip(found.shape, found.stride(), result.strides, strict=True))
    verdict = check(array_of(found), oracle(signature, values), signature)
    assert verdict.ok, verdict.message
    assert torch.backends.cuda.preferred_blas_library() == before


def test_modes_begin_with_the_layout_given():
    for layouts, names, given in (
        (LAST, ["channels_last", "contiguous", "channels_last_padded"], "channels_last"),
        ({}, ["contiguous", "channels_last", "channels_last_padded"], "contiguous"),
        ({"input_layout": "NHWC"}, ["contiguous", "channels_last", "channels_last_padded"], None),  # all are copies
    ):
        shape = (2, 9, 8, 6) if layouts else (2, 6, 9, 8)
        kernel = (10, 3, 3, 6) if layouts is LAST else (10, 6, 3, 3)
        for mode in ("fwd", "bwd", "wrw"):
            signature = ConvSignature(shape, kernel, mode=mode, **layouts)
            tensors = torch_args(sample_args(signature), "cpu")
            calls = ConvCall(signature).modes(tensors)
            assert list(calls) == names
            assert ConvCall(signature).given_mode(tensors) == given
            wanted = ConvCall(signature).compute(ConvCall(signature).operands(tensors))
            for call in calls.values():
                torch.testing.assert_close(call(), wanted, rtol=1e-4, atol=1e-4)
                assert call().shape == wanted.shape


def test_channels_are_padded_where_that_changes_them():
    whole = ConvSignature((2, 9, 8, 8), (16, 3, 3, 8), **LAST)
    groups = ConvSignature((2, 9, 8, 6), (10, 3, 3, 3), groups=2, **LAST)
    biased = ConvSignature((2, 9, 8, 6), (10, 3, 3, 6), epilogue=Epilogue(bias=True), **LAST)
    for signature in (whole, groups, biased):
        tensors = torch_args(sample_args(signature), "cpu")
        assert list(ConvCall(signature).modes(tensors)) == ["channels_last", "contiguous"]


def external_candidate(signature, target):
    *_, last = candidates(signature, target, external=True)
    return last if last.external is not None else None


def test_what_takes_part():
    conv = ConvSignature((2, 9, 8, 6), (10, 3, 3, 6), **LAST)
    assert external_candidate(conv, next(iter(CPU_TARGETS.values()))) is None
    assert external_candidate(conv, H200).verdict == Accepted()
    assert external_candidate(conv, H200).name == "torch_cudnn"
    assert external_candidate(GemmSignature(4, 4, 4), H200).name == "torch_cublas"
    for refused in (
        ConvSignature((2, 9, 8, 6), (10, 3, 3, 6), dtype="int8", **LAST),
        ConvSignature((2, 9, 8, 6), (10, 3, 3, 6), mode="bgrad", **LAST),
        GemmSignature(4, 4, 4, dtype="fp8e4m3"),
    ):
        assert external_candidate(refused, H200).verdict != Accepted()


def test_it_stands_behind_the_table_and_generates_nothing():
    assert not [solver.name for solver in (*CPU_SOLVERS, *CUDA_SOLVERS) if external_solver(solver.name)]
    with pytest.raises(PlanError, match="torch_cudnn generates nothing"):
        CUDNN.draft(ConvSignature((2, 9, 8, 6), (10, 3, 3, 6), **LAST).geometry, Config(()), H200)


def test_the_switch(monkeypatch):
    assert not takes_part()  # PyTorch without CUDA
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert takes_part()
    monkeypatch.setenv("TILESMITH_EXTERNAL", "0")
    assert not takes_part()
    monkeypatch.delenv("TILESMITH_EXTERNAL")
    monkeypatch.delitem(sys.modules, "torch")
    assert not takes_part()
    assert np.isinf(CUDNN.predict(None, Config(()), H200))
