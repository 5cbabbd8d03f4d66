"""``torch.ops.tilesmith``: numbers, gradients, fake kernels and compiled graphs, against PyTorch's own operators."""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch.nn import functional

import tilesmith
import tilesmith.torch_ops
from tilesmith.dispatch import eager, kept_calls
from tilesmith.torch_ops import gradients
from tilesmith.torch_ops.arguments import ConvArguments
from tilesmith.torch_ops.trace import Trace
from torch_signatures import Zeros, randn, signature

ops = torch.ops.tilesmith
aten = torch.ops.aten
# Random signatures of each check, whose pairs of properties are nearly all that 24 in a row have.
NUMBERS = (0, 1, 2, 3, 4, 5, 10, 13, 14, 19, 21, 23)
LYING = (100, 101, 104, 107, 108, 111, 113, 116, 117, 119, 120, 123)
BOUNDS = {torch.float64: 1e-9, torch.float32: 1e-3, torch.bfloat16: 0.25}
ACTIVATIONS = {
    "none": lambda y: y, "relu": torch.relu, "leaky_relu": functional.leaky_relu, "silu": functional.silu,
    "gelu": functional.gelu, "clamp": functional.relu6, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
    "hardswish": functional.hardswish,
    "hardsigmoid": lambda y: functional.relu6(y + 3) / 6,  # PyTorch has no second derivative of its own
    "gelu_tanh": lambda y: functional.gelu(y, approximate="tanh"),
}  # fmt: skip


def close(found, want):
    assert found.dtype == torch.float64 or found.shape == want.shape
    return (found.double() - want.double()).abs().max() <= BOUNDS[found.dtype] * max(1.0, want.abs().max().item())


@pytest.mark.parametrize("seed", NUMBERS)
def test_numbers_and_gradients(seed):
    x, w, b, options = signature(seed)
    mine = [None if t is None else t.clone().requires_grad_() for t in (x, w, b)]
    exact = [None if t is None else t.double().requires_grad_() for t in (x, w, b)]
    y = ops.convolution(*mine, None, *options, "none")
    want = aten.convolution(*exact, *options)
    assert close(y, want)
    dy = randn(*y.shape, dtype=y.dtype, seed=9)
    operands = [t for t in mine if t is not None]
    found = torch.autograd.grad(y, operands, dy)
    for grad, operand, right in zip(
        found, operands, torch.autograd.grad(want, [t for t in exact if t is not None], dy.double()), strict=True
    ):
        assert grad.shape == operand.shape
        assert grad.dtype == operand.dtype
        assert close(grad, right)


@pytest.mark.parametrize("seed", LYING)
def test_fake_results_lie_as_real_ones(seed, monkeypatch, request):
    """No kernel decides how results lie: all but a few of this test write zeros."""
    if seed % 4:
        for module in (eager, gradients):
            monkeypatch.setattr(module, "get_launchable", Zeros)
        kept_calls.forget()
        request.addfinalizer(kept_calls.forget)
    x, w, b, options = signature(seed)
    y = ops.convolution(x, w, b, None, *options, "relu")
    mask = [seed % 2 == 0, seed % 3 != 0, True]
    real = (y, *ops.convolution_backward(y, x, w, *options, mask))
    with torch._subclasses.FakeTensorMode() as mode:
        fx, fw, fb = (None if t is None else mode.from_tensor(t) for t in (x, w, b))
        fy = ops.convolution(fx, fw, fb, None, *options, "relu")
        fake = (fy, *ops.convolution_backward(fy, fx, fw, *options, mask))
    for one, other in zip(real, fake, strict=True):
        assert (one.shape, one.dtype, one.stride()) == (other.shape, other.dtype, other.stride())


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("create_graph", [False, True])
def test_activations_and_residuals(activation, create_graph):
    x, w, b = randn(2, 4, 6, 5), randn(3, 4, 3, 3, seed=1), randn(3, seed=2)
    z = randn(2, 3, 6, 5, seed=3).to(memory_format=torch.channels_last)
    leaves = [t.double().requires_grad_() for t in (x, w, b, z)]
    y = ops.convolution(*leaves, [1], [1], [1], False, [0], 1, activation)
    want = ACTIVATIONS[activation](functional.conv2d(*leaves[:3], padding=1) + leaves[3])
    assert torch.allclose(y, want)
    found = torch.autograd.grad(y.square().sum(), leaves, create_graph=create_graph)
    right = torch.autograd.grad(want.square().sum(), leaves, create_graph=create_graph)
    assert all(map(torch.allclose, found, right))
    if create_graph:
        again = [torch.autograd.grad(sum(g.square().sum() for g in grads), leaves) for grads in (found, right)]
        assert all(map(torch.allclose, *again))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_products(activation):
    a, b, bias, z = (t.double().requires_grad_() for t in (randn(4, 5), randn(5, 6), randn(6), randn(4, 6, seed=4)))
    y = ops.gemm(a, b, bias, z, activation)
    want = ACTIVATIONS[activation](a @ b + bias + z)
    assert torch.allclose(y, want)
    found, right = (torch.autograd.grad(r.square().sum(), (a, b, bias, z), create_graph=True) for r in (y, want))
    assert all(map(torch.allclose, found, right))
    again, right_again = (torch.autograd.grad(sum(g.square().sum() for g in grads), (a, b)) for grads in (found, right))
    assert all(map(torch.allclose, again, right_again))


