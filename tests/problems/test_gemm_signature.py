"""``GemmSignature``: rules, and the canonical form against NumPy in the user's own words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from evaluate import activate, evaluate, flat, span
from hypothesis import given, settings
from problem_strategies import gemm_signatures

from tilesmith.errors import ProblemError
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.samples import sample_args


@given(gemm_signatures())
@settings(max_examples=200, deadline=None)
def test_canonical_form_means_the_same(sig):
    args = sample_args(sig, 5)
    a, b, *rest = (arg.astype(np.float64) for arg in args)
    result = sig.alpha * (np.swapaxes(a, -1, -2) if sig.trans_a else a) @ (np.swapaxes(b, -1, -2) if sig.trans_b else b)
    if sig.epilogue.is_scaled:
        result = result * rest.pop(sig.epilogue.bias + sig.epilogue.residual)
    if sig.epilogue.bias:
        result = result + rest.pop(0)
    if sig.epilogue.residual:
        result = result + rest.pop(0)
    if sig.beta:
        result = result + sig.beta * rest.pop(0)
    want = activate(torch.from_numpy(result), sig.epilogue).numpy()
    assert want.shape == sig.c_shape
    memory = evaluate(sig.geometry, [flat(arg) for arg in args], span(sig.c_shape, sig.c_strides))
    have = np.lib.stride_tricks.as_strided(memory, want.shape, [8 * s for s in sig.c_strides])
    np.testing.assert_allclose(have, want, rtol=1e-9, atol=1e-9 * (1 + np.abs(want).max()))
    assert len(args) == len(sig.canonical_order)


def test_shapes():
    sig = GemmSignature(m=4, n=5, k=6, batch=3, trans_a=True, lda=7, stride_b=0)
    assert (sig.a_shape, sig.b_shape, sig.c_shape) == ((3, 6, 4), (3, 6, 5), (3, 4, 5))
    assert (sig.a_strides, sig.b_strides, sig.c_strides) == ((42, 7, 1), (0, 5, 1), (20, 5, 1))
    assert GemmSignature(m=4, n=5, k=6).a_shape == (4, 6)
    assert GemmSignature(4, 5, 6, lda=6, stride_c=20, batch=2) == GemmSignature(4, 5, 6, batch=2)


def test_equal_memory_is_one_problem():
    assert GemmSignature(1, 5, 6, trans_a=True).key() == GemmSignature(1, 5, 6).key()
    assert GemmSignature(4, 5, 1, trans_a=True).key() == GemmSignature(4, 5, 1).key()
    assert GemmSignature(4, 1, 6, trans_b=True).key() == GemmSignature(4, 1, 6).key()
    assert GemmSignature(1, 5, 6, trans_a=True, lda=2).key() != GemmSignature(1, 5, 6).key()


@pytest.mark.parametrize(
    ("changes", "needs"),
    [
        ({"m": -1}, "m must be an integer from 0 to 2^31-1, got -1"),
        ({"n": 2**31}, "2147483648"),
        ({"k": 3.0}, "3.0"),
        ({"batch": True}, "True"),
        ({"batch": -1}, "batch"),
        ({"trans_a": 1}, "trans_a must be True or False"),
        ({"dtype": "fp7"}, "'fp7'"),
        ({"dtype": "int8", "c_dtype": "fp32"}, "int8 x int8"),
        ({"dtype": "int8", "alpha": 0.5}, "whole number"),
        ({"dtype": "int8", "epilogue": Epilogue(activation="silu")}, "floating-point"),
        ({"acc_dtype": "fp16"}, "fp32, fp64 or tf32"),
        ({"dtype": "bf16", "acc_dtype": "tf32"}, "'tf32' goes with fp32 tensors"),
        ({"dtype": "fp64", "acc_dtype": "fp32"}, "narrower"),
        ({"alpha": float("nan")}, "alpha must be finite"),
        ({"beta": 10**400}, "beta must be finite"),
        ({"alpha": "1"}, "alpha must be a number"),
        ({"alpha": np.ones(2)}, "alpha must be a number"),
        ({"lda": 5}, "lda 5 is smaller than a stored row of 6"),
        ({"ldb": 4}, "ldb 4"),
        ({"ldc": 2**63}, "2^62"),
        ({"stride_a": -1, "batch": 2}, "stride_a"),
        ({"stride_c": 0, "batch": 2}, "stride_c"),
        ({"stride_c": 19, "batch": 2}, "overlap"),
        ({"m": 2**31 - 1, "n": 2**31 - 1, "batch": 2**31 - 1}, "spans"),
        ({"epilogue": None}, "epilogue"),
    ],
)
def test_rules(changes, needs):
    with pytest.raises(ProblemError) as caught:
        GemmSignature(**({"m": 4, "n": 5, "k": 6} | changes))
    assert needs in str(caught.value)
    assert "\n" not in str(caught.value)
