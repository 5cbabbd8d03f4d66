"""How the gradients of an operator with an epilogue are recorded: one function for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch._C import DispatchKey
from torch._functorch import autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from tilesmith.dispatch import kept_calls
from tilesmith.problems.epilogue import Epilogue
from tilesmith.torch_ops.activations import activate, gradient_before
from tilesmith.torch_ops.gradients import Found

Optional = torch.Tensor | None
Kernel = Callable[..., Any]
Launch = Callable[..., torch.Tensor]
_LIMIT = 4096
_C: Any = torch._C
# A function of autograd that torch.func runs at one of its levels: operators reach the levels below.
LevelFunction: Any = _SingleLevelFunction
one_level: Any = autograd_function.enable_single_level_autograd_function
_DEVICES = (DispatchKey.CPU, DispatchKey.CUDA)
_records = _C.is_grad_enabled
_direct: dict[int, bool] = {}  # by the bits of a set of keys: asking PyTorch takes two microseconds


class Recordable(Protocol):
    """The options of a call whose result is ``activation(f(x, w) + b + residual)``, where ``f`` is linear in both."""

    epilogue: Epilogue

    @property
    def is_linear(self) -> bool:
        """Whether there is no activation."""

    @property
    def before(self) -> Recordable:
        """The same without the activation, where the gradient of the activation needs its argument; else itself."""

    @staticmethod
    def operator() -> Any:
        """The operator's overload."""

    @property
    def all(self) -> tuple[Any, ...]:
        """The operator's arguments behind the residual."""

    def run(self, x: torch.Tensor, w: torch.Tensor, b: Optional, z: Optional) -> torch.Tensor:
        """The result, on tensors with memory."""

    def gradients(self, dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, wanted: tuple[bool, bool, bool]) -> Found:
        """The gradients of ``f(x, w) + b`` with respect to ``x``, ``w`` and ``b``; None for each that is not wanted."""

    def spread(self, bias: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        """A bias as a tensor of the result's shape."""

    def product(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """``f(x, w)``, recorded."""


class Recorded(LevelFunction):  # type: ignore[misc]
    """An operator whose activation has its gradient from the result, or that has no activation.

    Calls the kernel itself when ``keyset`` is None, else the operator below autograd's key.
    """

    @staticmethod
    def forward(ctx: Any, keyset: Any, options: Recordable, x: Any, w: Any, b: Optional, z: Optional) -> Any:
        y = _computed(keyset, x, w, b, z, options)
        ctx.options = options
        saved = (x, w) if options.is_linear else (x, w, y)
        ctx.save_for_backward(*saved)
        if forward_ad._current_level >= 0:
            ctx.save_for_forward(*saved)
            ctx.y_shape = y.shape
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
        x, w, *saved = ctx.saved_tensors
        if saved:
            dy = gradient_before(ctx.options.epilogue, dy, saved[0])
        return _gradients(ctx, dy, x, w)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        x, w, *saved = ctx.saved_tensors
        tangent = _tangent(ctx, x, w, *tangents[2:])
        return gradient_before(ctx.options.epilogue, tangent, saved[0]) if saved else tangent


def recorded_launch(launch: Launch, options: Recordable) -> Launch:
    """The call of ``x, w`` and, if there is one, the bias as one launch whose gradients are recorded: where nothing but
    gradients is asked for, and the activation has its gradient from the result.

    ``launch`` takes the tensors as they are, and raises ``ArgumentError`` where they lie otherwise. Whoever calls it
    has asked whether anything watches the thread.

    NOTE: a class of its own for each launch, which takes 31 us to make. What it closes over need not pass through
    PyTorch at each call: that was 0.5 us of the 5.9 that recording took on a CPU (``benchmarks/host.py``, with
    gradients and without).
    """
    linear = options.is_linear

    class RecordedLaunch(LevelFunction):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor, *b: torch.Tensor) -> torch.Tensor:
            y = launch(x, w, *b)
            if linear:
                ctx.save_for_backward(x, w)
            else:
                ctx.save_for_backward(x, w, y)
            return y

        @staticmethod
        def backward(ctx: Any, dy: torch.Tensor) -> tuple[Optional, ...]:
            x, w, *saved = ctx.saved_tensors
            if saved:
                dy = gradient_before(options.epilogue, dy, saved[0])
            to_x, to_w, *to_b = wanted = ctx.needs_input_grad
            return options.gradients(dy, x, w, (to_x, to_w, any(to_b)))[: len(wanted)]

    return RecordedLaunch.apply  # type: ignore[no-any-return]


def unwatched(bound: Launch) -> Launch:
    """A bound plan as a launch that does not ask once more whether anything watches the thread."""
    return getattr(bound, "unwatched", bound)


class RecordedArgument(LevelFunction):  # type: ignore[misc]
    """An operator whose activation has its gradient from its argument.

    As in PyTorch, the activation is an operation of its own then. The activation's argument is a second result: so what
    is saved has a gradient itself, and second derivatives are right.
    """

    @staticmethod
    def forward(
        ctx: Any, keyset: Any, options: Recordable, x: Any, w: Any, b: Optional, z: Optional
    ) -> tuple[torch.Tensor, torch.Tensor]:
        argument = _computed(keyset, x, w, b, z, options.before)
        ctx.options = options
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, w, argument)
        if forward_ad._current_level >= 0:
            ctx.save_for_forward(x, w, argument)
            ctx.y_shape = argument.shape
        return _activated(keyset, options, argument), argument

    @staticmethod
    def backward(ctx: Any, dy: Optional, more: Optional) -> tuple[Any, ...]:
        x, w, argument = ctx.saved_tensors
        total = None if dy is None else gradient_before(ctx.options.epilogue, dy, argument)
        if more is not None:
            total = more if total is None else total + more
        return (None,) * 6 if total is None else _gradients(ctx, total, x, w)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        x, w, argument = ctx.saved_tensors
        tangent = _tangent(ctx, x, w, *tangents[2:])
        return gradient_before(ctx.options.epilogue, tangent, argument), tangent


