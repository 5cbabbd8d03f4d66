"""Optimized models in PyTorch's other machines: compilers, exports, transforms, autocast, distributed wrappers."""

import copy
import sys
from pathlib import Path

import pytest
import torch
from small_nets import Block, ResNet, filled, image
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.variables import TorchInGraphFunctionVariable
from torch._dynamo.variables.base import VariableTracker
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

import tilesmith
from tilesmith.torch_ops.modules import computed, decisions

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "models"))
from would_run import decider

FUSED_CONVOLUTIONS = 6


@pytest.fixture
def nets():
    """PyTorch's model, ours, an input, and the result in float64."""
    model, x = filled(ResNet()), image(2, 3, 12, 12)
    with torch.no_grad():
        want = copy.deepcopy(model).double()(x.double())
    return model, tilesmith.optimize(model), x, want


def close(found, want, bound=1e-5):
    return (found.double() - want).abs().max() <= bound * want.abs().max()


def operators(graph):
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


def test_compiled_whole():
    model, x = filled(Block(3, 8, 2)), image(2, 3, 12, 12)
    with torch.no_grad():
        want = copy.deepcopy(model).double()(x.double())
    fast = tilesmith.optimize(model)
    compiled = torch.compile(fast, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert close(compiled(x), want)
    assert compiled(x).requires_grad
    fast.train()
    compiled(x).sum().backward()
    assert fast.conv1.weight.grad.isfinite().all()


def test_a_compiled_program_is_fused_and_sees_loaded_parameters(nets):
    model, fast, x, _ = nets
    graphs = []

    def backend(graph, inputs):
        graphs.append(operators(graph.graph))
        return graph.forward

    compiled = torch.compile(fast, fullgraph=True, backend=backend)
    with torch.no_grad():
        compiled(x)
        assert sum("tilesmith.convolution" in each for each in graphs[0]) == FUSED_CONVOLUTIONS
        assert not any("batch_norm" in each or "relu" in each for each in graphs[0])
        other = filled(ResNet(), seed=3)
        fast.load_state_dict(other.state_dict())
        assert close(compiled(x), copy.deepcopy(other).double()(x.double()))
        fast.train()
        fast.bn1.running_mean.add_(0.5)
        fast.eval()
        assert close(compiled(x), tilesmith.restore(copy.deepcopy(fast)).double()(x.double()))


def graph_of(model, *inputs):
    """The graph that AOTAutograd gives a compiler for an inference."""
    graphs = []

    def keep(graph, inputs):
        graphs.append(graph.graph)
        return graph.forward

    with torch.no_grad():
        torch.compile(model, fullgraph=True, backend=aot_autograd(fw_compiler=keep))(*inputs)
    (found,) = graphs
    return found


class Normalized(nn.Module):
    """A group norm as it is on a GPU, where its result lies channels first, and a sum with such a tensor."""

    def __init__(self):
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(2, 8), nn.Conv2d(8, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)

    def forward(self, x):
        y = functional.silu(self.norm(x.contiguous()).contiguous())
        return self.up(y + self.conv(y))


def test_a_compiler_copies_what_lies_otherwise_than_the_filters():
    """The copies are in the graph, where a compiler makes them parts of its kernels, and not inside our operators."""
    model, x = filled(Normalized()), image(2, 8, 6, 6)
    for form, last in ((torch.channels_last, True), (torch.contiguous_format, False)):
        model, x = model.to(memory_format=form), x.contiguous(memory_format=form)
        graph = graph_of(tilesmith.optimize(model), x)
        convolutions = [node for node in graph.nodes if "tilesmith.convolution" in str(node.target)]
        assert len(convolutions) == 2
        for node in convolutions:
            taken = [each.meta["val"] for each in (node.args[0], node.args[3]) if each is not None]
            assert {each.is_contiguous(memory_format=torch.channels_last) for each in taken} == {last}
        with torch.no_grad():
            compiled = torch.compile(tilesmith.optimize(model), fullgraph=True, backend="aot_eager")
            assert close(compiled(x), copy.deepcopy(model).double()(x.double()))


def test_a_compiled_program_leaves_to_pytorch_what_the_backend_leaves(monkeypatch):
    """On a GPU; the same rule decides about layers that run eagerly."""
    held = decider("sm_90a:132:h200")
    monkeypatch.setattr(computed, "decides", lambda x: True)
    monkeypatch.setattr(computed, "may_measure", lambda layer, x: True)  # the operators take linear layers on a GPU
    monkeypatch.setattr(decisions, "decider", lambda device, packed: held)
    rows = torch.randn(256, 512, dtype=torch.bfloat16)
    narrow = nn.Sequential(nn.Linear(512, 48), nn.GELU()).to(torch.bfloat16).eval()
    wide = nn.Sequential(nn.Linear(512, 1024), nn.GELU()).to(torch.bfloat16).eval()
    views = {"aten.view.default", "aten.t.default"}
    names = [set(operators(graph_of(tilesmith.optimize(model), rows))) - views for model in (narrow, wide)]
    assert names == [{"aten.addmm.default", "aten.gelu.default"}, {"tilesmith.gemm.default"}]
    with torch.no_grad():
        compiled = torch.compile(tilesmith.optimize(narrow), dynamic=True, fullgraph=True, backend="aot_eager")
        assert close(compiled(rows), copy.deepcopy(narrow).double()(rows.double()), 0.02)
        assert close(compiled(rows[:99]), copy.deepcopy(narrow).double()(rows[:99].double()), 0.02)


def linear_with_gelu(monkeypatch):
    """An optimized layer whose product is ours in compiled programs, whatever the processor, and its input."""
    monkeypatch.setattr(computed, "is_left_to_pytorch", lambda *_: False)
    return tilesmith.optimize(nn.Sequential(nn.Linear(24, 40), nn.GELU()).eval()), torch.randn(7, 24)


def test_a_program_is_compiled_though_dynamo_says_that_it_is_exported(monkeypatch):
    """As it does in each program up to PyTorch 2.11."""
    say = lambda self, tx: VariableTracker.build(tx, True)  # noqa: E731
    monkeypatch.setitem(TorchInGraphFunctionVariable._get_handlers(), torch.compiler.is_exporting, say)
    model, x = linear_with_gelu(monkeypatch)
    assert "tilesmith.gemm.default" in operators(graph_of(model, x))


@pytest.mark.parametrize("strict", [False, True])
def test_exported_linear_layers_are_pytorchs(monkeypatch, strict):
    model, x = linear_with_gelu(monkeypatch)
    with torch.no_grad():
        names = operators(torch.export.export(model, (x,), strict=strict).graph)
    assert names == ["aten.linear.default", "aten.gelu.default"]


def test_exported_programs_keep_the_operators(nets, tmp_path):
    _, fast, x, want = nets
    rows = torch.export.Dim("rows", min=2, max=16)
    with torch.no_grad():
        program = torch.export.export(fast, (x,), dynamic_shapes={"x": {0: rows}})
        torch.export.save(program, tmp_path / "net.pt2")
        again = torch.export.load(tmp_path / "net.pt2")
        assert sum("tilesmith.convolution" in each for each in operators(again.graph)) == FUSED_CONVOLUTIONS
        assert close(again.module()(x), want)
        assert close(again.module()(torch.cat([x, x]))[2:], want)


def test_traces(nets):
    _, fast, x, want = nets
    with torch.no_grad():
        assert close(torch.jit.trace(fast, x)(x), want)
        assert close(make_fx(fast)(x)(x), want)
        assert close(torch.fx.symbolic_trace(fast)(x), want)


def test_transforms(nets):
    model, fast, x, want = nets
    twice = {name: value * 2 for name, value in model.named_parameters()}
    with torch.no_grad():
        found = torch.func.functional_call(fast, twice, (x,))
        torch.testing.assert_close(found, torch.func.functional_call(model, twice, (x,)), rtol=1e-4, atol=1e-4)
        assert close(fast(x), want)
        assert close(torch.func.vmap(lambda image: fast(image[None])[0])(x), want)
    mine, theirs = (torch.func.jvp(net, (x,), (x,))[1] for net in (fast, model))
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_modes_of_pytorch(nets):
    model, fast, x, want = nets
    with torch.inference_mode():
        assert close(fast(x), want)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, plain = fast(x), model(x)
    assert found.dtype == plain.dtype
    assert close(found, want, 0.02)
    half = copy.deepcopy(fast).to(torch.bfloat16)
    with torch.no_grad():
        assert close(half(x.bfloat16()), want, 0.02)


@pytest.fixture
def one_process(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_process")
def test_distributed_wrappers(nets):
    model, fast, x, want = nets
    wrapped = nn.parallel.DistributedDataParallel(fast)
    wrapped.train()
    wrapped(x).sum().backward()
    fast.load_state_dict(filled(ResNet()).state_dict())
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    before, after = tilesmith.optimize(copy.deepcopy(model)), copy.deepcopy(model)
    for sharded in (before, after):
        for part in (*sharded.layers, sharded):
            torch.distributed.fsdp.fully_shard(part, mesh=mesh)
    after = tilesmith.optimize(after, inplace=True)
    assert all("DTensor" in layer.why for net in (before, after) for layer in tilesmith.report_of(net).layers)
    with torch.no_grad():
        assert all(close(net.eval()(x), want) for net in (wrapped, before, after))
    before.train()(x).sum().backward()


def test_one_layer_in_training(nets):
    model, fast, x, _ = nets
    twin = copy.deepcopy(model)
    for net in (twin, fast):
        net.bn1.train()
    with torch.no_grad():
        torch.testing.assert_close(fast(x), twin(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(fast.bn1.running_mean, twin.bn1.running_mean)
