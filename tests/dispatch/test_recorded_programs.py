"""Programs that PyTorch records or transforms see its operators alone: a launchable is refused there."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import tilesmith
from tilesmith import ConvSignature, get_launchable
from tilesmith.errors import ArgumentError
from tilesmith.torch_ops.trace import Trace

X, W = torch.randn(1, 3, 5, 5), torch.randn(4, 3, 3, 3)
SIGNATURE = ConvSignature((1, 3, 5, 5), (4, 3, 3, 3))


class Watching(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def in_mode(mode):
    def run(call):
        with mode():
            call(X)

    return run


def fake_outside(call):
    call(FakeTensorMode().from_tensor(X))


def fake_inside(call):
    with FakeTensorMode() as mode:
        call(mode.from_tensor(X))


def export(call):
    class Model(torch.nn.Module):
        def forward(self, x):
            return call(x)

    torch.export.export(Model(), (X,), strict=False)


def tangents(call):
    with forward_ad.dual_level():
        call(forward_ad.make_dual(X, X))


PROGRAMS = {
    "jit.trace": (lambda call: torch.jit.trace(call, (X,), check_trace=False), "torch.jit.trace cannot record"),
    "make_fx": (lambda call: make_fx(call)(X), "ProxyTorchDispatchMode cannot record"),
    "make_fx ahead": (lambda call: make_fx(call, pre_dispatch=True)(X), "make_fx.* cannot record"),
    "make_fx fake": (lambda call: make_fx(call, tracing_mode="fake")(X), "cannot record|operators of its own"),
    "symbolic_trace": (lambda call: torch.fx.symbolic_trace(call), "symbolic_trace cannot record"),
    "export": (export, "cannot record|operators of its own"),
    "a mode": (in_mode(Watching), "dispatch mode Watching cannot record"),
    "counting": (in_mode(lambda: FlopCounterMode(display=False)), "dispatch mode .* cannot record"),
    "fake mode": (in_mode(lambda: FakeTensorMode(allow_non_fake_inputs=True)), "dispatch mode FakeTensorMode"),
    "fake tensor": (fake_outside, "FakeTensor, which has operators of its own"),
    "fake inside": (fake_inside, "cannot record|operators of its own"),
    "vmap": (lambda call: torch.vmap(call)(X[None]), "vmap cannot transform .*first axis of x"),
    "grad": (lambda call: torch.func.grad(lambda x: call(x).sum())(X), "grad cannot transform"),
    "jvp": (lambda call: torch.func.jvp(call, (X,), (X,)), "jvp cannot transform"),
    "functionalize": (lambda call: torch.func.functionalize(call)(X), "functionalize cannot transform"),
    "tangents": (tangents, "has a tangent.*unpack_dual"),
}  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_call_in_a_program_that_is_recorded_is_refused(program):
    run, words = PROGRAMS[program]
    launch = get_launchable(SIGNATURE)
    prepared = launch.prepare(W)
    as_filter = get_launchable(ConvSignature((2, 3, 6, 6), (1, 3, 5, 5)))
    calls = (
        lambda x: launch(x, W),
        lambda x: prepared(x),  # what records wants a Python function
        lambda x: as_filter.prepare(x),
    )
    for call in calls:
        for _ in range(3):  # the calls that follow find what the first has kept
            call(X)
        with pytest.raises(ArgumentError, match=words) as caught:
            run(call)
        assert "\n" not in str(caught.value)
        call(X)


def test_the_refusal_says_what_to_type_and_that_works():
    launch = get_launchable(SIGNATURE)

    @torch.library.custom_op("tilesmith_test::convolution", mutates_args=())
    def convolution(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return launch(x, w)

    @convolution.register_fake
    def _(x, w):
        return x.new_empty(SIGNATURE.output_shape)

    with pytest.raises(ArgumentError, match=r"@torch\.library\.custom_op"):
        make_fx(launch)(X, W)
    want = F.conv2d(X, W)
    for record in (
        lambda call: make_fx(call)(X, W),
        lambda call: make_fx(call, tracing_mode="fake")(X, W),
        lambda call: torch.jit.trace(lambda x, w: call(x, w), (X, W), check_trace=False),
        lambda call: torch.compile(call, backend="eager", fullgraph=True),
    ):
        torch.testing.assert_close(record(convolution)(X, W), want, atol=1e-4, rtol=1e-4)
    with Watching():
        torch.testing.assert_close(convolution(X, W), want, atol=1e-4, rtol=1e-4)


def test_a_mode_that_lets_tilesmith_run_is_not_in_the_way():
    want = F.conv2d(X, W)
    with Trace():
        torch.testing.assert_close(tilesmith.conv(X, W), want, atol=1e-4, rtol=1e-4)


def test_a_compiled_program_calls_launchables_between_its_graphs():
    launch = get_launchable(SIGNATURE)
    compiled = torch.compile(lambda x: launch(x * 2, W) + x.sum(), backend="eager")
    for _ in range(3):
        torch.testing.assert_close(compiled(X), F.conv2d(X * 2, W) + X.sum(), atol=1e-4, rtol=1e-4)
    whole = torch.compile(lambda x: launch(x, W), backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"torch\.library\.custom_op"):
        whole(X)


class Doubled(torch.Tensor):
    """A tensor whose values are not those in its memory."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*(a.as_subclass(torch.Tensor) * 2 if isinstance(a, cls) else a for a in args), **(kwargs or {}))


def test_a_tensor_with_operators_of_its_own_is_not_read():
    launch = get_launchable(SIGNATURE)
    doubled = X.as_subclass(Doubled)
    for call in (lambda: launch(doubled, W), lambda: launch.prepare(W)(doubled)):
        with pytest.raises(ArgumentError, match="x is a Doubled, which has operators of its own"):
            call()
    parameter = torch.nn.Parameter(W)
    with torch.no_grad():
        assert launch(X, parameter).shape == SIGNATURE.output_shape


def test_a_default_device_is_no_recording():
    launch = get_launchable(SIGNATURE)
    with torch.device("cpu"):
        assert launch(X, W).shape == SIGNATURE.output_shape
