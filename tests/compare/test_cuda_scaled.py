"""Rivals of scaled fp8 products: the numbers that operands stand for, and factors by the axes that PyTorch takes."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith.compare.cuda_bytes import byte_calls
from tilesmith.measure.oracle import oracle
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.samples import sample_args, torch_args


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("kinds", [("1x128", "128x128"), ("128x128", "1x128"), ("tensor", "tensor")], ids="-".join)
def test_the_product_of_bf16_copies(kinds, trans_b):
    more = {"dtype": "fp8e4m3", "c_dtype": "fp32", "a_scale": kinds[0], "b_scale": kinds[1]}
    signature = GemmSignature(130, 140, 200, trans_a=not trans_b, trans_b=trans_b, **more)
    values = sample_args(signature)
    ways = byte_calls(signature, [torch_args(values, "cpu")])
    truth = oracle(signature, values)
    found = ways["mm_bf16"][0]()[0].numpy()
    assert np.abs(found - truth.value).max() < 0.02 * truth.norm.max()
    of_a, of_b = ways["scaled_mm"][0].args[2:4]
    if kinds[0] != "tensor":
        assert of_a.shape == {"1x128": (130, 2), "128x128": (2, 2)}[kinds[0]]
        assert of_b.shape == {"1x128": (2, 140), "128x128": (2, 2)}[kinds[1]]
