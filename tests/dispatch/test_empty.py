"""Problems without elements, and sums of no products: empty or zero results, as PyTorch gives them."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tilesmith import ConvSignature, Epilogue, GemmSignature, conv, forget, gemm, get_launchable, parse_key
from tilesmith.errors import ArgumentError, ProblemError
from tilesmith.torch_ops.trace import Trace


def same(got, want):
    """Shape and values, of either kind."""
    got = torch.from_numpy(got) if isinstance(got, np.ndarray) else got
    assert tuple(got.shape) == tuple(want.shape)
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)


def kinds(*tensors):
    """The arguments as PyTorch's tensors, then as arrays."""
    yield tensors
    yield tuple(None if t is None else t.numpy() for t in tensors)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("memory", ["first", "last"])
def test_an_empty_batch(dims, transposed, memory):
    op = getattr(F, f"conv{'_transpose' if transposed else ''}{dims}d")
    x, w, b = torch.randn(0, 4, *[6] * dims), torch.randn(4, 4, *[3] * dims), torch.randn(4)
    if memory == "last" and dims > 1:
        x = x.contiguous(memory_format=torch.channels_last if dims == 2 else torch.channels_last_3d)
    want = op(x, w, b, stride=2, padding=1)
    for args in kinds(x, w, b):
        for _ in range(3):
            same(conv(*args, stride=2, padding=1, transposed=transposed, activation="relu"), want)
    grouped = op(x, w[:, :2], groups=2)
    same(conv(x, w[:, :2], groups=2, transposed=transposed), grouped)
    residual = torch.randn(want.shape)
    same(conv(x, w, b, stride=2, padding=1, transposed=transposed, residual=residual), want)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("n", [0, 2])
def test_gradients_of_an_empty_batch(n, transposed):
    """An empty input gradient; gradients of the filter and the bias that are zero."""
    op = F.conv_transpose2d if transposed else F.conv2d
    x, w, b = torch.randn(n, 4, 6, 6), torch.randn(4, 3 if transposed else 4, 3, 3), torch.randn(3 if transposed else 4)
    y = op(x.requires_grad_(), w.requires_grad_(), b.requires_grad_())
    dy = torch.randn(y.shape)
    want = torch.autograd.grad(y, (x, w, b), dy)
    x, w = x.detach(), w.detach()
    for mode, args, each in zip(("bwd", "wrw", "bgrad"), ((dy, w), (dy, x), (dy,)), want, strict=True):
        launch = get_launchable(ConvSignature(tuple(x.shape), tuple(w.shape), mode=mode, transposed=transposed))
        for given in kinds(*args):
            got = launch(*given)
            got = torch.from_numpy(got) if isinstance(got, np.ndarray) else got
            torch.testing.assert_close(got, each, atol=1e-3, rtol=1e-3)


def test_no_input_channels():
    """As PyTorch has it: no channels in, none out."""
    x, w, b = torch.randn(2, 0, 5, 5), torch.randn(4, 0, 3, 3), torch.randn(4)
    for args in kinds(x, w, b):
        same(conv(*args), F.conv2d(x, w, b))
    signature = ConvSignature((2, 0, 5, 5), (4, 0, 3, 3), mode="bgrad")
    same(get_launchable(signature)(torch.randn(signature.output_shape)), torch.zeros(4))


SIZES = [(0, 4, 5), (3, 0, 5), (3, 4, 0), (0, 0, 0)]


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
@pytest.mark.parametrize("batch", [(), (1,), (2,), (0,)])
def test_products(m, n, k, batch):
    a, b = torch.randn(*batch, m, k), torch.randn(*batch, k, n)
    c, bias, z = torch.randn(*batch, m, n), torch.randn(n), torch.randn(*batch, m, n)
    for ta in (False, True):
        given = (a.mT.contiguous() if ta else a), b
        for args in kinds(*given, c, bias, z):
            one, two, three, four, five = args
            same(gemm(one, two, trans_a=ta), a @ b)
            same(gemm(one, two, three, four, beta=-0.5, trans_a=ta), a @ b - 0.5 * c + bias)
            for activation in ("relu", "silu", "gelu", "leaky_relu", "clamp"):
                got = gemm(one, two, bias=four, residual=five, activation=activation, trans_a=ta)
                act = {"clamp": F.relu6}.get(activation) or getattr(F, activation)
                same(got, act(a @ b + bias + z))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int8])
def test_other_types(dtype):
    a, b = torch.ones(3, 0).to(dtype), torch.ones(0, 4).to(dtype)
    wide = torch.int32 if dtype == torch.int8 else dtype
    same(gemm(a, b), torch.zeros(3, 4, dtype=wide))
    same(gemm(a, b, bias=torch.ones(4).to(wide)), torch.ones(3, 4, dtype=wide))


