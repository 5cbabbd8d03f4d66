"""``optimize``: numbers of small models against float64, what it keeps, and what makes it fold anew."""

import copy
import io
import pickle
from types import SimpleNamespace

import pytest
import torch
from small_nets import Block, ResNet, SqueezeExcite, UNet, filled, image
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch.utils._python_dispatch import TorchDispatchMode

import tilesmith
from tilesmith.errors import ArgumentError
from tilesmith.torch_ops.arguments import Arguments
from tilesmith.torch_ops.modules import race
from tilesmith.torch_ops.modules.folding import Folded
from tilesmith.torch_ops.modules.tensors import find_mode
from tilesmith.torch_ops.trace import Trace

NETS = {
    "resnet": (ResNet, (2, 3, 12, 12)), "squeeze_excite": (SqueezeExcite, (2, 8, 6, 6)), "unet": (UNet, (1, 4, 9, 9)),
}  # fmt: skip


def exact(model, x):
    with torch.no_grad():
        return copy.deepcopy(model).double()(x.double())


def error(found, want):
    return ((found.double() - want).abs().max() / want.abs().max()).item()


def epilogues(model, *arguments):
    """The epilogues of the convolutions that a call runs, as they stand in the keys."""
    with torch.no_grad(), Trace() as trace:
        model(*arguments)
    keys = [signature.key() for signature in trace.problems for _ in range(trace.problems[signature])]
    return sorted(key.partition("epi=")[2] for key in keys if key.startswith("conv"))


@pytest.fixture
def resnet():
    return filled(ResNet()), image(2, 3, 12, 12)


@pytest.mark.parametrize(
    ("name", "channels_last"), [("resnet", False), ("resnet", True), ("squeeze_excite", True), ("unet", False)]
)
def test_numbers_and_memory_format_in_evaluation(name, channels_last):
    make, shape = NETS[name]
    model, x = filled(make()), image(*shape)
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    want, plain = exact(model, x), model(x)
    fast = tilesmith.optimize(model)
    with torch.no_grad():
        y = fast(x)
    assert error(y, want) < 1e-5
    assert y.stride() == plain.stride()
    assert any(layer.why.startswith("folded") for layer in tilesmith.report_of(fast).layers)


def test_what_follows_a_layer_is_one_kernel(resnet):
    model, x = resnet
    found = epilogues(tilesmith.optimize(model), x)
    assert found == sorted(["bias+relu", "bias+relu", "bias+residual+relu", "bias+relu", "bias", "bias+residual+relu"])


@pytest.mark.parametrize("name", NETS)
def test_training_is_pytorchs(name):
    make, shape = (lambda: Block(4, 8, 2), (2, 4, 9, 9)) if name == "resnet" else NETS[name]
    model = filled(make()).train()
    twin, x = copy.deepcopy(model), image(*shape)
    fast = tilesmith.optimize(model)
    for each in (twin, fast):
        optimizer = torch.optim.SGD(each.parameters(), 0.05)
        for _ in range(2):
            optimizer.zero_grad()
            each(x).square().mean().backward()
            optimizer.step()
    for (key, mine), theirs in zip(fast.state_dict().items(), twin.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4, msg=key)
    with torch.no_grad():
        assert error(fast.eval()(x), exact(twin.eval(), x)) < 1e-3


def test_everything_of_the_model_is_kept(resnet):
    model, _ = resnet
    fast = tilesmith.optimize(model)
    assert type(model.conv1) is nn.Conv2d
    assert isinstance(fast, ResNet)
    assert isinstance(fast.conv1, nn.Conv2d)
    assert str(fast) == str(model)
    assert [name for name, _ in fast.named_modules()] == [name for name, _ in model.named_modules()]
    assert all(
        mine is theirs and one == other
        for (one, mine), (other, theirs) in zip(fast.named_parameters(), model.named_parameters(), strict=True)
    )
    assert list(fast.state_dict()) == list(model.state_dict())
    assert not fast.training
    back = tilesmith.restore(fast)
    assert back is fast
    assert type(back) is ResNet
    assert [type(each) for each in back.modules()] == [type(each) for each in model.modules()]
    assert [set(each.__dict__) for each in back.modules()] == [set(each.__dict__) for each in model.modules()]
    assert tilesmith.optimize(model, inplace=True) is model
    assert type(model) is not ResNet


def _parameter(model):
    with torch.no_grad():
        model.layers[0].conv1.weight.mul_(-2)


def _statistics(model):
    model.bn1.running_mean.add_(1)


def _loaded(model):
    model.load_state_dict({key: value * 1.5 for key, value in model.state_dict().items()})


def _new_parameter(model):
    model.bn1.weight = nn.Parameter(-model.bn1.weight.detach())


def _new_layer(model):
    model.conv1 = filled(nn.Conv2d(3, 8, 3, 2, 1, bias=False), 7)


def _another_eps(model):
    model.bn1.eps = 0.5


