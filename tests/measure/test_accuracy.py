"""Planted faults: each wrong result must be caught, each right one must pass."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith.measure.accuracy import check, check_specials, planted_copy, verify
from tilesmith.measure.arrays import guarded, guarded_operands
from tilesmith.measure.oracle import Oracle, oracle
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.epilogue import LATER, Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.samples import sample_args
from torch_answer import torch_answer, torch_gemm

E = Epilogue(bias=True, activation="relu")
CONV = ConvSignature((2, 8, 9, 10), (6, 8, 3, 3), padding=1, shared_layout="NCHW", epilogue=E)
PLAIN = ConvSignature((2, 8, 9, 10), (6, 8, 3, 3), padding=1)
NHWC = ConvSignature((2, 7, 9, 5), (6, 3, 3, 5), padding=1, shared_layout="NHWC")
PITCHED = ConvSignature(
    (2, 5, 6, 4), (3, 2, 2, 4), shared_layout="NHWC", output_strides=(200, 40, 8, 1), input_strides=(300, 40, 6, 1)
)


def right(signature):
    """A right kernel: PyTorch in float64, rounded once."""

    def call(*arrays):
        *operands, out = arrays
        if isinstance(signature, GemmSignature):
            values = operands + ([np.array(out)] if signature.beta != 0 else [])
            out[...] = torch_gemm(signature, values)
            return
        result = torch_answer(signature, operands)
        name = {"fwd": "output", "bwd": "input", "wrw": "kernel"}[signature.mode]
        order = getattr(signature, f"{name}_layout")
        logical_order = [c for c in "NCDHW" if c in order]
        out[...] = result.transpose([logical_order.index(c) for c in order]).astype(out.dtype)

    return call


def spoiled(signature, spoil):
    """A kernel that is right but for ``spoil(operands, out)``, which runs after it."""

    def call(*arrays):
        right(signature)(*arrays)
        spoil(arrays[:-1], arrays[-1])

    return call


SIGNATURES = [
    CONV,
    NHWC,
    PITCHED,
    ConvSignature((2, 8, 9, 10), (6, 8, 3, 3), padding=1, mode="bwd", dtype="bf16"),
    ConvSignature((2, 8, 9, 10), (6, 8, 3, 3), padding=1, mode="wrw", dtype="fp16"),
    ConvSignature((2, 8, 9, 10), (6, 8, 3, 3), padding=1, dtype="fp64"),
    ConvSignature((2, 8, 9, 10), (6, 8, 3, 3), padding=1, dtype="fp8e4m3"),
    ConvSignature((2, 8, 9, 10), (6, 8, 3, 3), padding=1, dtype="fp8e5m2"),
    ConvSignature((2, 8, 9, 10), (6, 8, 3, 3), padding=1, dtype="int8"),
    GemmSignature(m=9, n=11, k=33, beta=0.5, epilogue=Epilogue(bias=True, residual=True, activation="gelu")),
    *(GemmSignature(9, 11, 33, dtype="bf16", c_dtype="fp32", epilogue=Epilogue(True, name)) for name in LATER),
]


@pytest.mark.parametrize("signature", SIGNATURES, ids=range(len(SIGNATURES)))
def test_right_kernels_pass(signature):
    for seed in range(5):
        verdict = verify(right(signature), signature, seed)
        assert verdict.ok, verdict.message
        assert verdict.error <= verdict.bound
        specials = check_specials(right(signature), signature, seed)
        assert specials.ok, specials.message


def float32_loop(signature):
    """A plain float32 dot product for each element, summed in order: as inaccurate as a right kernel gets."""

    def call(a, b, out):
        total = np.zeros(out.shape, np.float32)
        for i in range(signature.k):
            total += a[:, i, None] * b[None, i]
        out[...] = total.astype(out.dtype)

    return call


@pytest.mark.parametrize("k", [1, 2, 7, 100, 5000])
def test_plain_float32_sums_stay_far_inside_the_bound(k):
    signature = GemmSignature(m=40, n=50, k=k)
    for seed in range(4):
        verdict = verify(float32_loop(signature), signature, seed)
        assert verdict.ok
        assert k < 100 or verdict.error < 0.6 * verdict.bound


def cut_toward_zero(instruction, units=1):
    """float32 sums that lose what a tensor core cuts (``units`` times) after each ``instruction`` products."""

    def call(a, b, out):
        total = np.zeros(out.shape)
        for k in range(0, a.shape[1], instruction):
            total += a[:, k : k + instruction].astype(np.float64) @ b[k : k + instruction].astype(np.float64)
            kept = total.astype(np.float32)
            kept = np.where(abs(kept) > abs(total), np.nextafter(kept, np.float32(0)), kept)
            total = kept - (units - 1) * np.sign(kept) * np.spacing(abs(kept)).astype(np.float64)
        out[...] = total.astype(out.dtype)

    return call


@pytest.mark.parametrize("k", [64, 9216, 30000])
def test_tensor_cores_may_cut_their_sums(k):
    narrow = GemmSignature(m=48, n=40, k=k, dtype="bf16", c_dtype="fp32")
    verdict = verify(cut_toward_zero(16), narrow, 1)
    assert verdict.ok, verdict.message
    assert k < 1000 or not verify(cut_toward_zero(16, units=6), narrow, 1).ok
    assert k < 10000 or not verify(cut_toward_zero(16), GemmSignature(m=48, n=40, k=k), 1).ok


def rounded_operands(bits):
    """Exact sums of products of operands rounded to ``bits`` bits of fraction."""

    def call(a, b, out):
        step = np.uint32(1 << (23 - bits))
        short = [((x.view(np.uint32) + step // 2) & ~(step - 1)).view(np.float32).astype(np.float64) for x in (a, b)]
        out[...] = short[0] @ short[1]

    return call


@pytest.mark.parametrize("k", [1, 3, 64, 3000])
def test_operands_may_be_rounded_where_tf32_is_asked_for_and_nowhere_else(k):
    asked, exact = (GemmSignature(m=60, n=70, k=k, acc_dtype=acc) for acc in ("tf32", "fp32"))
    for seed in range(3):
        verdict = verify(rounded_operands(10), asked, seed)
        assert verdict.ok, verdict.message
        assert verify(float32_loop(asked), asked, seed).ok
        assert not verify(rounded_operands(10), exact, seed).ok
        assert not verify(rounded_operands(6), asked, seed).ok


def put(index, value):
    def spoil(_operands, out):
        out.reshape(-1)[index] = value if value is not None else out.reshape(-1)[index + 1]

    return spoil


def nudge(factor):
    def spoil(_operands, out):
        out.reshape(-1)[7] *= np.float32(factor)

    return spoil


WRONG = {
    "off by one": (PLAIN, lambda _, out: out.__setitem__(..., np.roll(np.array(out), 1, -1))),
    "transposed indices": (
        ConvSignature((2, 8, 9, 9), (6, 8, 3, 3), padding=1),
        lambda _, out: out.__setitem__(..., np.array(out).swapaxes(2, 3)),
    ),
    "missed tail": (NHWC, lambda _, out: out[..., 4:].fill(np.nan)),
    "tail of zeros": (NHWC, lambda _, out: out[..., 4:].fill(0)),
    "one element": (PLAIN, put(3, None)),
    "one element never written": (PLAIN, put(500, np.nan)),
    "one Inf": (PLAIN, put(500, np.inf)),
    "sign": (PLAIN, nudge(-1)),
    "a thousandth off": (PLAIN, nudge(1.001)),
    "ten units in the last place": (PLAIN, lambda _, out: out.__iadd__(np.float32(2e-4) * (out == out.max()))),
    "stale workspace": (PLAIN, lambda ops, out: out.__iadd__(ops[0][0, 0, 0, 0] * np.float32(1e-3))),
    "dropped bias": (CONV, lambda ops, out: out.__setitem__(..., np.maximum(out - ops[2][:, None, None], 0))),
    "written twice into the sum": (PLAIN, lambda _, out: out.__imul__(2)),
    "operand changed": (PLAIN, lambda ops, _: ops[1].__setitem__((0, 0, 0, 0), 1)),
}


@pytest.mark.parametrize("fault", WRONG)
def test_faults_are_caught(fault):
    signature, spoil = WRONG[fault]
    for seed in range(3):
        verdict = verify(spoiled(signature, spoil), signature, seed)
        assert not verdict.ok, fault
        assert verdict.message


@pytest.mark.parametrize(
    ("signature", "byte", "words"),
    [
        (PLAIN, -1, "before"),
        (PLAIN, -60, "before"),
        (PLAIN, 2 * 6 * 9 * 10 * 4, "behind"),
        (PLAIN, 2 * 6 * 9 * 10 * 4 + 4000, "behind"),
        (PITCHED, 3 * 4, "gaps"),
        (PITCHED, (4 * 8 + 3) * 4, "gaps"),
    ],
)
def test_writes_beside_the_result_are_caught(signature, byte, words):
    def spoil(_operands, out):
        address = out.__array_interface__["data"][0] + byte
        np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * 1).from_address(address))[0] = 0

    verdict = verify(spoiled(signature, spoil), signature)
    assert not verdict.ok
    assert words in verdict.message


def test_one_wrong_element_in_a_million():
    signature = GemmSignature(m=1000, n=1024, k=8)
    truth = oracle(signature, sample_args(signature, 0))
    result = truth.value.astype(np.float32)
    assert check(result, truth, signature).ok
    for seed in range(5):
        at = tuple(np.random.default_rng(seed).integers(s) for s in result.shape)
        wrong = result.copy()
        wrong[at] += np.float32(1e-4)
        verdict = check(wrong, truth, signature)
        assert not verdict.ok
        assert verdict.worst_index == at
        assert "1 of 1024000" in verdict.message


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16"])
def test_one_missing_product_is_caught(name):
    signature = GemmSignature(m=64, n=64, k=4608, dtype=name)

    def call(a, b, out):
        out[...] = (a[:, :-1].astype(np.float64) @ b[:-1].astype(np.float64)).astype(out.dtype)

    assert not verify(call, signature).ok


def test_a_sum_in_the_wrong_type_is_caught():
    signature = GemmSignature(m=64, n=64, k=512, dtype="bf16")

    def call(a, b, out):
        total = np.zeros(out.shape, out.dtype)
        for i in range(0, 512, 64):
            total = total.astype(np.float32) + a[:, i : i + 64].astype(np.float32) @ b[i : i + 64].astype(np.float32)
            total = total.astype(out.dtype)
        out[...] = total

    assert not verify(call, signature).ok


def zero_weight_leak(*arrays):
    """Multiplies a neighbour by a zero weight: right for finite numbers, a leak for others."""
    *operands, out = arrays
    right(PLAIN)(*arrays)
    with np.errstate(all="ignore"):
        out[:, :, :, 2:] += np.float32(0) * operands[0].sum(axis=1, keepdims=True)[..., :-2]


def swallowing_relu(*arrays):
    right(CONV)(*arrays)
    out = arrays[-1]
    out[...] = np.where(out > 0, out, np.float32(0))


def skips_the_padding(*arrays):
    """A forward kernel that leaves the taps outside the image out: exact only for finite filters."""
    x, w, out = arrays
    out[...] = existing_only(x, w)


def existing_only(x, w):
    out = np.zeros((2, 6, 9, 10))
    for h in range(3):
        for t in range(3):
            rows, cols = slice(max(0, 1 - h), 9 - max(0, h - 1)), slice(max(0, 1 - t), 10 - max(0, t - 1))
            part = x[:, :, rows.start + h - 1 : rows.stop + h - 1, cols.start + t - 1 : cols.stop + t - 1]
            with np.errstate(all="ignore"):
                out[:, :, rows, cols] += np.einsum("nchw,kc->nkhw", part.astype(float), w[:, :, h, t].astype(float))
    return out


@pytest.mark.parametrize(
    ("signature", "kernel"),
    [(PLAIN, zero_weight_leak), (CONV, swallowing_relu), (PLAIN, skips_the_padding)],
    ids=["NaN leak", "relu swallows NaN", "padding left out"],
)
def test_faults_that_only_special_numbers_show(signature, kernel):
    assert verify(kernel, signature).ok
    for seed in range(3):
        assert not check_specials(kernel, signature, seed).ok


def test_reads_outside_an_operand_make_nan():
    operand = guarded_operands(PITCHED, sample_args(PITCHED, 0))[0]
    around = np.lib.stride_tricks.as_strided(operand.array, (2, 5, 6, 6), operand.array.strides)
    assert np.isnan(around[..., 4:]).all()
    assert not np.isnan(around[..., :4]).any()


@pytest.mark.parametrize("name", ["fp64", "fp32", "fp16", "bf16", "fp8e4m3", "fp8e5m2"])
def test_unwritten_memory_is_nan(name):
    fresh = guarded(dtype(name).numpy(), (3, 4), (5, 1))
    assert np.isnan(fresh.array.astype(np.float64)).all()
    assert fresh.out_of_bounds() == ""


@pytest.mark.parametrize(("name", "overflow"), [("fp16", np.inf), ("fp8e5m2", np.inf), ("fp8e4m3", np.nan)])
def test_overflow_stands_for_what_is_too_large_only(name, overflow):
    signature = GemmSignature(m=1, n=2, k=1, dtype=name)
    kind = dtype(name).numpy()

    def verdict(value, result):
        truth = Oracle(np.array([[value, 1.0]]), np.abs(np.array([[value, 1.0]])), np.array([[value, 1.0]]), 1)
        return check(np.array([[result, 1.0]]).astype(kind), truth, signature).ok

    assert verdict(1e6, overflow)
    assert not verdict(1e6, -np.inf if name != "fp8e4m3" else 1.0)
    assert not verdict(100.0, overflow)
    assert not verdict(1e6, 400.0)


def test_integers_are_compared_exactly():
    signature = SIGNATURES[8]

    def spoil(_operands, out):
        out.reshape(-1)[11] += 1

    verdict = verify(spoiled(signature, spoil), signature)
    assert not verdict.ok
    assert verdict.error == 1
    assert verdict.bound == 0


def test_planted_values_reach_corners_and_the_middle():
    copy = planted_copy(np.zeros((3, 4, 5), np.float32), (np.inf, -np.inf), 0)
    assert np.isinf(copy).sum() in (1, 2)


def cut(products):
    """Sums of fp8 products as tensor cores make them: 32 at a time, cut at 13 bits below the largest addend."""
    total = np.zeros(products.shape[:2])
    for first in range(0, products.shape[2], 32):
        addends = np.concatenate([total[..., None], products[..., first : first + 32]], axis=2)
        step = 2.0 ** (np.floor(np.log2(np.abs(addends).max(axis=2))) - 13)
        total = np.trunc(addends / step[..., None]).sum(axis=2) * step
    return total


@pytest.mark.parametrize("k", [32, 128])
def test_short_fp8_sums_of_which_one_product_is_most(k):
    """What tensor cores cut off passes; a sum without its second largest product does not."""
    signature = GemmSignature(64, 32, k, trans_b=True, dtype="fp8e5m2", c_dtype="fp32")
    a, b = sample_args(signature)
    a[:, 5], b[:, 5] = 16.0, 16.0
    a[:, 9], b[:, 9] = 4.0, 4.0
    products = a.astype(np.float64)[:, None] * b.astype(np.float64)[None]
    truth = oracle(signature, (a, b))
    assert check(cut(products).astype(np.float32), truth, signature).ok
    products[..., 9] = 0
    assert not check(cut(products).astype(np.float32), truth, signature).ok
