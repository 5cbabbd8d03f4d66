"""The short way of a layer's call: taken by calls like the last one, and by nothing else."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import tilesmith
from tilesmith.dispatch import kept_calls
from tilesmith.torch_ops import gradients
from tilesmith.torch_ops.modules import computed, decisions
from tilesmith.torch_ops.modules.quick import QUICK

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "models"))
from would_run import decider


@pytest.fixture(autouse=True)
def nothing_is_measured(monkeypatch):
    monkeypatch.setenv("TILESMITH_FIND_MODE", "fast")
    kept_calls.forget()


@pytest.fixture
def long_ways(monkeypatch):
    """The calls that go the long way."""
    found, way = [], computed._computed
    monkeypatch.setattr(computed, "_computed", lambda *a: found.append(a) or way(*a))
    return found


def conv(**options):
    torch.manual_seed(0)
    return nn.Conv2d(4, 6, 3, padding=1, **options)


def exact(layer, x):
    return nn.functional.conv2d(
        x.double(), layer.weight.double(), None if layer.bias is None else layer.bias.double(), layer.stride,
        layer.padding, layer.dilation, layer.groups,
    )  # fmt: skip


def check(layer, x):
    torch.testing.assert_close(layer(x).double(), exact(layer, x), rtol=1e-5, atol=1e-5)


x = torch.randn(2, 4, 7, 7, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("training", [False, True])
def test_a_call_like_the_last_one_is_a_launch(training, long_ways):
    layer = tilesmith.optimize(conv().train(training))
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            for _ in range(4):
                check(layer, x)
    assert len(long_ways) <= 2
    layer(x).sum().backward()
    want = torch.autograd.grad(exact(layer, x).sum(), [layer.weight, layer.bias])
    for found, right in zip((layer.weight.grad, layer.bias.grad), want, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)


CHANGES = {
    "in place": lambda layer: layer.weight.add_(1),
    "another parameter": lambda layer: setattr(layer, "weight", nn.Parameter(torch.ones_like(layer.weight))),
    "another address": lambda layer: setattr(layer.weight, "data", layer.weight.detach() * 3),
    "stride": lambda layer: setattr(layer, "stride", (2, 2)),
    "dilation": lambda layer: (setattr(layer, "dilation", (2, 2)), setattr(layer, "padding", (2, 2))),
    "no bias": lambda layer: setattr(layer, "bias", None),
    "a layout": lambda layer: layer.to(memory_format=torch.channels_last),
    "training": lambda layer: layer.train(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_the_layer_is_seen(name):
    layer = tilesmith.optimize(conv().eval())
    with torch.no_grad():
        for _ in range(3):
            check(layer, x)
        CHANGES[name](layer)
        for _ in range(3):
            check(layer, x)


def test_other_tensors_and_settings_go_the_long_way(long_ways):
    layer = tilesmith.optimize(conv().eval())
    with torch.no_grad():
        for given in (x, x, x[:1], x.to(memory_format=torch.channels_last), torch.randn(2, 4, 9, 5)):
            check(layer, given)
        check(layer, x)
        before = len(long_ways)
        torch.use_deterministic_algorithms(True)
        try:
            check(layer, x)
        finally:
            torch.use_deterministic_algorithms(False)
        assert len(long_ways) > before
    with pytest.raises(RuntimeError, match="channels"):
        layer(torch.randn(2, 5, 7, 7))


class Sees(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_what_watches_the_thread_sees_the_operator():
    layer = tilesmith.optimize(conv().eval())
    with torch.no_grad():
        layer(x), layer(x)
        with Sees() as sees:
            layer(x)
        assert "tilesmith.convolution.default" in sees.names
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            layer(x)
    assert "tilesmith::convolution" in {event.key for event in profile.key_averages()}


def test_a_decision_that_is_forgotten_is_made_again(long_ways):
    layer = tilesmith.optimize(conv().eval())
    with torch.no_grad():
        layer(x), layer(x)
        before = len(long_ways)
        kept_calls.forget()
        check(layer, x)
    assert len(long_ways) == before + 1


def test_copies_know_nothing_and_a_restored_layer_keeps_nothing():
    layer = tilesmith.optimize(conv().eval())
    with torch.no_grad():
        layer(x), layer(x)
        assert layer.__dict__[QUICK].held is not None
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            assert other.__dict__[QUICK].held is None
            other.weight.zero_()
            check(other, x)
            check(layer, x)
    assert QUICK not in tilesmith.restore(layer).__dict__


@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 8)])
def test_linear_layers(shape):
    torch.manual_seed(0)
    layer, given = tilesmith.optimize(nn.Linear(8, 4)), torch.randn(*shape)
    for _ in range(3):
        y = layer(given)
        torch.testing.assert_close(y.double(), given.double() @ layer.weight.double().t() + layer.bias.double())
    y.sum().backward()
    torch.testing.assert_close(layer.bias.grad, torch.full((4,), float(given.numel() // 8)))


# --- what a GPU leaves to PyTorch -------------------------------------------------------------------------------------


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Decisions as on an H200, kernels of this processor."""
    monkeypatch.setattr(computed, "decides", lambda x: True)
    held = decider("sm_90a:132:h200")
    monkeypatch.setattr(decisions, "decider", lambda device: held)