def _a_step_of_training(model):
    model.train()
    model(image(2, 3, 12, 12, seed=5)).sum().backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    model.eval()


def _data(model):
    model.layers[0].conv2.weight.data.mul_(3)
    model.eval()


def _statistics_of_each_batch(model):
    model.layers[0].bn1.running_mean = model.layers[0].bn1.running_var = None


CHANGES = [
    _data, _parameter, _statistics, _loaded, _new_parameter, _new_layer, _another_eps, _a_step_of_training,
    _statistics_of_each_batch,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_is_folded_anew(resnet, change):
    model, x = resnet
    fast = tilesmith.optimize(model)
    with torch.no_grad():
        before = fast(x)
    change(fast)
    with torch.no_grad():
        after = fast(x)
    assert error(after, exact(tilesmith.restore(copy.deepcopy(fast)), x)) < 1e-5
    assert error(after, before.double()) > 1e-3


def test_statistics_that_another_process_sends(resnet, tmp_path):
    """DistributedDataParallel writes buffers before a call in evaluation, and their versions stay."""
    model, x = resnet
    fast = tilesmith.optimize(model)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        parallel = nn.parallel.DistributedDataParallel(fast).eval()
        with torch.no_grad():
            parallel(x)
            fast.layers[0].bn1.running_var.data.mul_(3)
            found = parallel(x), fast(x)
    finally:
        torch.distributed.destroy_process_group()
    want = exact(tilesmith.restore(copy.deepcopy(fast)), x)
    assert max(error(each, want) for each in found) < 1e-5


class Copies(TorchDispatchMode):
    """Notes the shapes of the tensors that are copied."""

    def __init__(self):
        super().__init__()
        self.shapes = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.copy_.default:
            self.shapes.append(tuple(args[0].shape))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_a_folded_filter_lies_as_the_layers_and_is_not_written_twice(kind, form):
    layer, norm = kind(4, 6, 3).to(memory_format=form), filled(nn.BatchNorm2d(6))
    folded = Folded(layer, norm)
    with Copies() as copies:
        assert folded.refresh()
    assert folded.filter.stride() == layer.weight.stride()
    assert tuple(layer.weight.shape) not in copies.shapes
    x = torch.randn(2, 4, 5, 5)
    layer.weight, layer.bias, want = nn.Parameter(folded.filter), nn.Parameter(folded.bias), norm.eval()(layer(x))
    torch.testing.assert_close(layer(x), want, rtol=1e-5, atol=1e-5)


def test_copies_and_saved_models(resnet, tmp_path):
    model, x = resnet
    fast = tilesmith.optimize(model)
    want = exact(model, x)
    memory = io.BytesIO()
    torch.save(fast, memory)
    memory.seek(0)
    for again in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast)), torch.load(memory, weights_only=False)):
        assert type(again) is type(fast)
        assert epilogues(again, x) == epilogues(fast, x)
        with torch.no_grad():
            assert error(again(x), want) < 1e-5
        again.conv1.weight.data.zero_()  # shares nothing with the original
    with torch.no_grad():
        assert error(fast(x), want) < 1e-5


def test_hooks_run_and_are_not_fused_over(resnet):
    model, x = resnet
    seen = []
    model.layers[0].bn1.register_forward_hook(lambda module, args, result: seen.append("early"))
    fast = tilesmith.optimize(model)
    with torch.no_grad():
        fast(x)
        assert len(seen) == 1
        before = epilogues(fast, x).count("")
        handle = fast.layers.register_forward_pre_hook(lambda module, args: seen.append("late"))
        fast(x)
        assert seen.count("late") == 1
        handle.remove()
    assert before == 1  # the layer before the hook
    assert epilogues(fast, x).count("") == 1


class Store:
    """A program's own object with a hook."""

    def __init__(self):
        self.seen = []

    def keep(self, module, args, result):
        self.seen.append(result)


def test_hooks_of_objects_stay_those_of_the_objects(resnet):
    model, x = resnet
    store = Store()
    model.layers[0].register_forward_hook(store.keep)
    fast = tilesmith.optimize(model)
    with torch.no_grad():
        fast(x)
    assert len(store.seen) == 1


def test_gradients_in_evaluation(resnet):
    model, x = resnet
    fast = tilesmith.optimize(model)
    twin = copy.deepcopy(model).double()
    x.requires_grad_()
    fast(x).square().sum().backward()
    z = x.detach().double().requires_grad_()
    twin(z).square().sum().backward()
    assert error(x.grad, z.grad) < 1e-4
    assert error(fast.conv1.weight.grad, twin.conv1.weight.grad) < 1e-4


