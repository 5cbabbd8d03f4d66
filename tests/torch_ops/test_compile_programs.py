"""Programs under ``torch.compile`` with the backend's pass, traced and divided as Inductor does, without its code."""

import contextlib
import copy

import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tilesmith.torch_ops.compile.decide import Decider
from tilesmith.torch_ops.compile.leftovers import reduced_decompositions, write_out
from tilesmith.torch_ops.compile.rewrite import Rewriter

ops = torch.ops.tilesmith


class Backend:
    """A backend of Dynamo that runs the rewritten graphs as they are, and keeps the pass's lines."""

    def __init__(self):
        self.lines, self.graphs = [], []

    def rewrite(self, gm):
        rewriter = Rewriter(gm.graph, Decider("cpu", "always"), False)
        rewriter.run()
        write_out(gm.graph)
        gm.graph.lint()
        gm.recompile()
        self.lines += rewriter.lines
        return gm

    def __call__(self, gm, inputs):
        self.graphs.append(gm)

        def partition(joint, *given, **options):
            return min_cut_rematerialization_partition(self.rewrite(joint), *given, compiler="inductor", **options)

        whole = aot_autograd(
            fw_compiler=lambda graph, _: graph, inference_compiler=lambda graph, _: self.rewrite(graph),
            partition_fn=partition, decompositions=reduced_decompositions(),
        )  # fmt: skip
        return whole(gm, inputs)

    def count(self, part=""):
        """Lines of ours of this direction."""
        return sum(line.ours and line.name.partition(".")[2] == part for line in self.lines)


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()
    torch.manual_seed(0)
    yield
    torch.compiler.reset()


class Net(nn.Module):
    """Every kind of layer, one of them twice."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.twice = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.up = nn.ConvTranspose2d(8, 4, 2, 2)
        self.last = nn.Linear(4, 3)

    def forward(self, x):
        y = functional.relu(self.norm(self.conv(x)))
        y = functional.relu(self.twice(functional.relu(self.twice(y)) + y))
        return self.last(self.up(y).mean((2, 3)))


def image(batch=2):
    return torch.randn(batch, 4, 6, 6)


def step(model, x):
    """The result and the gradients of a step."""
    y = model(x)
    y.float().square().sum().backward()
    return [y, *[each.grad for each in model.parameters()]]


def steps(tensor):
    """The strides that mean something: those of axes with more than one element."""
    return [step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def compare(found, want, bound=1e-4):
    for mine, theirs in zip(found, want, strict=True):
        scale = max(1.0, theirs.abs().max().item())
        assert (mine.double() - theirs).abs().max() <= bound * scale
        assert steps(mine) == steps(theirs)


@pytest.mark.parametrize(("lasting", "checkpointed"), [(False, True), (True, False)])
def test_a_training_step(lasting, checkpointed):
    model, x = Net(), image()
    if lasting:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    exact = copy.deepcopy(model).double()
    backend = Backend()

    def forward(x):
        return checkpoint(model, x, use_reentrant=False) if checkpointed else model(x)

    compiled = torch.compile(forward, backend=backend, fullgraph=True)
    for scale in (3, -2):  # gradients add up to those of one step
        y = compiled(x)
        (scale * y.square().sum()).backward()
    compare([y, *[each.grad for each in model.parameters()]], step(exact, x.double()))
    assert backend.count("wrw") == 4
    assert backend.count() >= 5


def test_autocast():
    model, x, backend = Net().eval(), image(), Backend()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found, theirs = compiled(x), model(x)
    exact = copy.deepcopy(model).double()(x.double())
    assert found.dtype == theirs.dtype == torch.bfloat16
    assert (found.double() - exact).abs().max() <= 2 * (theirs.double() - exact).abs().max() + 0.01
    assert all("bf16" in line.problem for line in backend.lines)


def test_graph_breaks_and_dynamic_sizes():
    model, backend = Net().eval(), Backend()

    def broken(x):
        y = model.conv(x)
        torch._dynamo.graph_break()
        return functional.relu(y)

    with torch.no_grad():
        x = image()
        compare([torch.compile(broken, backend=backend)(x)], [broken(x)], 1e-4)
        assert len(backend.graphs) == 2
        backend = Backend()
        compiled = torch.compile(model, backend=backend, dynamic=True, fullgraph=True)
        exact = copy.deepcopy(model).double()
        counts = set()
        for batch in (2, 3, 5):
            x = image(batch)
            assert (compiled(x).double() - exact(x.double())).abs().max() < 1e-4
            counts.add(len(backend.graphs))
        assert len(counts) == 1  # the pass adds no condition on sizes
        assert backend.count() == 0


def test_our_operators_and_pytorchs_in_one_graph():
    """An operator of ours that a program calls itself stays, and its gradient is traced."""
    w, v = torch.randn(4, 4, 3, 3), torch.randn(4, 4, 1, 1)

    def program(x, w, v, convolve):
        y = convolve(x, w)
        return functional.conv2d(y, v).relu().sum()

    def ours(x, w):
        return ops.convolution(x, w, None, None, [1], [1], [1], False, [0], 1, "relu")

    def theirs(x, w):
        return functional.conv2d(x, w, padding=1).relu()

    x, backend = image(), Backend()
    given = [each.clone().requires_grad_() for each in (x, w, v)]
    exact = [each.double().requires_grad_() for each in (x, w, v)]
    compiled = torch.compile(program, backend=backend, fullgraph=True)
    compiled(*given, ours).backward()
    program(*exact, theirs).backward()
    compare([each.grad for each in given], [each.grad for each in exact])
    assert backend.count() == 1


def test_inference_mode_makes_no_difference():
    model, x, backend = Net().eval(), image(), Backend()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for mode in (torch.no_grad, torch.inference_mode, contextlib.nullcontext):
        with mode():
            compare([compiled(x).detach()], [copy.deepcopy(model).double()(x.double()).detach()])
