"""Products of scaled fp8 matrices from the public name down: numbers, kinds and layouts of factors, what is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

import tilesmith
from tilesmith.errors import ArgumentError, PackageError, ProblemError
from tilesmith.measure.accuracy import check_specials, verify
from tilesmith.package.embed.description import fields_of
from tilesmith.problems.driver.write import command_or_key
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature

KINDS = (("1x128", "128x128"), ("128x128", "1x128"), ("1x128", "1x128"), ("128x128", "128x128"), ("tensor", "tensor"))
M, N, K = 131, 150, 260
SHARE = {"1x128": 1, "128x128": 128}


def spread(factors, kind, rows, k):
    """The factor of each element, rows x k."""
    if kind == "tensor":
        return factors.astype(np.float64)
    return np.array([[factors[i // SHARE[kind], j // 128] for j in range(k)] for i in range(rows)], np.float64)


def drawn(kinds, m=M, n=N, k=K):
    """``a`` m x k, ``b`` n x k, and factors of each, rows x k."""
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((rows, k)).astype(ml_dtypes.float8_e4m3fn) for rows in (m, n))
    shapes = [
        (1,) if kind == "tensor" else (-(-rows // SHARE[kind]), -(-k // 128))
        for kind, rows in zip(kinds, (m, n), strict=False)
    ]
    return a, b, *(np.exp(rng.standard_normal(shape)).astype(np.float32) for shape in shapes)


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_numbers(kinds):
    a, b, of_a, of_b = drawn(kinds)
    wide = [np.float64(x) * spread(f, kind, *x.shape) for x, f, kind in zip((a, b), (of_a, of_b), kinds, strict=True)]
    want, near = wide[0] @ wide[1].T, {"rtol": 1e-5, "atol": 1e-4}
    y = tilesmith.scaled_gemm(a, b, of_a, of_b, trans_b=True, c_dtype="fp32")
    np.testing.assert_allclose(y, want, **near)
    # The other order of axes; factors as they lie, and through a copy.
    y = tilesmith.scaled_gemm(a, np.ascontiguousarray(b.T), np.asfortranarray(of_a), of_b.T, c_dtype="fp32")
    np.testing.assert_allclose(y, want, **near)
    pitched = np.zeros((M, K + 4), a.dtype)
    pitched[:, :K] = a
    bias = np.arange(N, dtype=np.float32)
    y = tilesmith.scaled_gemm(pitched[:, :K], b, of_a, of_b, bias, trans_b=True, c_dtype="fp32")
    np.testing.assert_allclose(y, want + bias, **near)


@pytest.mark.parametrize("kinds", KINDS[1:3] + KINDS[4:], ids="-".join)
def test_the_oracle_and_every_part_of_a_problem(kinds):
    """NaN and Inf included; the sum of ``parts`` is checked where a problem is larger than a part."""
    more = {"c_dtype": "bf16", "dtype": "fp8e4m3", "trans_a": kinds[0] == "128x128", "epilogue": Epilogue(bias=True)}
    signature = GemmSignature(140, 9, 200, a_scale=kinds[0], b_scale=kinds[1], **more)
    bound = tilesmith.get_launchable(signature, threads=1).bound

    def call(*arrays):
        bound(*arrays[:-1], out=arrays[-1])

    for verdict in (verify(call, signature), check_specials(call, signature)):
        assert verdict.ok, verdict.message


def test_tensors_of_pytorch_and_its_graphs():
    a, b, of_a, of_b = drawn(KINDS[0], m=5, n=9)
    want = tilesmith.scaled_gemm(a, b, of_a, of_b, trans_b=True, c_dtype="fp32")
    a, b = (torch.from_numpy(x.view(np.uint8)).view(torch.float8_e4m3fn) for x in (a, b))
    tensors = (a, b, torch.from_numpy(of_a), torch.from_numpy(of_b))
    y = tilesmith.scaled_gemm(*tensors, trans_b=True)
    assert y.dtype == torch.bfloat16
    np.testing.assert_allclose(y.float(), want, rtol=0.01)
    operator = torch.ops.tilesmith.scaled_gemm
    torch.library.opcheck(operator, (*tensors, None, True), test_utils=("test_faketensor",))
    whole = torch.compile(lambda *each: tilesmith.scaled_gemm(*each, trans_b=True), backend="eager", fullgraph=True)
    assert torch.equal(whole(*tensors), y)
    with pytest.raises(ArgumentError, match="a_scale requires a gradient"):
        tilesmith.scaled_gemm(*tensors[:2], tensors[2].requires_grad_(), tensors[3], trans_b=True)


def test_no_elements():
    empty = np.zeros((3, 0), ml_dtypes.float8_e5m2)
    y = tilesmith.scaled_gemm(empty, empty, np.ones((3, 0), np.float32), np.ones((1, 0), np.float32), trans_b=True)
    assert y.shape == (3, 3)
    assert not y.any()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda a, b, x, y: (a[0], b, x, y), r"a has shape \(260,\): it needs two axes"),
        (lambda a, b, x, y: (a[:, :7], b, x, y), r"a \(131, 7\) has k = 7, b \(150, 260\) has k = 260"),
        (lambda a, b, x, y: (a, b, x[1:], y), r"a_scale has shape \(130, 3\): it needs \(1,\) or \(131, 3\) \(1x128\)"),
        (lambda a, b, x, y: (a, b, x, y.T), r"b_scale has shape \(3, 2\): .* or \(2, 3\) \(128x128\)"),
        (lambda a, b, x, y: (a, b, np.float64(x), y), "a_scale has dtype fp64, not fp32"),
        (lambda a, b, x, y: (torch.ones(2), b, x, y), "a is a PyTorch tensor, b is a NumPy array"),
    ],
    ids=range(6),
)
def test_bad_arrays(change, says):
    with pytest.raises(ArgumentError, match=says):
        tilesmith.scaled_gemm(*change(*drawn(KINDS[0])), trans_b=True)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"b_scale": "tensor"}, "both 'tensor' or both of blocks, got 1x128 and tensor"),
        ({"b_scale": "none"}, "got 1x128 and none"),
        ({"a_scale": "64x64"}, "a_scale '64x64' does not exist; known: none, tensor, 1x128, 128x128"),
        ({"b_dtype": "bf16"}, "scales go with fp8 operands, got b_dtype 'bf16'"),
        ({"batch": 2}, "has batch 1, got 2"),
        ({"groups": 2}, "has groups 0, got 2"),
    ],
    ids=str,
)
def test_bad_problems(change, says):
    base = {"m": 4, "n": 5, "k": 6, "dtype": "fp8e4m3", "c_dtype": "bf16", "a_scale": "1x128", "b_scale": "128x128"}
    with pytest.raises(ProblemError, match=says):
        GemmSignature(**(base | change))


def test_what_has_no_scales_refuses_them():
    signature = GemmSignature(4, 5, 6, dtype="fp8e4m3", a_scale="tensor", b_scale="tensor")
    assert command_or_key(signature) == signature.key()
    with pytest.raises(PackageError, match="ts_desc has no scales of operands, got tensor, tensor"):
        fields_of(signature)
