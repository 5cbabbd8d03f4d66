"""Sample arguments: order, layout, signs, repeatability; and the counts of work."""

from __future__ import annotations

import itertools
import time

import ml_dtypes
import numpy as np
import pytest
import torch

from tilesmith.errors import ArgumentError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.samples import sample_args
from tilesmith.problems.work import bytes_moved, flops, least_work

SIG = {"input_shape": (2, 8, 9, 4), "kernel_shape": (6, 3, 3, 4), "shared_layout": "NHWC"}
FULL = Epilogue(bias=True, residual=True)


@pytest.mark.parametrize(
    ("mode", "epilogue", "shapes"),
    [
        ("fwd", FULL, [(2, 8, 9, 4), (6, 3, 3, 4), (6,), (2, 6, 7, 6)]),
        ("bwd", FULL, [(2, 6, 7, 6), (6, 3, 3, 4), (4,), (2, 8, 9, 4)]),
        ("wrw", Epilogue(), [(2, 6, 7, 6), (2, 8, 9, 4)]),
        ("bgrad", Epilogue(), [(2, 6, 7, 6)]),
    ],
)
def test_order(mode, epilogue, shapes):
    assert [a.shape for a in sample_args(ConvSignature(**SIG, mode=mode, epilogue=epilogue))] == shapes


def test_gemm_order():
    sig = GemmSignature(m=2, n=3, k=4, trans_b=True, beta=1.0, epilogue=FULL)
    assert [a.shape for a in sample_args(sig)] == [(2, 4), (3, 4), (3,), (2, 3), (2, 3)]


def test_values():
    one, same, other = (sample_args(ConvSignature(**SIG), seed) for seed in (1, 1, 2))
    for a, b, c in zip(one, same, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert (a != c).any()
        assert (a < 0).any()
        assert (a > 0).any()
    assert (one[0].ravel()[:50] != one[1].ravel()[:50]).any()
    x, w = sample_args(ConvSignature(**SIG, dtype="int8"))
    assert x.dtype == np.int8
    assert x.min() < -100
    assert x.max() > 100


def test_dtypes():
    sig = ConvSignature(**SIG, input_dtype="bf16", kernel_dtype="fp8e4m3", output_dtype="fp64", epilogue=FULL)
    kinds = [a.dtype for a in sample_args(sig)]
    assert kinds == [np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn), np.float64, np.float64]


def test_narrow_results_stay_finite():
    sig = GemmSignature(m=8, n=8, k=20000, dtype="fp8e4m3")
    a, b = (x.astype(np.float64) for x in sample_args(sig))
    assert np.abs(a @ b).max() < 448


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp8e5m2", "int8"])
def test_pitches_hold_nan(dtype):
    sig = ConvSignature(**SIG, dtype=dtype, input_strides=(1000, 90, 7, 1))
    x = sample_args(sig)[0]
    assert x.strides == tuple(x.itemsize * s for s in (1000, 90, 7, 1))
    assert not np.isnan(x.astype(np.float64)).any()
    bits = x.view(f"u{x.itemsize}")
    memory = np.lib.stride_tricks.as_strided(bits, (7,), (x.itemsize,)).view(x.dtype).astype(np.float64)
    assert all(memory[4:] == -1) if dtype == "int8" else np.isnan(memory[4:]).all()


