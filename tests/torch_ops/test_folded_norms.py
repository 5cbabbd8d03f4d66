"""Batch norms of many layers folded by one operator: its numbers, the pass that makes it, and what it leaves alone."""

import operator
from collections import Counter

import pytest
import torch
from test_compile_pass import check, randn, rewritten
from torch.nn import functional

from tilesmith.torch_ops.compile import norms
from tilesmith.torch_ops.compile.norm_kernel import norms_of

ops, aten = torch.ops.tilesmith, torch.ops.aten
SIZES = [((12, 8, 3, 3), 0), ((6, 5, 1, 1), 0), ((4, 9, 2, 2), 1)]
EPS = [1e-5, 1e-3, 0.5]


def layers(dtype=torch.float32, norm=torch.float32, last=True):
    """Filters, biases, means, variances, gammas and betas."""
    filters = [randn(*shape, seed=i).to(dtype) for i, (shape, _) in enumerate(SIZES)]
    if last:
        filters = [w.to(memory_format=torch.channels_last) for w in filters]
    vectors = [[randn(shape[axis], seed=10 * j + i) for i, (shape, axis) in enumerate(SIZES)] for j in range(1, 6)]
    vectors[2] = [each.abs() + 0.5 for each in vectors[2]]
    return filters, vectors[0], *([each.to(norm) for each in row] for row in vectors[1:])


