"""``frozen=True``: a filter is packed once, and anew when it has changed; nothing of a dead filter is kept."""

import gc

import pytest
import torch
from torch.nn import functional

import tilesmith
import tilesmith.torch_ops
from tilesmith.torch_ops import frozen
from tilesmith.torch_ops.results import padding_sides

ops = torch.ops.tilesmith


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def layer(x, w, b=None, residual=None, **more):
    return ops.convolution(x, w, b, residual, [1], [1], [1], False, [0], 1, frozen=True, **more)


@pytest.fixture(autouse=True)
def _forgotten():
    tilesmith.forget()


def packed():
    return [each for known in frozen._filters.values() for each in known._packed.values()]


def test_a_filter_is_packed_once_and_again_after_a_change():
    x, w, b, z = randn(2, 16, 9, 8), randn(24, 16, 3, 3, seed=1), randn(24, seed=2), randn(2, 24, 9, 8, seed=3)
    for _ in range(3):
        assert torch.allclose(layer(x, w, b), functional.conv2d(x, w, b, padding=1), atol=1e-4)
    first = packed()
    assert len(first) == 1
    assert first[0] is not None
    w.mul_(2)
    want = functional.conv2d(x, w, b, padding=1)
    assert torch.allclose(layer(x, w, b), want, atol=1e-4)
    assert packed() != first
    assert torch.allclose(layer(x, w, b, z, activation="relu"), (want + z).relu(), atol=1e-4)
    w.data = randn(24, 16, 3, 3, seed=4)  # changes the address, not the version
    assert torch.allclose(layer(x, w), functional.conv2d(x, w, padding=1), atol=1e-4)


def test_a_frozen_filter_has_gradients():
    x, w = randn(2, 16, 9, 8).requires_grad_(), randn(24, 16, 3, 3, seed=1).requires_grad_()
    found, want = (
        torch.autograd.grad(y.sum(), (x, w)) for y in (layer(x, w, activation="silu"),
        functional.silu(functional.conv2d(x, w, padding=1)))
    )  # fmt: skip
    assert all(torch.allclose(one, other, atol=1e-3) for one, other in zip(found, want, strict=True))


def test_a_dead_filter_leaves_nothing():
    x, w = randn(2, 16, 9, 8), randn(24, 16, 3, 3, seed=1)
    layer(x, w)
    weight, a = torch.nn.Parameter(randn(24, 64)), randn(5, 64)
    for _ in range(2):
        y = ops.gemm(a, weight.mT, None, None, frozen=True)
        assert torch.allclose(y, a @ weight.mT, atol=1e-4)
    assert len(packed()) == 2
    del w, weight, y
    gc.collect()
    assert not frozen._filters


def test_an_inference_tensor_may_change():
    x = randn(2, 16, 9, 8)
    with torch.inference_mode():
        w = randn(24, 16, 3, 3, seed=1)
        for _ in range(2):
            assert torch.allclose(layer(x, w), functional.conv2d(x, w, padding=1), atol=1e-4)
            w.mul_(2)


@pytest.mark.parametrize("transposed", [False, True])
def test_padding_of_two_sides(transposed):
    x, w = (randn(*s, seed=i).double().requires_grad_() for i, s in enumerate([(2, 4, 6, 5), (4, 4, 3, 3)]))
    low, high, left, right = 1, 0, 2, 1
    y = ops.convolution(x, w, None, None, [2], [low, high, left, right], [1], transposed, [0], 1)
    if transposed:
        full = functional.conv_transpose2d(x, w, stride=2)
        want = full[:, :, low : full.shape[2] - high, left : full.shape[3] - right]
    else:
        want = functional.conv2d(functional.pad(x, (left, right, low, high)), w, stride=2)
    assert torch.allclose(y, want)
    grads = [torch.autograd.grad(r.square().sum(), (x, w), create_graph=True) for r in (y, want)]
    assert all(map(torch.allclose, *grads))
    again = [torch.autograd.grad(sum(g.square().sum() for g in each), (x, w)) for each in grads]
    assert all(map(torch.allclose, *again))


def test_padding_of_a_wrong_length():
    assert padding_sides([1, 2], 1) == ((1, 2),)
    with pytest.raises(RuntimeError, match="3 elements, not 1 or 2 or 4"):
        padding_sides([1, 2, 3], 2)