def test_only_and_skip(resnet):
    model, x = resnet
    fast = tilesmith.optimize(model, only=["layers", nn.Linear], skip=["layers.1.bn1"])
    kinds = {layer.name: (layer.runs, layer.why) for layer in tilesmith.report_of(fast).layers}
    assert kinds["conv1"] == ("PyTorch", "left alone by only= or skip=")
    assert kinds["layers.0.conv1"] == ("tilesmith", "folded layers.0.bn1, relu")
    assert "bn1" not in kinds["layers.1.conv1"][1]
    with torch.no_grad():
        assert error(fast(x), exact(model, x)) < 1e-5
    for wrong in ({"only": ["layer9"]}, {"skip": "layers"}, {"only": [3]}):
        with pytest.raises(ArgumentError, match="layer9|type skip|3"):
            tilesmith.optimize(model, **wrong)
    with pytest.raises(ArgumentError, match="no model that"):
        tilesmith.report_of(model)


@pytest.mark.parametrize("ours_us", [1.0, 3.0])
def test_the_faster_kernel_runs_on_a_cpu(monkeypatch, ours_us):
    model = filled(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1)))
    x = image(2, 3, 12, 12)
    fast = tilesmith.optimize(model)
    monkeypatch.setenv("TILESMITH_FIND_MODE", "hybrid")
    race.forget_races()
    # The cache folder is other workers', too: nothing of these times is kept there, nothing is found.
    monkeypatch.setattr(race, "_kept", lambda path, x: None)
    monkeypatch.setattr(race, "keep_times", lambda root, path, times: None)
    monkeypatch.setattr(race, "_race", lambda x, ours, pytorchs: race.Result(tuple(x.shape), ours_us, 2.0))
    called = []
    monkeypatch.setattr(Arguments, "run", lambda *a: called.append(a) or (_ for _ in ()).throw(Ours))
    with torch.no_grad():
        if ours_us < 2:
            with pytest.raises(Ours):
                fast(x)
        else:
            assert error(fast(x), exact(model, x)) < 1e-5
            report = tilesmith.report_of(fast)
            assert {layer.runs for layer in report.layers} == {"PyTorch"}
            assert report.layers[0].why == "folded 1, relu; measured here: 2x3x12x12 in 3 us, PyTorch's in 2 us"
    assert bool(called) == (ours_us < 2)


class Ours(Exception):
    """Our kernel would run."""


class Strided(nn.Conv2d):
    """As torchvision's Conv3DSimple: a subclass that sets options and computes nothing itself."""

    def __init__(self, c, k):
        super().__init__(c, k, 3, stride=2, padding=1, bias=False)


def test_subclasses_without_code_of_their_own_are_replaced():
    model = nn.Sequential(Strided(4, 6), nn.BatchNorm2d(6), nn.ReLU()).eval()
    x = torch.randn(2, 4, 9, 9)
    fast = tilesmith.optimize(model)
    assert tilesmith.report_of(fast).layers[0].why == "folded 1, relu"
    for each in (fast, copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert isinstance(each[0], Strided)
        with torch.no_grad():
            assert error(each(x), exact(model, x)) < 1e-5
    assert type(tilesmith.restore(fast)[0]) is Strided


def test_models_on_a_gpu_do_not_measure_unless_asked(monkeypatch):
    x, on_cpu = SimpleNamespace(is_cuda=True), SimpleNamespace(is_cuda=False)
    monkeypatch.delenv("TILESMITH_FIND_MODE", raising=False)
    tilesmith.forget()
    assert (find_mode(x), find_mode(on_cpu)) == ("fast", None)
    monkeypatch.setenv("TILESMITH_FIND_MODE", "hybrid")
    tilesmith.forget()
    assert find_mode(x) is None
    monkeypatch.undo()
    tilesmith.forget()


def test_what_stays_pytorchs_and_why():
    class Own(nn.Conv2d):
        def forward(self, x):
            return super().forward(x) + 1

    layers = nn.Sequential(
        Own(2, 2, 1), parametrizations.weight_norm(nn.Conv2d(2, 2, 1)), nn.utils.weight_norm(nn.Conv2d(2, 2, 1)),
        nn.LazyConv2d(2, 1), nn.Conv2d(2, 2, 1, dtype=torch.complex64),
    )  # fmt: skip
    report = tilesmith.report_of(tilesmith.optimize(layers))
    assert [layer.runs for layer in report.layers] == ["PyTorch"] * 5
    words = ("subclass", "parametrized", "weight_norm", "Lazy", "complex64")
    assert all(word in layer.why for word, layer in zip(words, report.layers, strict=True)), str(report)
    assert len(str(report).splitlines()) == 6


def test_reasons_of_layers_that_changed_later():
    fast = tilesmith.optimize(nn.Sequential(nn.Conv2d(3, 4, 3), nn.LazyConv2d(5, 3)).eval())
    prune.l1_unstructured(fast[0], "weight", amount=0.5)
    with torch.no_grad():
        x = torch.randn(1, 3, 8, 8)
        torch.testing.assert_close(fast(x), tilesmith.restore(copy.deepcopy(fast))(x), rtol=1e-5, atol=1e-5)
    pruned, lazy = tilesmith.report_of(fast).layers
    assert "computed at each call" in pruned.why
    assert "initialized after" in lazy.why