def folded(filters, biases, means, variances, gammas, betas):
    """In float64."""
    made = [], []
    for i, (w, (_, axis)) in enumerate(zip(filters, SIZES, strict=True)):
        scale = (variances[i].double() + EPS[i]).rsqrt() * (gammas[i].double() if gammas else 1.0)
        made[0].append(w.double() * scale.view([-1 if at == axis else 1 for at in range(4)]))
        shifted = (biases[i].double() if biases else 0.0) - means[i].double()
        made[1].append(shifted * scale + (betas[i].double() if betas else 0.0))
    return [*made[0], *made[1]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("whole", [True, False], ids=["affine", "plain"])
def test_numbers(dtype, whole):
    given = layers(dtype, dtype)
    if not whole:
        given = (given[0], [], *given[2:4], [], [])
    axes = [axis for _, axis in SIZES]
    found = ops.folded_norms(*given, EPS, axes, dtype)
    for mine, want in zip(found, folded(*given), strict=True):
        assert mine.dtype == dtype
        assert (mine.double() - want).abs().max() < (1e-6 if dtype is torch.float32 else 4e-3) * want.abs().max()
    assert [each.stride() for each in found[:3]] == [each.stride() for each in given[0]]
    torch.library.opcheck(ops.folded_norms, (*given, EPS, axes, dtype), test_utils=("test_schema", "test_faketensor"))


def test_what_the_kernel_takes():
    filters, biases, *vectors = layers(torch.bfloat16, torch.float32)
    means = vectors[0]
    axes = [axis for _, axis in SIZES]
    found = norms_of(filters, biases, *vectors, EPS, axes, torch.bfloat16)
    assert (found.filter, found.norm, found.bias, found.result, found.affine) == ("bf16", "fp32", "fp32", "bf16", True)
    assert [(each.elements, each.channels, each.each) for each in found.layers] == [
        (864, 12, 72), (30, 6, 5), (144, 9, 1),
    ]  # fmt: skip
    first = [layers(last=False)[0][2]], [], [means[2]], [means[2]], [], [], [1e-5], [1], torch.float32
    assert norms_of(*first).layers[0].each == 4
    one = [], means[:1], means[:1], [], [], EPS[:1], [0]
    two = [], means[:2], means[:2], [], [], EPS[:2], axes[:2]
    assert norms_of([filters[0], filters[1].float()], *two, torch.bfloat16) is None
    assert norms_of([filters[0][:, ::2]], *one, torch.bfloat16) is None  # with gaps
    assert norms_of([filters[0].double()], *one, torch.float64) is None


def net(x, w, v, *vectors):
    gamma, beta, mean, variance = vectors[:4]
    y = functional.relu(functional.batch_norm(functional.conv2d(x, w, padding=1), mean, variance, gamma, beta))
    return functional.batch_norm(functional.conv2d(y, v, vectors[4]), mean, variance, gamma, beta, eps=1e-3)


SHAPES = (8, 8, 9, 7), (12, 8, 3, 3), (12, 12, 1, 1), (12, 12, 3, 3)
x, w, v, u = (randn(*shape, seed=i).to(memory_format=torch.channels_last) for i, shape in enumerate(SHAPES))
vectors = [randn(12, seed=4), randn(12, seed=5), randn(12, seed=6), randn(12, seed=7).abs() + 0.5, randn(12, seed=8)]


@pytest.fixture
def joining(monkeypatch):
    """The pass as on a GPU; kernels that it begins to compile are counted."""
    monkeypatch.setattr(norms, "_on_gpu", lambda tensor: True)


def targets(gm):
    return Counter(node.target for node in gm.graph.nodes if node.op == "call_function" and node.users)


def test_layers_of_one_kind_are_folded_together(joining):
    gm, fused = check(net, x, w, v, *vectors, frozen=False)
    assert fused == [("batch norm", "bias", "relu"), ("batch norm", "bias")]
    # One has a bias of its own, the other none: two kinds.
    assert targets(gm) == {ops.folded_norms.default: 2, ops.convolution.default: 2, operator.getitem: 4}

    def twice(x, w, *vectors):
        return net(x, w, w[:, :1, :1, :1].expand(12, 12, 1, 1), *vectors)

    gm, _ = check(twice, x, w, *vectors, frozen=False)  # a filter that is computed stays Inductor's
    assert targets(gm)[ops.folded_norms.default] == 1
    assert aten.rsqrt.default in targets(gm)


def test_three_layers_have_one_operator(joining):
    def deep(x, w, v, u, gamma, beta, mean, variance):
        for filter_ in (w, v, u):
            y = functional.conv2d(x, filter_, padding=filter_.shape[2] // 2)
            x = torch.relu(functional.batch_norm(y, mean, variance, gamma, beta))
        return x

    gm, fused = check(deep, x, w, v, u, *vectors[:4], frozen=False)
    assert fused == [("batch norm", "bias", "relu")] * 3
    assert targets(gm) == {ops.folded_norms.default: 1, ops.convolution.default: 3, operator.getitem: 6}
    (joined,) = [node for node in gm.graph.nodes if node.target is ops.folded_norms.default]
    assert [len(each) for each in joined.args[:6]] == [3, 0, 3, 3, 3, 3]
    assert joined.prev.op == "placeholder"


def test_a_filter_of_another_type_is_read_as_it_is(joining):
    """As autocast converts it: the filter is rounded once, and not before it is folded."""

    def half(x, w, gamma, beta, mean, variance):
        y = functional.conv2d(x.bfloat16(), w.bfloat16(), padding=1)
        return functional.batch_norm(y, mean, variance, gamma, beta).float()

    def exact(x, w, gamma, beta, mean, variance):
        return functional.batch_norm(functional.conv2d(x, w, padding=1), mean, variance, gamma, beta)

    gm, _ = rewritten(half, x, w, *vectors[:4], frozen=False)
    (joined,) = [node for node in gm.graph.nodes if node.target is ops.folded_norms.default]
    assert joined.args[0][0].op == "placeholder"
    assert joined.args[-1] is torch.bfloat16
    want = exact(*(each.double() for each in (x, w, *vectors[:4])))
    assert (gm(x, w, *vectors[:4]).double() - want).abs().max() < 2e-2 * want.abs().max()


@pytest.mark.parametrize(("channels", "folds"), [(512, True), (1024, False)])
def test_a_large_filter_of_a_small_result_is_not_folded(joining, channels, folds):
    """It would be read and written at each call, which takes longer than a pass over the result."""

    def block(x, w, mean, variance):
        return functional.batch_norm(functional.conv2d(x, w), mean, variance)

    given = randn(1, channels, 3, 3), randn(channels, channels, 2, 2)
    statistics = randn(channels, seed=1), randn(channels, seed=2).abs() + 0.5
    last = [each.to(memory_format=torch.channels_last) for each in given]
    gm, _ = rewritten(block, *last, *statistics, frozen=False)
    assert targets(gm)[ops.folded_norms.default] == folds


def test_a_processor_folds_layer_by_layer():
    gm, _ = check(net, x, w, v, *vectors, frozen=False)
    assert ops.folded_norms.default not in targets(gm)


@pytest.mark.needs_compiler
def test_a_compiled_model_folds_anew_at_each_call(joining):
    """Parameters are inputs of the graph: what changes them in place changes the next result."""
    norm, conv = torch.nn.BatchNorm2d(12).eval(), torch.nn.Conv2d(8, 12, 3, bias=False)
    model = torch.nn.Sequential(conv, norm, torch.nn.ReLU()).to(memory_format=torch.channels_last)
    with torch.no_grad():
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2.0)
        compiled = torch.compile(model, backend="tilesmith", fullgraph=True)
        for _ in range(2):
            assert (compiled(x) - model(x)).abs().max() < 1e-4
            conv.weight.mul_(-2.0)
            norm.running_var.add_(1.0)
    torch.compiler.reset()