def test_large_tensors_are_faster_than_random_numbers():
    sig = ConvSignature((32, 256, 56, 56), (256, 256, 1, 1), dtype="bf16")
    x, _ = sample_args(sig)

    def seconds(call):  # of this process, however busy the machine is
        begin = time.process_time()
        call()
        return time.process_time() - begin

    an_eighth = min(seconds(lambda: np.random.default_rng(0).standard_normal(x.size // 8, np.float32)) for _ in "12")
    assert min(seconds(lambda: sample_args(sig)) for _ in "12") < 8 * an_eighth
    assert x.nbytes > 5e7
    assert (x[0] != x[1]).any()


def test_torch():
    sig = ConvSignature(**SIG, dtype="bf16", input_strides=(1000, 90, 7, 1), epilogue=FULL)
    arrays, tensors = sig.get_sample_args(seed=4), sig.get_sample_args(device="cpu", seed=4)
    for array, tensor in zip(arrays, tensors, strict=True):
        assert tensor.dtype == torch.bfloat16
        assert tuple(tensor.shape) == array.shape
        assert tensor.stride() == tuple(s // array.itemsize for s in array.strides)
        np.testing.assert_array_equal(tensor.double().numpy(), array.astype(np.float64))
    fp8 = GemmSignature(2, 3, 4, dtype="fp8e4m3").get_sample_args(device="cpu")[0]
    assert fp8.dtype == torch.float8_e4m3fn
    assert GemmSignature(2, 3, 4, dtype="int8").get_sample_args(device="cpu")[0].dtype == torch.int8


@pytest.mark.parametrize(
    ("request_", "says"),
    [({"seed": -1}, "-1"), ({"seed": 1.5}, "1.5"), ({"seed": True}, "True"), ({"device": "banana"}, "'banana'")],
)
def test_seeds_and_devices_that_do_not_exist(request_, says):
    with pytest.raises(ArgumentError, match=says) as caught:
        ConvSignature(**SIG).get_sample_args(**request_)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_flops(dims, transposed):
    """Counted by hand: each output element (each input element when transposed) meets every tap."""
    size, taps = (7, 6, 5)[:dims], (3, 2, 1)[:dims]
    kernel = (4, 3) if transposed else (6, 2)
    sig = ConvSignature((2, 4, *size), (*kernel, *taps), stride=2, padding=1, groups=2, transposed=transposed)
    per_pixel = int(np.prod(taps)) * 2 * 6 * 2
    pixels = 2 * int(np.prod(size if transposed else sig.output_logical[2:]))
    for mode in ("fwd", "bwd", "wrw"):
        assert flops(ConvSignature(**{**_fields(sig), "mode": mode})) == pixels * per_pixel
    bgrad = ConvSignature(**{**_fields(sig), "mode": "bgrad"})
    assert flops(bgrad) == int(np.prod(sig.output_logical))
    assert bytes_moved(bgrad) == 4 * (int(np.prod(sig.output_logical)) + 6)


def _fields(sig: ConvSignature) -> dict:
    names = ("input_shape", "kernel_shape", "stride", "padding", "groups", "transposed")
    return {name: getattr(sig, name) for name in names}


def test_bytes():
    sig = ConvSignature(**SIG, input_dtype="bf16", kernel_dtype="fp32", output_dtype="fp64", epilogue=FULL)
    out = 2 * 6 * 7 * 6
    assert bytes_moved(sig) == 2 * (2 * 8 * 9 * 4) + 4 * (6 * 3 * 3 * 4) + 8 * (6 + 2 * out)
    assert bytes_moved(ConvSignature(**SIG, input_strides=(1000, 90, 7, 1))) == bytes_moved(ConvSignature(**SIG))
    assert bytes_moved(GemmSignature(2, 3, 4, batch=5)) == 4 * 5 * (8 + 12 + 6)
    assert bytes_moved(GemmSignature(2, 3, 4, batch=5, stride_b=0, beta=1.0)) == 4 * (5 * 8 + 12 + 2 * 5 * 6)
    assert flops(GemmSignature(2, 3, 4, batch=5)) == 2 * 5 * 24


def test_least_work_counts_products_and_pixels_that_are_read():
    """Against a loop over outputs and taps."""
    for mode, options in itertools.product(
        ("fwd", "bwd", "wrw"),
        ({"stride": 2}, {"padding": 2}, {"stride": 3, "dilation": 2}, {"padding": ((0, 3), (2, 0))}),
    ):
        sig = ConvSignature((2, 6, 7, 9), (4, 6, 2, 1), mode=mode, dtype="bf16", **options)
        g = sig.geometry
        pairs, read, used = 0, set(), set()
        for place in itertools.product(*(range(n) for n in g.output)):
            for tap in itertools.product(*(range(n) for n in g.filter)):
                at = tuple(
                    o * s - p + t * d for o, s, p, t, d in zip(place, g.stride, g.padding, tap, g.dilation, strict=True)
                )
                if all(0 <= a < n for a, n in zip(at, g.input, strict=True)):
                    pairs += 1
                    read.add(at)
                    used.add(place)
        x, y = len(read) * 2 * 6 * 2, len(used) * 2 * 4 * 2
        if mode == "fwd":
            y = 2 * 4 * len(list(itertools.product(*(range(n) for n in g.output)))) * 2
        if mode == "bwd":
            x = 2 * 6 * 7 * 9 * 2
        assert least_work(sig) == (2 * 2 * 4 * 6 * pairs, x + y + 4 * 6 * 2 * 2)
    gemm = GemmSignature(2, 3, 4)
    assert least_work(gemm) == (flops(gemm), bytes_moved(gemm))