@pytest.mark.parametrize("transposed", [False, True])
def test_gradcheck(transposed):
    x, w, b = (randn(*s, dtype=torch.float64).requires_grad_() for s in ((2, 2, 4, 3), (2, 2, 2, 2), (2,)))

    def call(x, w, b):
        return ops.convolution(x, w, b, None, [2, 1], [1, 0], [1, 2], transposed, [0, 0], 1, "none")

    if not transposed:
        call(x, w, b).sum().backward()
    assert torch.autograd.gradcheck(call, (x, w, b))
    assert torch.autograd.gradgradcheck(call, (x, w, b))
    assert torch.autograd.gradcheck(
        lambda a, b: ops.gemm(a, b, None, None, "silu"), (x[0, 0], randn(3, 2).double().requires_grad_())
    )


def test_third_derivatives():
    x, w = (randn(1, 1, 4, dtype=torch.float64).requires_grad_() for _ in range(2))
    results = []
    for convolve in (
        lambda: ops.convolution(x, w, None, None, [1], [2], [1], False, [0], 1, "none"),
        lambda: functional.conv1d(x, w, padding=2),
    ):
        value = convolve().pow(3).sum()
        for _ in range(3):
            value = sum(g.sum() for g in torch.autograd.grad(value, (x, w), create_graph=True))
        results.append(value)
    assert torch.allclose(*results)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_whole(dynamic):
    def program(x, w):
        return ops.convolution(x * 2, w, None, None, [1], [1], [1], False, [0], 1, "relu").sum(1)

    compiled = torch.compile(program, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    w = randn(3, 4, 3, 3, seed=1).requires_grad_()
    for batch in (2, 3):
        x = randn(batch, 4, 6, 5).to(memory_format=torch.channels_last)
        found, right = compiled(x, w), program(x, w)
        assert torch.equal(found, right)
        assert torch.equal(*(torch.autograd.grad(y.sum(), w)[0] for y in (found, right)))


def test_compiled_by_inductor():
    def program(x, w):
        return torch.ops.tilesmith.convolution(x, w, None, None, [1], [1], [1], False, [0], 1, "none")

    x, w = randn(2, 4, 6, 5), randn(3, 4, 3, 3, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.allclose(torch.compile(program, fullgraph=True)(x, w), program(x, w))


def test_empty_batches():
    x, w, b = randn(0, 4, 6, 5).requires_grad_(), randn(3, 4, 3, 3).requires_grad_(), randn(3).requires_grad_()
    y = ops.convolution(x, w, b, None, [1], [1], [1], False, [0], 1, "relu")
    assert y.shape == (0, 3, 6, 5)
    dx, dw, db = torch.autograd.grad(y.sum(), (x, w, b))
    assert dx.shape == x.shape
    assert torch.equal(dw, torch.zeros_like(w))
    assert torch.equal(db, torch.zeros_like(b))


def test_the_import_registers_every_operator_that_the_guide_names():
    """Programs of ``torch.export`` name them before any call."""
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "pytorch.md").read_text()
    names = re.findall(r"^\| `(\w+)\(", guide, re.M)
    assert len(names) == 5
    code = f"import torch, tilesmith.torch_ops; print(*[hasattr(torch.ops.tilesmith, n) for n in {names}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 5


def test_operands_that_are_broadcast():
    x, w = randn(1, 4, 6, 5).expand(2, 4, 6, 5), randn(3, 1, 3, 3).expand(3, 4, 3, 3)
    assert torch.allclose(
        ops.convolution(x, w, None, None, [1], [0], [1], False, [0], 1, "none"), functional.conv2d(x, w), atol=1e-4
    )
    dy = randn(1).expand(2, 3, 4, 3)
    found = ops.convolution_backward(dy, x, w, [1], [0], [1], False, [0], 1, [True] * 3)
    right = aten.convolution_backward(dy, x, w, [3], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True] * 3)
    assert all(torch.allclose(one, other, atol=1e-4) for one, other in zip(found, right, strict=True))


