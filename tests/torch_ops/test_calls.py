"""``tilesmith.conv`` and ``tilesmith.gemm`` of PyTorch's tensors are operators, for all that watches PyTorch."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.functional import jacobian
from torch.func import functionalize, grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import tilesmith
from tilesmith.dispatch.kept_calls import forget
from tilesmith.errors import ArgumentError


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X, W, B, A = randn(2, 4, 6, 5), randn(5, 4, 3, 3, seed=1), randn(5, seed=2), randn(6, 5, seed=3)


def mine(x, w=W, b=B):
    return tilesmith.conv(x, w, b, padding=1, activation="silu")


def theirs(x, w=W, b=B):
    return F.silu(F.conv2d(x, w, b, padding=1))


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.b = torch.nn.Parameter(W.clone()), torch.nn.Parameter(B.clone())

    def forward(self, x):
        return mine(x, self.w, self.b)


def same(found, want):
    torch.testing.assert_close(found, want, atol=1e-3, rtol=1e-3)


def leaves():
    return [each.clone().requires_grad_() for each in (X, W, B)]


def grads(call, tensors):
    return torch.autograd.grad(call(*tensors).square().sum(), tensors)


# --- programs that are recorded -----------------------------------------------------------------------------------


def exported(**options):
    return torch.export.export(Layer(), (X,), **options).module()


RECORDED = {
    "jit.trace": lambda: torch.jit.trace(Layer(), (X,)),
    "make_fx": lambda: make_fx(lambda x: mine(x))(X),
    "make_fx ahead": lambda: make_fx(lambda x: mine(x), pre_dispatch=True)(X),
    "symbolic_trace": lambda: torch.fx.symbolic_trace(Layer()),
    "export": exported,
    "export strict": lambda: exported(strict=True),
    "export dynamic": lambda: exported(dynamic_shapes=({0: torch.export.Dim("n", min=2)},)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", RECORDED)
def test_a_recorded_program_has_the_operator(way):
    mine(X)  # what the calls before have kept is not in the way
    program = RECORDED[way]()
    text = str(program.graph)
    assert "tilesmith" in text
    assert "convolution" in text
    same(program(X), theirs(X))
    if "dynamic" in way:
        same(program(torch.cat([X, X])), theirs(torch.cat([X, X])))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiled_program_is_one_graph(dynamic):
    compiled = torch.compile(lambda x, w, b: mine(x * 1, w, b), fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for x, w, b in (leaves(), (torch.cat([X, X]).requires_grad_(), *leaves()[1:])):
        same(compiled(x, w, b), theirs(x, w, b))
        same(grads(compiled, (x, w, b)), grads(theirs, (x, w, b)))


def test_compiled_layouts_words_and_products():
    last, filter_ = X.permute(0, 2, 3, 1), W.permute(0, 2, 3, 1)
    compiled = torch.compile(
        lambda x, a: (
            tilesmith.conv(x, filter_, shared_layout="NHWC", padding="same"),
            tilesmith.gemm(a, a, trans_b=True, alpha=2.0, c=a @ a.mT, beta=3.0, activation="relu"),
            tilesmith.conv(x[0].permute(2, 0, 1), W, padding=((1, 0), (0, 1))),
        ),
        fullgraph=True, backend="eager",
    )  # fmt: skip
    y, c, one = compiled(last, A)
    same(y.permute(0, 3, 1, 2), F.conv2d(X, W, padding="same"))
    same(c, (5 * A @ A.mT).relu())
    same(one, F.conv2d(F.pad(X[0], (0, 1, 1, 0)), W))


def test_the_profiler_and_modes_of_functions_see_operators():
    with torch.profiler.profile() as profile:
        mine(X)
        mine(*leaves())
        tilesmith.gemm(A, A.mT)
    counts = {each.key: each.count for each in profile.key_averages()}
    assert counts["tilesmith::convolution"] == 2
    assert counts["tilesmith::gemm"] == 1

    class Seeing(torch.overrides.TorchFunctionMode):
        seen = ()

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen += (str(func),)
            return func(*args, **(kwargs or {}))

    with Seeing() as mode:
        mine(X)
    assert any("tilesmith.convolution" in each for each in mode.seen)


class Marked(torch.Tensor):
    pass


def test_tensors_of_other_kinds():
    assert type(mine(X.as_subclass(Marked))) is Marked
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    assert mine(mode.from_tensor(X)).shape == (2, 5, 6, 5)
    assert mine(X.to("meta"), W.to("meta"), B.to("meta")).is_meta
    with pytest.raises(ArgumentError, match="give one kind"):
        mine(X.numpy(), W.clone().requires_grad_())
    with torch.inference_mode():
        same(mine(X), theirs(X))


# --- transforms ---------------------------------------------------------------------------------------------------


def loss(call):
    return lambda w, x: call(x, w).square().sum()


TWO = [torch.stack([each, 2 * each]) for each in (X, W, B)]
TRANSFORMED = {
    "vmap": lambda call: vmap(call)(TWO[0]),
    "vmap of w": lambda call: vmap(call, in_dims=(None, 0))(X, TWO[1]),
    "vmap of b": lambda call: vmap(call, in_dims=(None, None, 0))(X, W, TWO[2]),
    "vmap of all": lambda call: vmap(call, in_dims=(1, 2, 1))(
        TWO[0].movedim(0, 1), TWO[1].movedim(0, 2), TWO[2].movedim(0, 1)
    ),
    "vmap twice": lambda call: vmap(vmap(call, (None, 0)), (0, None))(TWO[0], TWO[1]),
    "vmap of one image": lambda call: vmap(call)(X),
    "grad": lambda call: grad(loss(call))(W, X),
    "grad of each image": lambda call: vmap(grad(loss(call)), in_dims=(None, 0))(W, X),
    "jacrev": lambda call: jacrev(lambda w: call(X, w).sum((0, 2, 3)))(W),
    "jvp": lambda call: jvp(call, (X, W, B), (X, W, B)),
    "jacfwd": lambda call: jacfwd(lambda b: call(X, W, b).sum((0, 2, 3)))(B),
    "second gradient": lambda call: grad(lambda w: grad(loss(call))(w, X).square().sum())(W),
    "hessian": lambda call: hessian(lambda b: call(X, W, b).square().sum())(B),
    "forward over reverse": lambda call: jvp(lambda w: grad(loss(call))(w, X), (W,), (W,)),
    "functionalize": lambda call: functionalize(call)(X),
}


@pytest.mark.parametrize("way", TRANSFORMED)
def test_a_transform_gives_what_it_gives_of_pytorch(way):
    same(TRANSFORMED[way](mine), TRANSFORMED[way](theirs))


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_batches_of_products(axes, batch):
    shapes = ((*([2] if axis == 0 else []), *batch, *shape) for axis, shape in zip(axes, [(4, 5), (5, 6)], strict=True))
    a, b = (randn(*shape) for shape in shapes)
    for bias, axis in ((randn(6), None), (randn(2, 6), 0)):
        call = vmap(lambda a, b, bias: tilesmith.gemm(a, b, bias=bias, activation="relu"), (*axes, axis))
        same(call(a, b, bias), vmap(lambda a, b, bias: (a @ b + bias).relu(), (*axes, axis))(a, b, bias))


def test_tangents_of_products():
    for call in (lambda a, b: tilesmith.gemm(a, b, activation="gelu"), lambda a, b: F.gelu(a @ b)):
        results = jvp(call, (A, A.mT.clone()), (A, A.mT.clone()))
    same(jvp(lambda a, b: tilesmith.gemm(a, b, activation="gelu"), (A, A.mT.clone()), (A, A.mT.clone())), results)


def batched(call, *shapes):
    """Gradients of three tangents at once: of a first call, and of the short one that follows."""
    tensors = [randn(*shape, seed=seed).requires_grad_() for seed, shape in enumerate(shapes)]
    found = []
    for _ in range(2):
        y = call(*tensors)
        found.append(torch.autograd.grad(y, tensors, randn(3, *y.shape), is_grads_batched=True, retain_graph=True))
        torch.autograd.grad(y.sum(), tensors)
    return found


class OwnGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, product):
        ctx.product = product
        return a * 2

    @staticmethod
    def backward(ctx, dy):
        return ctx.product(dy, A @ A.mT), None


def test_batches_of_tangents():
    layer = torch.nn.Conv2d(4, 5, 3)
    pairs = [
        (mine, theirs, (X.shape, W.shape, B.shape)),
        (lambda x, w: tilesmith.conv(x, w), F.conv2d, (X.shape, W.shape)),
        (tilesmith.gemm, torch.mm, ((3, 4), (4, 5))),
        (lambda a, b: tilesmith.gemm(a, b, activation="relu"), lambda a, b: (a @ b).relu(), ((3, 4), (4, 5))),
        (tilesmith.optimize(layer), layer, (X.shape,)),
        (lambda a: OwnGradient.apply(a, tilesmith.gemm), lambda a: OwnGradient.apply(a, torch.mm), ((6, 6),)),
    ]
    for ours, pytorchs, shapes in pairs:
        same(batched(ours, *shapes), batched(pytorchs, *shapes))
    same(jacobian(mine, X, vectorize=True), jacobian(theirs, X, vectorize=True))
    doubles = [randn(*shape).double().requires_grad_() for shape in ((2, 3), (3, 2))]
    assert torch.autograd.gradgradcheck(tilesmith.gemm, doubles, check_batched_grad=True)


# --- settings -----------------------------------------------------------------------------------------------------


def test_autocast():
    x, w, b = leaves()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = mine(x, w, b)
        by_operator = torch.ops.tilesmith.convolution(x, w, b, None, [1], [1], [1], False, [0], 1, "silu")
        assert tilesmith.gemm(A, A.mT).dtype == torch.bfloat16
        assert mine(X).dtype == torch.bfloat16
        assert tilesmith.gemm(A.double(), A.mT.double()).dtype == torch.float64
    assert found.dtype == by_operator.dtype == torch.bfloat16
    assert torch.equal(found, by_operator)
    want = grads(theirs, (x, w, b))
    for each, right in zip(torch.autograd.grad(found.float().square().sum(), (x, w, b)), want, strict=True):
        assert each.dtype == torch.float32
        assert (each - right).abs().max() < 0.05 * right.abs().max()


def test_deterministic_algorithms_reach_the_problem(monkeypatch):
    from tilesmith.dispatch import eager
    from tilesmith.torch_ops import gradients

    asked = []
    for module in (eager, gradients):
        real = module.get_launchable
        monkeypatch.setattr(module, "get_launchable", lambda s, real=real, **o: asked.append(s) or real(s, **o))
    tilesmith.forget()
    torch.use_deterministic_algorithms(True)
    try:
        x, w, b = leaves()
        same(grads(mine, (x, w, b)), grads(theirs, (x, w, b)))
        same(mine(X), theirs(X))
        tilesmith.gemm(A, A.mT)
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(asked) >= 5
    assert all(each.deterministic for each in asked)
    asked.clear()
    mine(X)
    assert not any(each.deterministic for each in asked)


# --- gradients ----------------------------------------------------------------------------------------------------


def test_every_form_of_call_records_gradients():
    x, w, b = leaves()
    same(mine(x[0], w), theirs(x[0], w))
    y = tilesmith.conv(x.permute(0, 2, 3, 1), w.permute(0, 2, 3, 1), shared_layout="NHWC", padding="same")
    assert y.is_contiguous()
    same(y, F.conv2d(x, w, padding="same").permute(0, 2, 3, 1))
    same(
        grads(lambda x, w: tilesmith.conv(x, w, acc_dtype="fp64", threads=1, mode="fast"), (x, w)),
        grads(F.conv2d, (x, w)),
    )
    assert mine(x[:0], w, b).shape == (0, 5, 6, 5)
    a = A.clone().requires_grad_()
    same(
        grads(lambda a: tilesmith.gemm(a, a, a @ a.mT, trans_b=True, alpha=2.0, beta=0.5, activation="gelu"), (a,)),
        grads(lambda a: F.gelu(2.5 * a @ a.mT), (a,)),
    )


@pytest.mark.parametrize(
    ("trans_a", "trans_b", "batch"),  # each pair of values is in one of them
    [(False, False, ()), (False, True, (3,)), (True, False, (3,)), (True, True, ())],
)
def test_products_that_follow_with_the_same_right_matrix(trans_a, trans_b, batch, monkeypatch):
    """They run the plan at once, as their gradients do, and notice other left matrices, tangents and transforms."""

    def ours(a, b):
        return tilesmith.gemm(a, b, trans_a=trans_a, trans_b=trans_b, mode="fast")

    def pytorchs(a, b):
        return (a.mT if trans_a else a) @ (b.mT if trans_b else b)

    a = randn(*batch, *((5, 7) if trans_a else (7, 5))).requires_grad_()
    b = randn(*batch, *((6, 5) if trans_b else (5, 6)), seed=1).requires_grad_()
    same(grads(ours, (a, b)), grads(pytorchs, (a, b)))
    with monkeypatch.context() as patch:
        patch.setattr(tilesmith.torch_ops.calls, "_product", None)  # the long way
        same(grads(ours, (a, b)), grads(pytorchs, (a, b)))
        same(torch.autograd.grad(ours(a, b).sum(), (a,)), torch.autograd.grad(pytorchs(a, b).sum(), (a,)))
    assert "RecordedProduct" in type(ours(a, b).grad_fn).__name__
    wide = randn(*batch, *((5, 9) if trans_a else (9, 5)), seed=2).requires_grad_()
    for left in (wide, wide.detach().mT.contiguous().mT.requires_grad_(), a):
        same(grads(ours, (left, b)), grads(pytorchs, (left, b)))
    twice = [torch.autograd.grad(torch.autograd.grad(call(a, b).square().sum(), a, create_graph=True)[0].sum(), (a, b))
             for call in (ours, pytorchs)]  # fmt: skip
    same(*twice)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(a, torch.ones_like(a))
        found, want = (torch.autograd.forward_ad.unpack_dual(call(dual, b)).tangent for call in (ours, pytorchs))
    same(found, want)
    same(jvp(lambda a: ours(a, b), (a,), (a,)), jvp(lambda a: pytorchs(a, b), (a,), (a,)))


@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_calls_that_follow_with_the_same_filter(activation, monkeypatch):
    """They run the plan at once, and notice other images, layouts and filters in the same place."""

    def ours(x, w, b=None):
        return tilesmith.conv(x, w, b, stride=2, activation=activation, mode="fast")

    def pytorchs(x, w, b=None):
        return getattr(F, activation)(F.conv2d(x, w, b, stride=2))

    x, w, b = leaves()
    last = X.to(memory_format=torch.channels_last).requires_grad_()
    for image in (x, x, last):
        tensors = [each for each in (image, w, b) if each.requires_grad]
        same(grads(lambda *_, image=image: ours(image, w, b), tensors),
             grads(lambda *_, image=image: pytorchs(image, w, b), tensors))  # fmt: skip
    # Sizes that differ, and the sizes of the results are the same.
    for image in (randn(2, 4, 5, 5), randn(2, 4, 6, 6)):
        image.requires_grad_()
        same(grads(lambda x: ours(x, W), (image,)), grads(lambda x: pytorchs(x, W), (image,)))
    filter_ = torch.nn.Parameter(W.clone())
    for size in (3, 3, 4):
        filter_.data = randn(5, 4, size, size)
        for _ in range(2):
            same(grads(lambda w: ours(randn(2, 4, 8, 8), w), (filter_,)), grads(
                lambda w: pytorchs(randn(2, 4, 8, 8), w), (filter_,)))  # fmt: skip
    monkeypatch.setattr(tilesmith, "tensor_calls", None)  # the long way
    same(ours(randn(2, 4, 8, 8), filter_), pytorchs(randn(2, 4, 8, 8), filter_))


@pytest.mark.parametrize(
    ("call", "shapes"), [(tilesmith.conv, ((2, 4, 6, 5), (5, 4, 3, 3))), (tilesmith.gemm, ((7, 5), (5, 6)))]
)
def test_filters_made_anew_at_each_step_have_one_function_of_autograd(call, shapes):
    x, kinds = randn(*shapes[0]).requires_grad_(), set()
    for seed in range(3):
        w = randn(*shapes[1], seed=seed).requires_grad_()
        for _ in range(2):  # the second call with a filter is the short one
            function = type(call(x, w, mode="fast").grad_fn)
        kinds.add(function)
    (kind,) = kinds
    assert "RecordedLaunch" in kind.__name__ or "RecordedProduct" in kind.__name__
    forget()
    call(x, w, mode="fast")
    assert type(call(x, w, mode="fast").grad_fn) is not kind  # a function kept would keep an outdated plan


def test_checkpoints_hooks_versions_and_retained_graphs():
    x, w, b = leaves()
    same(
        torch.autograd.grad(checkpoint(mine, x, w, b, use_reentrant=False).sum(), w),
        torch.autograd.grad(theirs(x, w, b).sum(), w),
    )
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda each: saved.append(each) or each, lambda each: each):
        mine(x, w, b)
    assert len(saved) == 3  # x, w and the activation's argument, as PyTorch
    for activation, broken in (("none", w), ("relu", None)):
        y = tilesmith.conv(x, w, activation=activation)
        with torch.no_grad():
            (y if broken is None else broken).add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
    y = mine(x, w, b).sum()
    for count in (1, 2):
        y.backward(retain_graph=True)
        same(b.grad, count * torch.autograd.grad(theirs(x, w, b).sum(), b)[0])
