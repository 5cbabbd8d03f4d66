"""The oracle against float64 PyTorch: values, and where NaN and Inf arrive."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilesmith.measure.oracle import logical, oracle
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import ACTIVATIONS, Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.samples import sample_args
from torch_answer import torch_answer


def problem(**fields):
    return fields


CASES = [
    problem(input_shape=(2, 6, 11), kernel_shape=(4, 3, 3), stride=2, padding=2, groups=2),
    problem(input_shape=(2, 5, 9, 8), kernel_shape=(7, 5, 3, 2), padding=(1, 0), dilation=(2, 1)),
    problem(input_shape=(3, 8, 6, 7), kernel_shape=(8, 1, 3, 3), padding=1, groups=8),
    problem(input_shape=(2, 4, 6, 7), kernel_shape=(8, 1, 3, 3), padding=2, stride=(3, 1), groups=4),
    problem(input_shape=(1, 4, 5, 6, 7), kernel_shape=(6, 2, 2, 3, 1), stride=(1, 2, 3), padding=(1, 1, 0), groups=2),
    problem(input_shape=(1, 3, 1, 1), kernel_shape=(2, 3, 1, 1), stride=7, padding=3),
    problem(input_shape=(2, 4, 6), kernel_shape=(4, 3, 3), stride=3, padding=1, transposed=True, output_padding=2),
    problem(input_shape=(2, 6, 5, 4), kernel_shape=(6, 2, 4, 4), stride=2, padding=1, transposed=True, groups=3),
    problem(input_shape=(2, 7, 6, 3), kernel_shape=(8, 3, 2, 3), stride=2, shared_layout="NHWC", padding=1),
    problem(input_shape=(1, 2, 6, 5, 4), kernel_shape=(5, 2, 3, 3, 4), input_layout="NCHWc4", kernel_layout="NCHWc4",
         output_layout="HNWC", padding=1),
]  # fmt: skip


def plant(arrays, rng):
    """NaN and Inf at a few places of each operand."""
    planted = [np.array(a) for a in arrays]
    for a in planted:
        for value in (np.nan, np.inf, -np.inf):
            if rng.random() < 0.6:
                a.reshape(-1)[rng.integers(a.size)] = value
    return tuple(planted)


@pytest.mark.parametrize("mode", ["fwd", "bwd", "wrw", "bgrad"])
@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_convolutions_and_gradients(case, mode):
    rng = np.random.default_rng(7)
    sig = ConvSignature(**case, mode=mode, dtype="fp64")
    args = sample_args(sig, 3)
    found = oracle(sig, args)
    np.testing.assert_allclose(found.value, torch_answer(sig, args), rtol=1e-12, atol=1e-12)
    for _ in range(4):
        wild = plant(args, rng)
        np.testing.assert_allclose(oracle(sig, wild).value, torch_answer(sig, wild), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("mode", ["fwd", "bwd"])
def test_epilogues(activation, mode):
    rng = np.random.default_rng(1)
    e = Epilogue(bias=True, residual=activation != "relu", activation=activation, slope=0.3, low=-0.5, high=0.75)
    sig = ConvSignature((2, 4, 6, 5), (3, 4, 3, 3), padding=1, mode=mode, dtype="fp64", epilogue=e)
    args = sample_args(sig, 5)
    for a in (args, plant(args, rng), plant(args, rng)):
        np.testing.assert_allclose(oracle(sig, a).value, torch_answer(sig, a), rtol=1e-12, atol=1e-12)


def test_integers_are_exact():
    sig = ConvSignature((2, 32, 9, 9), (16, 32, 3, 3), padding=1, dtype="int8")
    args = sample_args(sig, 0)
    found = oracle(sig, args)
    want = torch_answer(ConvSignature((2, 32, 9, 9), (16, 32, 3, 3), padding=1, dtype="fp64"), args)
    assert found.value.dtype == np.int64
    assert (found.value == want).all()


def test_norm_is_the_root_of_the_sum_of_squared_products():
    sig = ConvSignature((2, 6, 8, 9), (4, 3, 3, 3), padding=1, groups=2, dtype="fp32")
    x, w = sample_args(sig, 2)
    squares = torch_answer(sig, (x.astype(np.float64) ** 2, w.astype(np.float64) ** 2))
    np.testing.assert_allclose(oracle(sig, (x, w)).norm, np.sqrt(squares), rtol=1e-5)
    # Tiny numbers do not vanish in the squares, huge ones do not overflow.
    tiny = oracle(sig, ((x * np.float32(1e-30)), w * np.float32(1e20))).norm
    np.testing.assert_allclose(tiny, np.sqrt(squares) * 1e-10, rtol=1e-4)


@pytest.mark.parametrize("mode", ["fwd", "bwd", "wrw"])
def test_blocks_make_no_difference(mode, monkeypatch):
    sig = ConvSignature(
        (3, 4, 5, 9, 8), (6, 2, 2, 3, 3), padding=1, stride=(2, 1, 2), groups=2, mode=mode, dtype="fp64"
    )
    args = sample_args(sig, 4)
    whole = oracle(sig, args).value
    for limit in (1, 3000, 40000):
        monkeypatch.setattr("tilesmith.measure.oracle._BLOCK_BYTES", limit)
        np.testing.assert_allclose(oracle(sig, args).value, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("trans", [(False, False), (True, False), (False, True), (True, True)])
def test_gemm(trans):
    e = Epilogue(bias=True, residual=True, activation="silu")
    sig = GemmSignature(
        m=5, n=7, k=9, batch=3, trans_a=trans[0], trans_b=trans[1], dtype="fp64", alpha=0.5, beta=-2.0, epilogue=e
    )
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(sig.a_shape), rng.standard_normal(sig.b_shape)
    bias, z, c = rng.standard_normal(7), rng.standard_normal(sig.c_shape), rng.standard_normal(sig.c_shape)
    args = (a, b, bias, z, c)
    for values in (args, plant(args, rng)):
        ta, tb, tbias, tz, tc = (torch.tensor(v) for v in values)
        ta, tb = (ta.mT if trans[0] else ta), (tb.mT if trans[1] else tb)
        want = torch.nn.functional.silu(0.5 * (ta @ tb) - 2.0 * tc + tbias + tz)
        np.testing.assert_allclose(oracle(sig, values).value, want.numpy(), rtol=1e-12, atol=1e-12)
    assert logical(sig, c) is c
