"""Programs of Inductor call our kernels as functions, and filters that are packed once stay so."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch._inductor.utils import run_and_get_code
from torch.profiler import profile

import tilesmith
from tilesmith.torch_ops import frozen
from tilesmith.torch_ops.arguments import Arguments


@pytest.fixture(autouse=True)
def _compiled_anew():
    torch.compiler.reset()
    with torch.no_grad(), torch._inductor.config.patch(force_disable_caches=True):
        yield


def error(y: torch.Tensor, exact: torch.Tensor) -> float:
    return float((y.double() - exact).abs().max() / exact.abs().max())


def test_a_convolution_is_a_function_in_a_compiled_graph():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval()
    x = torch.randn(2, 3, 9, 9)
    y, (code, *_) = run_and_get_code(torch.compile(model, backend="tilesmith", options={"freeze": True}), x)
    assert "= torch.ops.tilesmith.convolution_kernel(" in code
    assert "= torch.ops.tilesmith.convolution.default(" not in code
    assert error(y, model.double()(x.double())) < 1e-5


class Shortcut(nn.Module):
    """A convolution whose residual is the result of another one; ``then`` says what else reads that."""

    def __init__(self, then="nothing"):
        super().__init__()
        self.first, self.second = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, padding=1)
        self.then = then

    def forward(self, x):
        z = self.first(x)
        last = None
        if self.then in ("an earlier node", "an earlier node, read later"):
            m = z.mul(2)
            y = (self.second(m) + z).relu()
            return y if self.then == "an earlier node" else (y, m.sum((0, 1)))
        if self.then == "an earlier view":
            last = z.permute(0, 2, 3, 1)
        if self.then == "the convolution":
            return (self.second(z) + z).relu()
        if self.then == "the caller":
            return (self.second(x) + x).relu()
        y = (self.second(x) + z).relu()
        if self.then == "a later node":
            last = z.mul(2)
        if self.then == "the result":
            return y, z
        return y if last is None else (y, last.sum((0, 1)))


READERS = {
    "nothing": True, "an earlier node": True, "an earlier node, read later": True, "a later node": False,
    "an earlier view": False, "the result": False, "the convolution": False, "the caller": False,
}  # fmt: skip


class Several(nn.Module):
    """A shortcut for each of the readers, with an input of its own: one graph, whose loops are compiled once."""

    def __init__(self, readers):
        super().__init__()
        self.shortcuts = nn.ModuleList(map(Shortcut, readers))

    def forward(self, *inputs):
        found = [shortcut(x) for shortcut, x in zip(self.shortcuts, inputs, strict=True)]
        return [y for each in found for y in (each if isinstance(each, tuple) else (each,))]


@pytest.mark.parametrize("over", [True, False])
def test_a_result_is_written_over_a_residual_that_nobody_reads_later(over):
    model = Several([then for then in READERS if READERS[then] == over]).eval().to(memory_format=torch.channels_last)
    inputs = [torch.randn(2, 8, 9, 9).to(memory_format=torch.channels_last) for _ in model.shortcuts]
    untouched = [x.clone() for x in inputs]
    compiled = torch.compile(model, backend="tilesmith", options={"freeze": True, "ours": "always"})
    found, (code, *_) = run_and_get_code(compiled, *inputs)
    assert code.count("convolution_kernel_in_place(") == over * len(inputs)
    want = copy.deepcopy(model).double()(*[x.double() for x in inputs])
    for _ in range(3):  # the first call finds the kernel
        assert all(error(mine, exact) < 1e-5 for mine, exact in zip(found, want, strict=True))
        found = compiled(*inputs)
    assert all(map(torch.equal, inputs, untouched))
    with profile():
        found = compiled(*inputs)
    assert all(error(mine, exact) < 1e-5 for mine, exact in zip(found, want, strict=True))


def test_a_product_is_written_over_its_residual():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(24, 40), nn.Linear(24, 40)

        def forward(self, x):
            return (self.second(x) + self.first(x)).relu()

    model, x = Net().eval(), torch.randn(7, 24)
    compiled = torch.compile(model, backend="tilesmith", options={"freeze": True, "ours": "always"})
    y, (code, *_) = run_and_get_code(compiled, x)
    assert "gemm_kernel_in_place(" in code
    want = copy.deepcopy(model).double()(x.double())
    assert error(y, want) < 1e-5
    assert error(compiled(x), want) < 1e-5


def test_a_kernel_that_needs_memory_of_its_own_is_copied_from(monkeypatch):
    """A plan of an earlier version does not say that it may write there."""
    monkeypatch.setattr(Arguments, "bound_now", lambda *_: (None, False))
    model, x = Shortcut().eval(), torch.randn(2, 8, 9, 9)
    compiled = torch.compile(model, backend="tilesmith", options={"freeze": True, "ours": "always"})
    want = copy.deepcopy(model).double()(x.double())
    y, (code, *_) = run_and_get_code(compiled, x)
    assert "convolution_kernel_in_place(" in code
    for mine in (y, compiled(x)):
        assert error(mine, want) < 1e-5


def test_a_profiler_sees_the_operator():
    model = torch.compile(nn.Conv2d(3, 8, 3).eval(), backend="tilesmith")
    x = torch.randn(2, 3, 9, 9)
    model(x)
    with profile() as seen:
        model(x)
    assert "tilesmith::convolution" in {event.key for event in seen.key_averages()}


def optimized_product(monkeypatch: pytest.MonkeyPatch) -> tuple[nn.Module, torch.Tensor]:
    """An optimized linear layer with GELU, whose product is ours on any CPU, and its input."""
    monkeypatch.setattr("tilesmith.torch_ops.modules.computed.is_left_to_pytorch", lambda *_: False)
    return tilesmith.optimize(nn.Sequential(nn.Linear(24, 40), nn.GELU()).eval()), torch.randn(7, 24)


def test_a_filter_is_packed_once_for_a_compiled_product(monkeypatch):
    """Inductor's views of a parameter do not say so; the program must name the parameter."""
    model, x = optimized_product(monkeypatch)
    compiled = torch.compile(model)
    y, (code, *_) = run_and_get_code(compiled, x)
    assert "torch.ops.tilesmith.gemm_kernel(" in code
    weight, bias = model.parameters()
    exact = nn.functional.gelu(nn.functional.linear(x.double(), weight.double(), bias.double()))
    assert error(y, exact) < 1e-5
    packings: list[int] = []
    pack = frozen.PackedForms.packed
    monkeypatch.setattr(frozen.PackedForms, "packed", lambda *given: packings.append(1) or pack(*given))
    assert torch.equal(compiled(x), y)
    assert not packings


def test_a_changed_filter_is_packed_anew(monkeypatch):
    model, x = optimized_product(monkeypatch)
    compiled = torch.compile(model)
    before = compiled(x)
    weight, bias = model.parameters()
    weight.mul_(2)
    exact = nn.functional.gelu(nn.functional.linear(x.double(), weight.double(), bias.double()))
    assert error(compiled(x), exact) < 1e-5
    assert error(before, exact) > 0.1


def test_a_matrix_that_is_no_transposed_filter_is_taken_as_it_lies():
    x, b = torch.randn(7, 24), torch.randn(48, 40)
    multiply = torch.compile(lambda x, b: torch.ops.tilesmith.gemm(x, b[::2], None, None))
    y, (code, *_) = run_and_get_code(multiply, x, b)
    assert "torch.ops.tilesmith.gemm_kernel(" in code
    assert error(y, x.double() @ b[::2].double()) < 1e-5
