"""The pass of the backend on traced graphs: what it fuses, what it leaves, and the numbers of the result."""

import operator
import sys
from collections import Counter
from concurrent.futures import Future
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._dispatch.python import enable_python_dispatcher
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from tilesmith.dispatch.background import ahead
from tilesmith.torch_ops.compile.decide import Decider
from tilesmith.torch_ops.compile.leftovers import reduced_decompositions, write_out
from tilesmith.torch_ops.compile.rewrite import Rewriter

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "models"))
from would_run import decider, fake_step, traced

ops, aten = torch.ops.tilesmith, torch.ops.aten


def rewritten(function, *args, frozen=True, ours="always"):
    """The graph of ``function`` behind the pass, and the pass's lines."""
    with enable_python_dispatcher():  # as AOTAutograd traces
        gm = make_fx(function, decomposition_table=reduced_decompositions(), tracing_mode="fake")(*args)
    rewriter = Rewriter(gm.graph, Decider("cpu", ours), frozen)
    rewriter.run()
    write_out(gm.graph)
    gm.graph.lint()
    gm.recompile()
    return gm, rewriter.lines


def targets(gm):
    """How often each operator is called."""
    return Counter(node.target for node in gm.graph.nodes if node.op == "call_function")


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def check(function, *args, bound=1e-4, **options):
    """Rewrite, run, and compare with the function in float64; the graph and the fused parts of its lines."""
    gm, lines = rewritten(function, *args, **options)
    found = gm(*args)
    want = function(*[each.double() for each in args])
    for mine, theirs in zip(
        *[each if isinstance(each, tuple | list) else (each,) for each in (found, want)], strict=True
    ):
        assert (mine.double() - theirs).abs().max() <= bound * max(1.0, theirs.abs().max().item())
    return gm, [line.fused for line in lines]


x, w, b, r = randn(2, 8, 9, 7), randn(12, 8, 3, 3, seed=1), randn(12, seed=2), randn(2, 12, 9, 7, seed=3)
statistics = [randn(12, seed=4), randn(12, seed=5), randn(12, seed=6), randn(12, seed=7).abs() + 0.5]


def conv(x, w, b=None):
    return functional.conv2d(x, w, b, padding=1)


