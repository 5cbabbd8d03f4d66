"""Convolutions of bf16 stay PyTorch's on CPUs whose matrix tiles its kernels multiply."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import tilesmith
from tilesmith import ConvSignature
from tilesmith.targets.names import parse_target
from tilesmith.torch_ops.compile.decide import Decider
from tilesmith.torch_ops.compile.expectation import expectation
from tilesmith.torch_ops.modules import decisions

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
TILES = parse_target("x86_64-v4-bf16:2:emerald-rapids")


def test_processors_with_tiles() -> None:
    assert TILES.bf16_tiles
    for other in ("x86_64-v4-bf16:2:zen5", "x86_64-v4:2:emerald-rapids", "x86_64-v4-bf16:2:generic"):
        assert not parse_target(other).bf16_tiles


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_what_is_replaced_was_measured_faster(dtype: str) -> None:
    held = json.loads((RESULTS / f"convolutions_emerald-rapids_{dtype}.json").read_text())
    replaced, left = [], []
    for row in held["rows"]:
        if row["transposed"]:
            continue
        image = 1, row["size"], row["size"], row["c"]
        filter_ = row["k"], row["taps"], row["taps"], row["c"] // row["groups"]
        problem = ConvSignature(
            image, filter_, mode=row["direction"], stride=row["stride"], padding=row["taps"] // 2,
            groups=row["groups"], dtype=dtype, shared_layout="NHWC",
        )  # fmt: skip
        ours, _ = expectation(problem.canonical, "c_dense", replace(TILES, cores=1))
        (replaced if ours else left).append(row["ratios"]["ours"])
    assert math.exp(sum(map(math.log, replaced)) / len(replaced)) > (4 if dtype == "bf16" else 1)
    if dtype == "fp32":
        assert not left
        return
    assert len(replaced) == 15
    assert min(replaced) > 1.1
    assert math.exp(sum(map(math.log, left)) / len(left)) < 0.4


@pytest.fixture
def tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor with tiles, as far as decisions go."""
    monkeypatch.setattr(decisions, "_known", {})
    for packed in (False, True):
        made = Decider("cpu", packed=packed)
        made.target = TILES
        monkeypatch.setitem(decisions._deciders, ("cpu", packed), made)


def trained(layer: nn.Module, dtype: torch.dtype) -> str:
    """What records the gradient of an optimized layer."""
    x = torch.randn(2, 16, 9, 9, dtype=dtype).to(memory_format=torch.channels_last)
    y = tilesmith.optimize(layer.to(dtype)).train()(x)
    y.float().sum().backward()
    return y.grad_fn.name()


@pytest.mark.usefixtures("tiles")
def test_training_leaves_dense_layers_of_bf16_to_pytorch() -> None:
    pytorchs = "ConvolutionBackward0"
    assert trained(nn.Conv2d(16, 24, 3), torch.bfloat16) == pytorchs
    assert trained(nn.Conv2d(16, 24, 3), torch.float32) != pytorchs
    assert trained(nn.Conv2d(16, 16, 3, groups=16), torch.bfloat16) != pytorchs
    with torch.autocast("cpu", torch.bfloat16):
        assert trained(nn.Conv2d(16, 24, 3), torch.float32) == pytorchs


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize(("dtype", "autocast", "ours"), [
    (torch.bfloat16, False, False), (torch.float32, False, True), (torch.float32, True, False)
])  # fmt: skip
def test_compiled_programs_leave_them_too(dtype: torch.dtype, autocast: bool, ours: bool) -> None:
    code: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> object:
        code.append(graph.code)
        return graph.forward

    torch._dynamo.reset()
    model = tilesmith.optimize(nn.Conv2d(16, 24, 3).to(dtype).eval())
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    x = torch.randn(2, 16, 9, 9, dtype=dtype)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        y = compiled(x)
    assert ("tilesmith" in code[0]) is ours
    exact = nn.functional.conv2d(x.double(), *(each.detach().double() for each in model.parameters()))
    assert (y.double() - exact).abs().max() < (4e-2 if y.dtype is torch.bfloat16 else 1e-4)
