"""Programs of Inductor call our kernels as functions, and filters that are packed once stay so."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._inductor.utils import run_and_get_code
from torch.profiler import profile

import tilesmith
from tilesmith.torch_ops import frozen


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
