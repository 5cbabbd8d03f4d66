"""PyTorch's products of bytes as ways of a rival; on a CPU, which PyTorch computes them on too."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith.compare.cuda_bytes import byte_calls
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.samples import sample_args, torch_args


@pytest.mark.parametrize("trans", [(False, False), (True, True)])
@pytest.mark.parametrize(("dtype", "names"), [("int8", ["int_mm"]), ("fp8e4m3", ["scaled_mm", "scaled_mm_fast"])])
def test_ways_compute_the_product_whatever_the_layout(trans, dtype, names):
    more = {} if dtype == "int8" else {"c_dtype": "bf16"}
    signature = GemmSignature(32, 48, 64, dtype=dtype, trans_a=trans[0], trans_b=trans[1], lda=80, **more)
    values = sample_args(signature)
    found = byte_calls(signature, [torch_args(values, "cpu")])
    assert list(found) == names
    a, b = (
        value.astype(np.float64).T if turned else value.astype(np.float64)
        for value, turned in zip(values, trans, strict=False)
    )
    (call,) = found[names[0]]
    np.testing.assert_allclose(call().double().numpy()[0], a @ b, rtol=2.0**-7, atol=0.1)


@pytest.mark.parametrize(
    "signature",
    [
        GemmSignature(32, 48, 64, dtype="int8", batch=2),
        GemmSignature(32, 48, 64, dtype="int8", alpha=2),
        GemmSignature(32, 48, 64, dtype="fp8e4m3", c_dtype="bf16", epilogue=Epilogue(activation="relu")),
    ],
)
def test_what_they_do_not_compute_has_no_ways(signature):
    assert byte_calls(signature, [torch_args(sample_args(signature), "cpu")]) == {}