ACTIVATIONS = {
    "relu": functional.relu, "leaky_relu": lambda y: functional.leaky_relu(y, 0.2), "silu": functional.silu,
    "gelu": functional.gelu, "clamp": lambda y: functional.hardtanh(y, -0.5, 2.0),
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_bias_residual_and_activation_are_one_kernel(name):
    lasting = [each.to(memory_format=torch.channels_last) for each in (x, w, r)]
    gm, fused = check(lambda x, w, r, b: ACTIVATIONS[name](conv(x, w, b) + r), *lasting, b)
    assert fused == [("bias", "residual", name)]
    assert targets(gm) == {ops.convolution.default: 1}


def test_batch_norm_is_folded_where_filters_are_frozen():
    def block(x, w, b, gamma, beta, mean, variance, r):
        y = functional.batch_norm(conv(x, w, b), mean, variance, gamma, beta)
        return torch.relu(r + y)

    gm, fused = check(block, x, w, b, *statistics, r)
    assert fused == [("batch norm", "bias", "residual", "relu")]
    (call,) = [node for node in gm.graph.nodes if node.target is ops.convolution.default]
    assert call.kwargs == {"activation": "relu", "mode": "fast", "frozen": True}
    assert not {aten.relu.default, aten.convolution.default} & targets(gm).keys()


def test_batch_norm_that_costs_more_than_it_saves_is_left_to_inductor():
    def block(x, w, mean, variance):
        return functional.batch_norm(conv(x, w), mean, variance)

    gm, fused = check(block, x[:1, :, :3, :3], w, *statistics[2:], frozen=False)
    assert fused == [()]
    assert aten._native_batch_norm_legit_no_training.default not in targets(gm)  # written out for Inductor
    _, fused = check(block, randn(8, 8, 9, 7), w, *statistics[2:], frozen=False)
    assert fused == [("batch norm", "bias")]


def test_values_that_are_used_elsewhere_are_not_fused_away():
    gm, fused = check(lambda x, w, b: (y := conv(x, w, b), torch.relu(y)), x, w, b)
    assert fused == [("bias",)]
    assert targets(gm)[aten.relu.default] == 1
    _, fused = check(lambda x, w: (y := torch.relu(conv(x, w))) + y.sigmoid(), x, w)
    assert fused == [("relu",)]
    _, fused = check(lambda x, w: (y := conv(x, w)) + y, x, w)
    assert fused == [()]


def test_an_addition_that_is_spread_is_no_residual():
    _, fused = check(lambda x, w, b: torch.relu(conv(x, w) + b[:, None, None]), x, w, b)
    assert fused == [()]
    _, fused = check(lambda x, w, r: torch.add(conv(x, w), r, alpha=2), x, w, r)
    assert fused == [()]


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("kind", ["plain", "grouped", "depthwise", "transposed"])
def test_every_kind_of_convolution(dims, kind):
    groups = {"grouped": 2, "depthwise": 4}.get(kind, 1)
    kinds = [nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d] if kind == "transposed" else [
        nn.Conv1d, nn.Conv2d, nn.Conv3d]  # fmt: skip
    layer = kinds[dims - 1](4, 4, 3, stride=2, padding=1, groups=groups)
    arrays = layer.weight.detach(), layer.bias.detach()

    def function(x, w, b):
        return torch.func.functional_call(layer, {"weight": w, "bias": b}, (x,)).relu()

    gm, fused = check(function, randn(2, 4, *[5] * dims), *arrays)
    assert fused == [("bias", "relu")]
    assert targets(gm)[ops.convolution.default] == 1


def test_products_with_their_epilogues():
    a, v, c, rows = randn(2, 3, 8), randn(6, 8, seed=1), randn(6, seed=2), randn(2, 3, 6, seed=3)
    gm, fused = check(lambda a, v, c, rows: functional.gelu(functional.linear(a, v, c) + rows), a, v, c, rows)
    assert fused == [("bias", "residual", "gelu")]
    assert targets(gm)[ops.gemm.default] == 1
    assert not {aten.addmm.default, aten.gelu.default, aten.erf.default} & targets(gm).keys()
    gm, fused = check(lambda a, v, c: torch.relu(a[0] @ v.T + c), a, v, c)
    assert fused == [("bias", "relu")]
    assert check(torch.bmm, a, randn(2, 8, 5))[1] == [()]
    gm, fused = check(torch.baddbmm, randn(2, 3, 5), a, randn(2, 8, 5))
    assert targets(gm) == {ops.gemm.default: 1}
    gm, fused = rewritten(lambda m, a, b: torch.addmm(m, a, b, beta=0.5), randn(3, 5), a[0], randn(8, 5))
    assert targets(gm)[ops.gemm.default] == 0


def test_the_backward_pass_and_relus_mask():
    """Forward and backward pass in one graph, as AOTAutograd hands it over."""

    def step(x, w, b, r):
        x, w, b, r = (each.detach().requires_grad_() for each in (x, w, b, r))
        y = torch.relu(conv(x, w, b) + r)
        return torch.autograd.grad((y * y).sum(), (x, w, b, r))

    gm, lines = rewritten(step, x, w, b, r, frozen=False)
    assert [(line.name.partition(".")[2], line.ours, line.fused) for line in lines] == [
        ("", True, ("bias", "residual", "relu")), ("bwd", True, ()), ("wrw", True, ()),
    ]  # fmt: skip
    found = targets(gm)
    assert found[ops.convolution.default] == 1
    assert found[ops.convolution_backward.default] == 1  # of two gradients: dy is one tensor then
    assert found[aten.convolution_backward.default] == found[aten.relu.default] == 0
    for mine, theirs in zip(gm(x, w, b, r), step(*[each.double() for each in (x, w, b, r)]), strict=True):
        assert (mine.double() - theirs).abs().max() <= 1e-4 * theirs.abs().max()


def test_an_activation_whose_argument_the_backward_pass_needs_stays_outside():
    def step(x, w):
        x, w = (each.detach().requires_grad_() for each in (x, w))
        return torch.autograd.grad(functional.silu(conv(x, w)).sum(), (x, w))

    gm, lines = rewritten(step, x, w, frozen=False)
    assert lines[0].fused == ()
    for mine, theirs in zip(gm(x, w), step(x.double(), w.double()), strict=True):
        assert (mine.double() - theirs).abs().max() <= 1e-4 * theirs.abs().max()


def test_one_gradient_may_be_pytorchs(monkeypatch):
    decide = Decider.__call__

    def no_wrw(self, make):
        found = decide(self, make)
        return type(found)(False, "test", found.signature) if found.signature.mode == "wrw" else found

    monkeypatch.setattr(Decider, "__call__", no_wrw)

    def step(dy, x, w):
        return aten.convolution_backward.default(
            dy, x, w, [12], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True]
        )  # fmt: skip

    gm, _ = check(step, r, x, w)
    assert targets(gm)[aten.convolution_backward.default] == targets(gm)[ops.convolution_backward.default] == 1
    (theirs,) = [node for node in gm.graph.nodes if node.target is aten.convolution_backward.default]
    assert theirs.args[-1] == [False, True, False]
    assert targets(gm)[operator.getitem] == 2


