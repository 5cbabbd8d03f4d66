"""Groups of rows from the public name down: numbers, ends of every kind, layouts, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tilesmith
from tilesmith.errors import ArgumentError, PackageError, ProblemError
from tilesmith.package.embed.description import fields_of
from tilesmith.problems.driver.write import command_or_key
from tilesmith.problems.gemm import GemmSignature

ENDS = ([3, 3, 11, 30], [0, 0, 0, 0], [40, 1, 90, -7], [-2, 9, 5, 37])


def product(a, b, ends):
    """Row by row, as the definition says."""
    y = np.zeros((len(a), b.shape[2]))
    for row in range(len(a)):
        group = next((g for g, end in enumerate(ends) if end > row), None)
        if group is not None:
            y[row] = a[row].astype(np.float64) @ b[group].astype(np.float64)
    return y


def drawn(m=37, k=9, n=21, groups=4, dtype=np.float32):
    rng = np.random.default_rng(5)
    return rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((groups, k, n)).astype(dtype)


@pytest.mark.parametrize("ends", ENDS, ids=str)
def test_numbers(ends):
    a, b = drawn()
    ends = np.array(ends, np.int32)
    want = product(a, b, ends)
    np.testing.assert_allclose(tilesmith.grouped_gemm(a, b, ends), want, atol=1e-5)
    lie = np.ascontiguousarray(b.transpose(0, 2, 1))
    np.testing.assert_allclose(tilesmith.grouped_gemm(a, lie, ends, trans_b=True), want, atol=1e-5)
    # Pitches are read in place, other strides through a copy; one matrix may serve all groups.
    pitched, every = np.full((37, 12), np.nan, np.float32), np.full((8,), -1, np.int32)
    pitched[:, :9], every[::2] = a, ends
    np.testing.assert_allclose(tilesmith.grouped_gemm(pitched[:, :9], b, every[::2]), want, atol=1e-5)
    np.testing.assert_allclose(tilesmith.grouped_gemm(np.asfortranarray(a), b, ends), want, atol=1e-5)
    shared = np.broadcast_to(b[1], b.shape)
    np.testing.assert_allclose(tilesmith.grouped_gemm(a, shared, ends), product(a, shared, ends), atol=1e-5)


def test_not_a_number_stays_in_its_rows():
    a, b = drawn()
    ends = np.array([10, 20, 30, 30], np.int32)
    clean = tilesmith.grouped_gemm(a, b, ends)
    a[15, 3], b[0, 2, 5], b[3], a[33] = np.nan, np.inf, np.nan, np.nan
    y = tilesmith.grouped_gemm(a, b, ends)
    bad = np.zeros(y.shape, bool)
    bad[15], bad[:10, 5] = True, True
    assert not np.isfinite(y[bad]).any()
    np.testing.assert_array_equal(y[~bad], clean[~bad])
    assert not y[30:].any()


def test_tensors_of_pytorch_and_its_graphs():
    a, b = (torch.from_numpy(each).bfloat16() for each in drawn())
    ends = torch.tensor(ENDS[0], dtype=torch.int32)
    want = product(a.float().numpy(), b.float().numpy(), ENDS[0])
    y = tilesmith.grouped_gemm(a, b, ends)
    assert y.dtype == torch.bfloat16
    np.testing.assert_allclose(y.float(), want, atol=0.06)
    torch.library.opcheck(torch.ops.tilesmith.grouped_gemm, (a, b, ends), test_utils=("test_schema", "test_faketensor"))
    whole = torch.compile(tilesmith.grouped_gemm, backend="eager", fullgraph=True)
    assert torch.equal(whole(a, b, ends), y)
    with pytest.raises(ArgumentError, match="a requires a gradient"):
        tilesmith.grouped_gemm(a.requires_grad_(), b, ends)
    with torch.no_grad():
        assert torch.equal(tilesmith.grouped_gemm(a, b, ends), y)


def test_no_elements():
    ends = np.array([1, 2], np.int32)
    assert tilesmith.grouped_gemm(np.ones((0, 4), np.float32), np.ones((2, 4, 3), np.float32), ends).shape == (0, 3)
    y = tilesmith.grouped_gemm(np.ones((3, 0), np.float32), np.ones((2, 0, 5), np.float32), ends)
    assert y.shape == (3, 5)
    assert not y.any()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda a, b, e: (a[0], b, e), r"a has shape \(9,\): it needs the axes \(m, k\)"),
        (lambda a, b, e: (a, b[0], e), r"b has shape \(9, 21\): it needs the axes \(groups, k, n\)"),
        (lambda a, b, e: (a, b[:0], e[:0]), r"b has shape \(0, 9, 21\): there must be a group"),
        (lambda a, b, e: (a[:, :5], b, e), r"a \(37, 5\) has k = 5, b \(4, 9, 21\) has k = 9"),
        (lambda a, b, e: (a, b, e[:3]), r"group_ends has shape \(3,\), 4 matrices need \(4,\)"),
        (lambda a, b, e: (a, b, e.astype(np.int64)), r"dtype int64, not int32; type group_ends.astype\(np.int32\)"),
        (lambda a, b, e: (a, b.astype(np.float64), e), "a has dtype fp32, b has dtype fp64"),
        (lambda a, b, e: (torch.from_numpy(a), b, e), "a is a PyTorch tensor, b is a NumPy array"),
    ],
    ids=range(8),
)
def test_bad_arrays(change, says):
    a, b = drawn()
    with pytest.raises(ArgumentError, match=says):
        tilesmith.grouped_gemm(*change(a, b, np.array(ENDS[0], np.int32)))


@pytest.mark.parametrize(
    "change",
    [{"batch": 2}, {"trans_a": True}, {"alpha": 2.0}, {"beta": 1.0}, {"dtype": "int8"}, {"groups": -1}],
    ids=str,
)
def test_bad_problems(change):
    with pytest.raises(ProblemError, match=f"{next(iter(change))}|floating-point operands, got int8"):
        GemmSignature(**({"m": 4, "n": 5, "k": 6, "groups": 3} | change))


def test_what_has_no_groups_refuses_them():
    signature = GemmSignature(m=4, n=5, k=6, groups=3)
    assert command_or_key(signature) == signature.key()
    with pytest.raises(PackageError, match="ts_desc has no groups of rows, got 3"):
        fields_of(signature)
