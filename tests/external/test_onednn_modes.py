"""Every mode of the vendor's side computes the problem: against float64 PyTorch on random data of both signs."""

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tilesmith.compare import onednn
from tilesmith.compare.rival import Setting
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import ACTIVATIONS, Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.targets.detect import host_target
from torch_answer import activated

NUMPY = {"fp32": np.float32, "bf16": ml_dtypes.bfloat16, "fp64": np.float64}
TOLERANCE = {"fp32": 2e-5, "bf16": 3e-2, "fp64": 1e-12}


def prepacked(dtype):
    """The mode's name where oneDNN has kernels of this type for this CPU: bf16 wants AVX-512."""
    able = dtype != "bf16" or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return ["prepacked"] if able else []


def draw(shape, dtype, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype(NUMPY[dtype])


def wide(array):
    return torch.from_numpy(np.asarray(array).astype(np.float64))


def setting_of(signature, arguments, threads=1):
    return Setting(signature, arguments, host_target(threads))


def agree(signature, arguments, want, dtype, least, times=1):
    with onednn.ways("onednn", setting_of(signature, arguments)) as ways:
        names = [way.name for way in ways]
        assert set(least) <= set(names), names
        scale = want.abs().max().item()
        for way in ways * times:
            got = way.values(way.calls[0]())
            assert got.shape == tuple(want.shape), way.name
            error = (wide(got) - want).abs().max().item() / scale
            assert error < TOLERANCE[dtype], (way.name, error)


CONVS = [
    {"input_shape": (2, 8, 9, 11), "kernel_shape": (16, 8, 3, 3), "padding": 1},
    {"input_shape": (2, 8, 9, 11), "kernel_shape": (16, 4, 3, 2), "padding": (1, 0), "stride": (2, 3), "groups": 2},
    {"input_shape": (1, 16, 12, 12), "kernel_shape": (16, 1, 3, 3), "padding": 2, "dilation": 2, "groups": 16},
    {"input_shape": (2, 4, 20), "kernel_shape": (6, 4, 5), "stride": 2, "padding": 1},
    {"input_shape": (1, 4, 5, 6, 7), "kernel_shape": (6, 4, 3, 3, 2), "stride": (1, 2, 2), "padding": 1},
    {"input_shape": (2, 8, 5, 6), "kernel_shape": (8, 6, 4, 4), "stride": 2, "padding": 1, "transposed": True},
    {
        "input_shape": (2, 8, 5, 6),
        "kernel_shape": (8, 3, 3, 3),
        "stride": 2,
        "output_padding": 1,
        "groups": 2,
        "transposed": True,
    },
]


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("mode", ["fwd", "bwd", "wrw", "bgrad"])
@pytest.mark.parametrize("shape", CONVS, ids=range(len(CONVS)))
def test_convolution(shape, mode, dtype):
    sig = ConvSignature(**shape, mode=mode, dtype=dtype)
    x, w = draw(sig.input_shape, dtype, 1), draw(sig.kernel_shape, dtype, 2)
    dy = draw(sig.output_shape, dtype, 3)
    dims = len(sig.stride)
    tx, tw = wide(x).requires_grad_(), wide(w).requires_grad_()
    if sig.transposed:
        op = getattr(F, f"conv_transpose{dims}d")
        ty = op(tx, tw, None, sig.stride, sig.padding, sig.output_padding, sig.groups, sig.dilation)
    else:
        ty = getattr(F, f"conv{dims}d")(tx, tw, None, sig.stride, sig.padding, sig.dilation, sig.groups)
    dx, dw = torch.autograd.grad(ty, (tx, tw), wide(dy))
    want = {"fwd": ty.detach(), "bwd": dx, "wrw": dw, "bgrad": wide(dy).sum([0, *range(2, 2 + dims)])}[mode]
    if dims == 1 and mode != "bgrad":  # results are those of the canonical problem, which has a unit height
        want = want.unsqueeze(-2)
    arguments = {"fwd": (x, w), "bwd": (dy, w), "wrw": (dy, x), "bgrad": (dy,)}[mode]
    least = ["contiguous", "channels_last"]
    if sig.canonical.mode in ("fwd", "bwd"):
        least += prepacked(dtype)
    agree(sig, arguments, want, dtype, least)


@pytest.mark.parametrize("layout", ["NHWC", "NCHWc4", "CHWN"])
def test_layouts_and_pitches(layout):
    sizes = {"N": 2, "C": 8, "H": 6, "W": 7}
    order = layout.removesuffix("c4")
    vector = 4 if layout.endswith("c4") else 1
    shape = tuple(sizes[a] // (vector if a == "C" else 1) for a in order) + ((4,) if vector > 1 else ())
    sig = ConvSignature(shape, (5, 8, 3, 3), input_layout=layout, padding=1)
    x, w = draw(shape, "fp32", 1), draw((5, 8, 3, 3), "fp32", 2)
    logical = {
        "NHWC": lambda: x.transpose(0, 3, 1, 2),
        "CHWN": lambda: x.transpose(3, 0, 1, 2),
        "NCHWc4": lambda: x.transpose(0, 1, 4, 2, 3).reshape(2, 8, 6, 7),
    }[layout]()
    agree(sig, (x, w), F.conv2d(wide(logical), wide(w), padding=1), "fp32", ["prepacked"])


def test_channel_pitch():
    big = draw((2, 6, 7, 12), "fp32", 1)
    x, w = big[..., :8], draw((5, 8, 3, 3), "fp32", 2)
    strides = tuple(s // 4 for s in x.strides)
    sig = ConvSignature(x.shape, w.shape, input_layout="NHWC", kernel_layout="NCHW", input_strides=strides)
    agree(sig, (x, w), F.conv2d(wide(x.transpose(0, 3, 1, 2)), wide(w)), "fp32", ["prepacked"])


@pytest.mark.parametrize("direction", ["fwd", "bwd"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("residual", [False, True])
def test_epilogue(direction, activation, residual):
    epilogue = Epilogue(bias=True, activation=activation, residual=residual, slope=0.2, low=-0.5, high=1.5)
    sig = ConvSignature((2, 8, 9, 9), (8, 8, 3, 3), padding=1, mode=direction, epilogue=epilogue)
    first, w, b = draw((2, 8, 9, 9), "fp32", 1), draw((8, 8, 3, 3), "fp32", 2), draw((8,), "fp32", 3)
    z = draw((2, 8, 9, 9), "fp32", 4)
    op = F.conv2d if direction == "fwd" else F.conv_transpose2d
    r = op(wide(first), wide(w), wide(b), padding=1) + (wide(z) if residual else 0)
    want = activated(r, epilogue)
    arguments = (first, w, b, z) if residual else (first, w, b)
    # A second call is not fed the first one's result.
    agree(sig, arguments, want, "fp32", ["contiguous", "channels_last", "prepacked"], times=2)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("ta", "tb"), [(False, False), (False, True), (True, False), (True, True)])
def test_gemm(ta, tb, batch, dtype):
    sig = GemmSignature(m=7, n=12, k=20, batch=batch, trans_a=ta, trans_b=tb, dtype=dtype)
    a, b = draw(sig.a_shape, dtype, 1), draw(sig.b_shape, dtype, 2)
    ka, kb = wide(a), wide(b)
    want = ((ka.mT if ta else ka) @ (kb.mT if tb else kb)).reshape(batch, 7, 12)
    least = ["mm", "linear", *prepacked(dtype)] if batch == 1 else ["mm"]
    agree(sig, (a, b), want, dtype, least)


def test_gemm_scaled_with_epilogue():
    sig = GemmSignature(
        m=7, n=12, k=20, alpha=0.5, beta=-2.0, epilogue=Epilogue(bias=True, residual=True, activation="relu")
    )
    a, b, bias = draw((7, 20), "fp32", 1), draw((20, 12), "fp32", 2), draw((12,), "fp32", 3)
    z, c = draw((7, 12), "fp32", 4), draw((7, 12), "fp32", 5)
    want = (0.5 * wide(a) @ wide(b) - 2 * wide(c) + wide(bias) + wide(z)).relu().reshape(1, 7, 12)
    agree(sig, (a, b, bias, z, c), want, "fp32", ["mm"])


def test_threads_are_set_and_integers_have_no_mode():
    sig = ConvSignature((1, 4, 4, 4), (4, 4, 1, 1), dtype="int8")
    ones = np.ones((1, 4, 4, 4), np.int8)
    with onednn.ways("onednn", setting_of(sig, (ones, np.ones((4, 4, 1, 1), np.int8)), threads=2)) as ways:
        assert ways == ()
    assert torch.get_num_threads() == 2