def test_channels_last_needs_no_copy():
    """What a kernel reads lies as the one before it has left it; the result lies as PyTorch's."""

    def net(x, v, w, r):
        return torch.relu(conv(torch.sigmoid(conv(x, v)), w) + r * 2)

    lasting = [each.to(memory_format=torch.channels_last) for each in (x, randn(8, 8, 3, 3), w, r)]
    gm, _ = check(net, *lasting)
    assert aten.clone.default not in targets(gm)
    assert gm(*lasting).stride() == net(*lasting).stride()
    calls = [node for node in gm.graph.nodes if node.target is ops.convolution.default]
    for call in calls:
        operands, _ = call.meta["eager_input_vals"]  # Inductor hands them over with these strides
        assert operands[0].stride() == call.args[0].meta["val"].stride()


def test_the_default_layout_is_changed_at_the_edges_of_the_graph_alone():
    """The input, the filters and the result; the residual's own convolution lies right in time for the addition."""

    def net(x, v, w, q):
        y = torch.sigmoid(conv(x, v))
        return torch.relu(conv(y, w) + functional.conv2d(y, q))

    arrays = x, randn(8, 8, 3, 3), w, randn(12, 8, 1, 1)
    gm, fused = check(net, *arrays)
    assert fused[1] == ("residual", "relu")
    copied = [node.args[0].op for node in gm.graph.nodes if node.target is aten.clone.default]
    assert sorted(copied) == [
        "call_function",
        "placeholder",
        "placeholder",
        "placeholder",
    ]  # a 1x1 filter lies as it is
    assert gm(*arrays).stride() == net(*arrays).stride() == arrays[0].new_empty(2, 12, 9, 7).stride()

    def flat(x, w):
        return conv(x, w).view(2, -1)

    gm, _ = check(flat, x, w)  # a view of what lies otherwise now


@pytest.mark.parametrize(
    "view",
    [
        lambda y: y.transpose(1, 2), lambda y: y.mT + 1, lambda y: y.movedim(0, 1) * 2, lambda y: y.flatten(2).mT,
        lambda y: y[:, ::2], lambda y: y[:, 0], lambda y: y.unfold(2, 3, 1), lambda y: y[:1].expand(3, -1, -1, -1),
        lambda y: y.diagonal(dim1=2, dim2=3), lambda y: y.chunk(2, 1)[1],
    ],
    ids=[
        "transpose", "sum", "product", "flat", "slice", "select", "windows", "expand", "diagonal", "chunk",
    ],
)  # fmt: skip
def test_what_lies_behind_a_convolution_has_eagers_strides(view):
    gm, _ = check(lambda x, w: view(conv(x, w)), x, w)
    assert gm(x, w).stride() == view(conv(x, w)).stride()


def test_a_product_lies_as_the_sum_that_it_stands_for():
    def net(a, v, r):
        return torch.relu(r + torch.mm(a, v).view(2, 3, 4, 5))

    arrays = randn(24, 8), randn(8, 5), randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    gm, fused = check(net, *arrays)
    assert fused == [("residual", "relu")]
    assert gm(*arrays).stride() == net(*arrays).stride() == arrays[2].stride()