def test_what_cannot_be():
    x, w = randn(1, 4, 5, 5), randn(3, 4, 3, 3)
    with pytest.raises(tilesmith.TilesmithError, match="relu6"):
        ops.convolution(x, w, None, None, [1], [0], [1], False, [0], 1, "relu6")
    with pytest.raises(tilesmith.TilesmithError, match="dy has shape"):
        ops.convolution_backward(x, x, w, [1], [0], [1], False, [0], 1, [True] * 3)
    with pytest.raises(RuntimeError, match="channels"), torch.device("meta"):
        ops.convolution(
            torch.empty(1, 5, 5, 5), torch.empty(3, 4, 3, 3), None, None, [1], [0], [1], False, [0], 1, "none"
        )


def test_a_trace_meets_each_problem_once():
    x, w = randn(1, 4, 5, 5), randn(3, 4, 3, 3).requires_grad_()
    with Trace() as trace:
        ops.convolution(x, w, None, None, [1], [0], [1], False, [0], 1, "none").sum().backward()
        tilesmith.conv(x, w.detach())
    assert sorted((each.mode, count) for each, count in trace.problems.items()) == [("fwd", 2), ("wrw", 1)]


@pytest.mark.parametrize("grad", [False, True])
def test_a_filter_meets_other_options_from_call_to_call(grad):
    operator = torch.ops.tilesmith.convolution.default
    x, w = torch.randn(2, 4, 8, 8), torch.randn(6, 4, 3, 3, requires_grad=grad)
    for stride, padding, activation in [(1, 1, "none"), (2, 1, "none"), (1, 1, "relu"), (1, 1, "none"), (1, 0, "none")]:
        for _ in range(2):
            y = operator(x, w, None, None, [stride], [padding], [1], False, [0], 1, activation)
            right = torch.conv2d(x, w, None, stride, padding)
            torch.testing.assert_close(y, right.relu() if activation == "relu" else right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("grad", [False, True])
def test_a_forgotten_decision_is_asked_for_again(grad, monkeypatch):
    asked = []
    real = eager.get_launchable
    monkeypatch.setattr(eager, "get_launchable", lambda s, **o: asked.append(s) or real(s, **o))
    x, w = torch.randn(2, 4, 8, 8), torch.randn(6, 4, 3, 3, requires_grad=grad)
    for _ in range(2):
        kept_calls.forget()
        for _ in range(3):
            torch.ops.tilesmith.convolution(x, w, None, None, [1], [1], [1], False, [0], 1)
    assert len(asked) == 2


def test_a_decision_that_is_forgotten_during_a_call_is_not_kept(monkeypatch):
    """As by another thread, between the look at the options and what they make."""
    operator = torch.ops.tilesmith.convolution.default
    x, w = torch.randn(2, 4, 8, 8), torch.randn(6, 4, 3, 3)
    call = lambda: operator(x, w, None, None, [1], [1], [1], False, [0], 1)  # noqa: E731
    kept_calls.forget()
    found, of = [], ConvArguments.of

    def forgetful(*options):
        found.append(of(*options))
        kept_calls.forget()
        return found[-1]

    with monkeypatch.context() as during:
        during.setattr(ConvArguments, "of", forgetful)
        call()
    run = ConvArguments.run
    monkeypatch.setattr(ConvArguments, "run", lambda self, *tensors: found.append(self) or run(self, *tensors))
    call()
    assert found[1] is not found[0]