@pytest.mark.parametrize("mode", ["fast", "strict", "hybrid"])
def test_a_launchable_without_elements(mode, tmp_path, monkeypatch):
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "none"))
    signature = GemmSignature(3, 4, 0, epilogue=Epilogue(bias=True), ldc=7)
    launch = get_launchable(signature, mode=mode)
    a, b, bias = torch.ones(3, 0), torch.ones(0, 4), torch.randn(4)
    want = bias.expand(3, 4)
    same(launch(a, b, bias), want)
    assert launch(a, b, bias).stride() == (7, 1)
    prepared = launch.prepare(b)
    same(prepared(a, bias), want)
    out = torch.full((3, 7), 5.0)
    assert launch(a, b, bias, out=out[:, :4]) is not None
    same(out, torch.cat([want, torch.full((3, 3), 5.0)], 1))
    assert out._version == 1
    for again, layer in (copy.deepcopy((launch, prepared)), pickle.loads(pickle.dumps((launch, prepared)))):
        same(again(a, b, bias), want)
        same(layer(a, bias), want)
    assert not launch.prepares
    assert "no elements" in repr(launch)
    with pytest.raises(ProblemError, match="has no elements"):
        launch.plan  # noqa: B018
    assert not (tmp_path / "none").exists()


def test_c_in_place():
    launch = get_launchable(GemmSignature(3, 4, 0, beta=0.5))
    c = torch.randn(3, 4)
    want = 0.5 * c
    same(launch(torch.ones(3, 0), torch.ones(0, 4), c, out=c), want)
    same(c, want)


def test_arguments_are_checked_as_ever():
    launch = get_launchable(ConvSignature((0, 4, 6, 6), (5, 4, 3, 3)))
    x, w = np.zeros((0, 4, 6, 6), np.float32), np.zeros((5, 4, 3, 3), np.float32)
    for call, words in (
        (lambda: launch(x), r"takes 2 tensors \(x, w\), got 1"),
        (lambda: launch(x[:, :3], w), r"x must have shape \(0, 4, 6, 6\), got \(0, 3, 6, 6\)"),
        (lambda: launch(x, w.astype(np.float64)), "w must have dtype float32, got float64"),
        (lambda: launch(x, torch.from_numpy(w)), "w is a PyTorch tensor"),
        (lambda: launch(x, w, out=np.zeros((0, 4, 4, 4), np.float32)), r"out must have shape \(0, 5, 4, 4\)"),
        (lambda: launch(x.tolist(), w), "x must be a NumPy array"),
        (lambda: torch.vmap(launch, (0, None))(torch.zeros(2, *x.shape), torch.from_numpy(w)), "vmap cannot transform"),
        (lambda: launch(torch.from_numpy(x), torch.from_numpy(w), out=torch.zeros(0, 5, 4, 4, requires_grad=True)),
         "out is a leaf"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=words):
            call()


def test_what_pytorch_refuses_is_refused():
    for shape, filter_, words in (
        ((2, 4, 0, 5), (5, 4, 3, 3), r"input_shape\[2\] must be an integer from 1"),
        ((2, 4, 5, 5), (0, 4, 3, 3), r"kernel_shape\[0\] must be an integer from 1"),
        ((2, 4, 5, 5), (5, 4, 0, 3), r"kernel_shape\[2\] must be an integer from 1"),
        ((2, 4, 5, 5), (5, 0, 3, 3), "second axis"),
    ):
        with pytest.raises(ProblemError, match=words):
            conv(np.zeros(shape, np.float32), np.zeros(filter_, np.float32))
        with pytest.raises(RuntimeError):
            F.conv2d(torch.zeros(shape), torch.zeros(filter_))
    with pytest.raises(ProblemError, match=r"kernel_shape\[1\] must be an integer from 1"):
        conv(np.zeros((2, 4, 5, 5), np.float32), np.zeros((4, 0, 3, 3), np.float32), transposed=True)


def test_nothing_without_elements_is_tuned_or_stored(tmp_path):
    from tilesmith.dispatch.locations import open_databases
    from tilesmith.targets.detect import host_target
    from tilesmith.toolchain.cache import ArtifactCache
    from tilesmith.tune.session import tune

    for signature in (ConvSignature((0, 4, 6, 6), (5, 4, 3, 3)), GemmSignature(3, 4, 0)):
        with pytest.raises(ProblemError, match="has no elements"):
            tune(signature, host_target(1), database=open_databases().writable, cache=ArtifactCache(tmp_path))
        with pytest.raises(ProblemError, match="has no elements"):
            parse_key(signature.key())
    with Trace() as trace:
        F.conv2d(torch.randn(0, 4, 6, 6), torch.randn(5, 4, 3, 3))
        torch.randn(3, 0) @ torch.randn(0, 4)
    assert trace.problems == {}


def test_batches_come_and_go():
    """A call with an empty batch between others of its kind takes nothing from them."""
    w = torch.randn(5, 4, 3, 3)
    forget()
    for n in (2, 0, 2, 0, 1, 0):
        x = torch.randn(n, 4, 6, 6)
        torch.testing.assert_close(conv(x, w), F.conv2d(x, w), atol=1e-4, rtol=1e-4)