def test_views_that_need_the_former_strides():
    """Of two floats as a complex number, of a float as two integers: the last axis has to have stride 1."""
    pair = randn(2, 8, 9, 2)
    for f in (
        lambda x, w: torch.view_as_real(torch.view_as_complex(conv(x, w)) * 2),
        lambda x, w: (conv(x, w).view(torch.int16) & 1).float(),
    ):
        gm, _ = rewritten(f, pair, w)
        want = f(pair, w)
        assert (gm(pair, w).shape, gm(pair, w).stride()) == (want.shape, want.stride())
    gm, _ = check(lambda x, w: torch.view_as_real(torch.view_as_complex(conv(x, w)) * 2), pair, w)


def test_gradients_lie_as_their_tensors():
    def step(dy, x, w):
        return aten.convolution_backward.default(
            dy, x, w, [12], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True]
        )  # fmt: skip

    gm, _ = check(step, r, x, w)
    assert [each.stride() for each in gm(r, x, w)] == [each.stride() for each in step(r, x, w)]


def test_what_follows_several_convolutions_lies_as_before():
    def chained(x, w, v):
        y = conv(conv(x, w), v)
        return functional.silu(y), y  # two readers: the kernel does not take the activation

    v = randn(6, 12, 3, 3, seed=9)
    gm, _ = check(chained, x, w, v)
    assert [each.is_contiguous() for each in gm(x, w, v)] == [True, True]


def test_dynamic_sizes_stay_pytorchs():
    gm = make_fx(lambda x, w: conv(x, w), tracing_mode="symbolic")(x, w)
    rewriter = Rewriter(gm.graph, Decider("cpu", "always"), False)
    rewriter.run()
    assert [(line.ours, line.reason) for line in rewriter.lines] == [(False, "its sizes are dynamic")]
    assert targets(gm)[aten.convolution.default] == 1


def test_products_of_int8_that_wrap_around_stay_pytorchs():
    a, v = (torch.full(shape, 9, dtype=torch.int8) for shape in ((4, 8), (8, 3)))
    added = torch.ones(3, dtype=torch.int8)
    for function, args in ((torch.mm, (a, v)), (torch.addmm, (added, a, v)), (torch.bmm, (a[None], v[None]))):
        gm, lines = rewritten(lambda *args, function=function: function(*args), *args)
        assert torch.equal(gm(*args), function(*args))
        assert [(line.ours, line.reason) for line in lines] == [
            (False, "the result is torch.int32, PyTorch has torch.int8")
        ]


def test_what_no_database_and_no_estimate_favours_stays():
    _, lines = rewritten(torch.mm, randn(4, 8), randn(8, 3), ours="auto")
    assert [line.ours for line in lines] == [False]
    assert "estimate" in lines[0].reason
    _, lines = rewritten(lambda a, b: torch.mm(a, b), randn(4, 8).to(torch.complex64), randn(8, 3).to(torch.complex64))
    assert [line.ours for line in lines] == [False]
    assert "complex64" in lines[0].reason


def test_a_shuffle_behind_a_convolution_stays_whole():
    gm, _ = check(lambda x, w: functional.pixel_shuffle(conv(x, w), 2), x, w)
    assert targets(gm)[aten.pixel_shuffle.default] == 1
    (shuffle,) = gm.graph.find_nodes(op="call_function", target=aten.pixel_shuffle.default)
    assert shuffle.meta["val"].is_contiguous(memory_format=torch.channels_last)
    gm, _ = check(lambda r: functional.pixel_shuffle(r, 2) + 1, r)  # whose loops Inductor fuses with the addition
    assert not targets(gm)[aten.pixel_shuffle.default]


@pytest.mark.parametrize("training", [False, True])
def test_what_a_graph_will_ask_is_known_before_it_is_rewritten(monkeypatch, training):
    """So other processes estimate all of it at once: nothing is left for the pass, and nothing in vain."""
    begun, waited = [], []

    class Answer(Future):
        def result(self, timeout=None):
            waited.append(self)
            return ""

    def decide_ahead(request):
        begun.append(request)
        return Answer()

    monkeypatch.setattr(ahead, "runs", lambda: True)
    monkeypatch.setattr(ahead, "decide_ahead", decide_ahead)
    decide = decider("sm_90a:132:h100")
    rewriter = Rewriter(traced(fake_step("tiny", training, "bf16", 2)).graph, decide, False)
    rewriter.run()
    asked = {line.problem for line in rewriter.lines if line.problem}
    assert any(line.ours for line in rewriter.lines)
    assert {each.signature.key() for each in begun} == asked
    assert len(waited) == len(begun) == len(asked)