def record(keyset: Any, x: Any, w: Any, b: Optional, z: Optional, options: Recordable) -> torch.Tensor:
    """The result of an operator with its gradients recorded."""
    if options.before is options:
        return Recorded.apply(keyset, options, x, w, b, z)  # type: ignore[no-any-return]
    return RecordedArgument.apply(keyset, options, x, w, b, z)[0]  # type: ignore[no-any-return]


@contextmanager
def beneath() -> Iterator[None]:
    """Below autograd's key, inside the forward part of a function.

    That part records nothing; of the levels of ``torch.func`` this holds for one alone, so those below are switched on
    again.
    """
    with _C._AutoDispatchBelowAutograd():
        if _C._are_functorch_transforms_active():
            with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
                yield
        else:
            yield


def _computed(keyset: Any, x: Any, w: Any, b: Optional, z: Optional, options: Recordable) -> Any:
    if keyset is None:
        return options.run(x, w, b, z)
    with beneath():
        return options.operator().redispatch(keyset & _C._after_autograd_keyset, x, w, b, z, *options.all)


def _activated(keyset: Any, options: Recordable, argument: torch.Tensor) -> Any:
    if keyset is None:
        return activate(options.epilogue, argument)
    with beneath():
        return activate(options.epilogue, argument)


def _gradients(ctx: Any, dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple[Any, ...]:
    _, _, to_x, to_w, to_b, to_z = ctx.needs_input_grad
    some = to_x or to_w or to_b
    dx, dw, db = ctx.options.gradients(dy, x, w, (to_x, to_w, to_b)) if some else (None, None, None)
    return None, None, dx, dw, db, dy if to_z else None


def _tangent(ctx: Any, x: torch.Tensor, w: torch.Tensor, dx: Optional, dw: Optional, db: Optional, dz: Optional) -> Any:
    """The tangent of ``f(x, w) + b + z``, where those that are None have none."""
    options: Recordable = ctx.options
    parts = [] if dx is None else [options.product(dx, w)]
    parts += [] if dw is None else [options.product(x, dw)]
    parts += [] if dz is None else [dz]
    parts += [] if db is None else [options.spread(db, ctx.y_shape)]
    return sum(parts[1:], parts[0])


def has_memory(keyset: Any) -> bool:
    """Whether the next kernel below autograd is that of a device: no mode, transform or subclass comes before it."""
    bits = keyset.raw_repr()
    found = _direct.get(bits)
    if found is None:
        below = (keyset & _C._after_ADInplaceOrView_keyset).highestPriorityTypeId()
        found = _direct[bits] = below in _DEVICES
    return found


def has_tangent(*tensors: Optional) -> bool:
    """Whether a tensor has a tangent of forward-mode differentiation."""
    unpack: Any = forward_ad.unpack_dual
    return any(each is not None and unpack(each).tangent is not None for each in tensors)


def kernels_of(kind: Any) -> tuple[Kernel, Kernel, Kernel]:
    """An operator's kernel for devices, that of the autograd key, and one that writes its result into ``out``.

    ``kind`` makes the options of ``rest``.
    """
    # By the id of a filter: the options of the last call with it as PyTorch gave them, and what they make. To compare
    # them takes a third of the time that looking them up takes. An id may be used again.
    last: dict[int, tuple[tuple[Any, ...], Any]] = {}
    kept_calls.when_forgotten(last.clear)

    def options_of(w: Any, rest: tuple[Any, ...]) -> Any:
        known = last.get(id(w))
        if known is not None and known[0] == rest:
            return known[1]
        emptied = kept_calls.emptied
        options = kind.of(*rest)
        if len(last) >= _LIMIT:
            last.clear()
        last[id(w)] = rest, options
        if emptied != kept_calls.emptied:  # another thread has emptied the tables since: the plans may be outdated
            last.pop(id(w), None)
        return options

    def kernel(x: Any, w: Any, b: Any, z: Any, *rest: Any) -> Any:
        return options_of(w, rest).run(x, w, b, z)

    def into(out: Any, x: Any, w: Any, b: Any, z: Any, *rest: Any) -> Any:
        options_of(w, rest).run_into(x, w, b, z, out)

    def recorded(keyset: Any, x: Any, w: Any, b: Any, z: Any, *rest: Any) -> Any:
        direct = _direct.get(keyset.raw_repr())
        if direct is None:
            direct = has_memory(keyset)
        tangents = forward_ad._current_level >= 0 and has_tangent(x, w, b, z)
        if not tangents and not (
            _records()
            and (
                x.requires_grad or w.requires_grad or (b is not None and b.requires_grad)
                or (z is not None and z.requires_grad)
            )
        ):  # fmt: skip
            if direct:
                return options_of(w, rest).run(x, w, b, z)
            with _C._AutoDispatchBelowAutograd():
                return kind.operator().redispatch(keyset & _C._after_autograd_keyset, x, w, b, z, *rest)
        if direct and not tangents:
            return record(None, x, w, b, z, options_of(w, rest))
        with one_level():
            return record(keyset, x, w, b, z, kind.of(*rest))

    return kernel, recorded, into