def operators(call):
    """The operators of PyTorch that a call and its backward pass run below autograd."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call().float().square().mean().backward()
    return {event.key for event in profile.key_averages()}


def test_types_that_gpus_are_not_expected_to_win_stay_pytorchs(as_on_a_gpu):
    layer = tilesmith.optimize(conv())
    for _ in range(2):
        assert {"aten::convolution", "aten::convolution_backward"} <= operators(lambda: layer(x))
    check(layer, x)
    (line,) = tilesmith.report_of(layer).layers
    assert (line.runs, "other than bf16 and fp16" in line.why) == ("PyTorch", True)


def test_layers_whose_padding_is_computed_are_decided_about(as_on_a_gpu):
    with torch.no_grad():
        for layer, given, more in (
            (nn.Conv2d(8, 8, 3, padding="same"), torch.randn(1, 8, 6, 6), ()),
            (nn.ConvTranspose2d(8, 8, 3, stride=2), torch.randn(1, 8, 5, 5), ([12, 12],)),
        ):
            torch.testing.assert_close(tilesmith.optimize(layer)(given, *more), layer(given, *more))


def test_each_gradient_is_decided_for_itself(as_on_a_gpu, monkeypatch):
    """With 9 channels the gradient of the input alone is expected to win."""
    torch.manual_seed(0)
    layer = tilesmith.optimize(nn.Conv2d(9, 16, 3, padding=1)).to(torch.bfloat16)
    given = torch.randn(2, 9, 8, 8).to(torch.bfloat16).requires_grad_()
    masks, backward = [], torch.ops.aten.convolution_backward.default

    def seen(*args):
        masks.append(args[-1])
        return backward(*args)

    monkeypatch.setattr(torch.ops.aten.convolution_backward, "default", seen)
    arguments = decisions.LayerArguments.of((1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    y = nn.functional.conv2d(given, layer.weight, layer.bias, padding=1)
    dy = torch.randn_like(y)
    want = torch.autograd.grad(y.double(), [given, layer.weight, layer.bias], dy.double())
    masks.clear()
    with torch.no_grad():
        found = arguments.gradients(*[each.detach() for each in (dy, given, layer.weight)], (True, True, True))
    assert masks == [[False, True, False]]
    for mine, right in zip(found, want, strict=True):
        torch.testing.assert_close(mine.float(), right.float(), rtol=0.02, atol=0.05 * right.abs().max().item())


def test_what_is_expected_to_win_is_ours(as_on_a_gpu):
    torch.manual_seed(0)
    layer = tilesmith.optimize(nn.Conv2d(16, 16, 3, padding=1)).to(torch.bfloat16)
    given = torch.randn(2, 16, 8, 8).to(torch.bfloat16).requires_grad_()
    assert not {"aten::convolution", "aten::convolution_backward"} & operators(lambda: layer(given))
    (line,) = tilesmith.report_of(layer).layers
    assert line.runs == "tilesmith"


def test_gradients_are_compiled_while_the_layers_behind_run(as_on_a_gpu, monkeypatch):
    torch.manual_seed(0)
    layer, begun = tilesmith.optimize(nn.Conv2d(16, 16, 3, padding=1)).to(torch.bfloat16), []
    prepare = computed.prepare_gradients
    monkeypatch.setattr(computed, "prepare_gradients", lambda *a: begun.append(prepare(*a)))
    given = torch.randn(2, 16, 8, 8).to(torch.bfloat16).requires_grad_()
    y = layer(given)
    (job,) = begun
    job.result(120)
    before = set(gradients._memo)
    y.backward(torch.randn_like(y))
    assert before
    assert set(gradients._memo) == before  # the backward pass has found all of it
    layer(given)
    assert len(begun) == 1


def checked(optimized, model, *calls):
    """The results of ``calls`` in turn; ``optimized`` and ``model`` share their parameters."""
    with torch.no_grad():
        for each in calls:
            torch.testing.assert_close(optimized(each), model(each), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["fast", "strict"])
def test_a_linear_layer_that_stays_pytorchs_keeps_what_follows_it(mode, monkeypatch):
    monkeypatch.setenv("TILESMITH_FIND_MODE", mode)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8), nn.Sigmoid()).eval()
    checked(tilesmith.optimize(model), model, *torch.randn(3, 4, 16))


def test_what_fails_once_is_not_tried_at_each_call(monkeypatch, long_ways):
    """To search and to fail takes longer than a small layer."""
    monkeypatch.setenv("TILESMITH_FIND_MODE", "strict")
    model = nn.Sequential(conv(), nn.ReLU(), nn.Conv2d(6, 5, 3, groups=1)).eval()
    optimized = tilesmith.optimize(model)
    checked(optimized, model, x)
    tried = len(long_ways)
    checked(optimized, model, x, x + 1)
    assert len(long_ways) == tried
    checked(optimized, model, x[:1])  # another problem
    assert len(long_ways) > tried
    monkeypatch.setenv("TILESMITH_FIND_MODE", "fast")
    kept_calls.forget()
    tried = len(long_ways)
    checked(optimized, model, x)
    assert len(long_ways) > tried


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("norm", [nn.utils.parametrizations.weight_norm, nn.utils.spectral_norm])
def test_a_filter_that_is_computed_from_now_on(norm, training):
    layer = tilesmith.optimize(nn.Sequential(conv()).train(training))
    with torch.set_grad_enabled(training):
        layer(x)
        norm(layer[0])
        for _ in range(3):
            found = layer(x)
            want = nn.functional.conv2d(x, layer[0].weight.detach(), layer[0].bias.detach(), padding=1)
            torch.testing.assert_close(found.detach(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("stride", 2, nn.Conv2d),
        ("padding", 0, nn.Conv2d),
        ("dilation", 2, nn.Conv2d),
        ("stride", 2, nn.ConvTranspose2d),
    ],
)
def test_one_number_for_all_axes(name, value, kind):
    """PyTorch's functions take it, so a program may set it."""
    layer = kind(4, 6, 3, padding=1)
    setattr(layer, name, value)
    checked(tilesmith.optimize(layer), layer, x, x)


def test_fp64_in_training_is_pytorchs_on_a_cpu(monkeypatch):
    """Ours is the plain reference there."""
    monkeypatch.setattr(computed, "record", None)
    layer, y = tilesmith.optimize(conv().double()), x.double()
    for _ in range(2):
        torch.testing.assert_close(layer(y), exact(layer, y))
    assert "fp64" in str(tilesmith.report_of(layer))
