"""``torch.library.opcheck`` of the operators over random signatures.

Most of them run with kernels that write zeros where the real ones write their results: what is checked there is all
that the operators add to a kernel.
"""

import random

import pytest
import torch

import tilesmith.torch_ops  # noqa: F401
from tilesmith.dispatch import eager, kept_calls
from tilesmith.torch_ops import gradients
from torch_signatures import Zeros, randn, signature

ops = torch.ops.tilesmith
CHEAP = ("test_schema", "test_autograd_registration", "test_faketensor")
WHOLE = (*CHEAP, "test_aot_dispatch_dynamic")
MANY = 80  # signatures of the cheap tests
# Of all tests: among them each number of axes, each type, and each other property with and without.
SOME, REAL = (2000, 2001, 2002, 2038, 2040), (3000,)
ACTIVATIONS = ("none", "relu", "leaky_relu", "silu", "gelu", "clamp")
BATCH = 40


@pytest.fixture
def _zeros(monkeypatch):
    for module in (eager, gradients):
        monkeypatch.setattr(module, "get_launchable", Zeros)
    kept_calls.forget()
    yield
    kept_calls.forget()


def check(seed, tests):
    x, w, b, options = signature(seed, two_sides=True)
    draw = random.Random(seed)
    x, w = x.requires_grad_(draw.random() < 0.7), w.requires_grad_(draw.random() < 0.7)
    y = ops.convolution(x, w, b, None, *options).detach()
    residual = y if draw.random() < 0.5 else None
    epilogue = (draw.choice(ACTIVATIONS), 0.2, -1.0, 2.0, draw.random() < 0.2)
    torch.library.opcheck(ops.convolution.default, (x, w, b, residual, *options, *epilogue), test_utils=tests)
    dy = randn(*y.shape, dtype=y.dtype).requires_grad_(draw.random() < 0.5)
    mask = [draw.random() < 0.7 for _ in range(3)]
    torch.library.opcheck(ops.convolution_backward.default, (dy, x, w, *options, mask), test_utils=tests)


@pytest.mark.usefixtures("_zeros")
@pytest.mark.parametrize("first", range(0, MANY, BATCH))
def test_schemas_registrations_and_fake_kernels(first):
    for seed in range(first, first + BATCH):
        check(1000 + seed, CHEAP)


@pytest.mark.usefixtures("_zeros")
@pytest.mark.parametrize("seed", SOME)
def test_compiled_with_gradients(seed):
    check(seed, WHOLE)


@pytest.mark.parametrize("seed", REAL)
def test_compiled_with_gradients_and_real_kernels(seed):
    check(seed, WHOLE)


@pytest.mark.parametrize(("batch", "activation"), [((), "relu"), ((3,), "silu")])
def test_products(batch, activation):
    a, b = randn(*batch, 4, 5).requires_grad_(), randn(*batch, 6, 5).mT.requires_grad_()
    torch.library.opcheck(ops.gemm.default, (a, b, randn(6).requires_grad_(), randn(*batch, 4, 6), activation))
