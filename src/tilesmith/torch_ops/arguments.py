"""The options of a call in the operators' form, and the way from them to a bound plan.

An operator's options come as lists and numbers at every call. They are turned into a record once, and looked up later.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any, Self

import torch

from tilesmith.dispatch.calls import Call
from tilesmith.dispatch.eager import find_conv, find_gemm
from tilesmith.dispatch.kept_calls import when_forgotten
from tilesmith.dispatch.launchable import Launchable
from tilesmith.errors import ArgumentError
from tilesmith.plan.slots import arguments, relaid
from tilesmith.problems.epilogue import Epilogue
from tilesmith.runtime._runtime import torch_settings, torch_watches
from tilesmith.torch_ops.activations import needs_argument
from tilesmith.torch_ops.frozen import PackedForms, packed_forms
from tilesmith.torch_ops.gradients import Found, GradientCalls, Leaves, gradient_calls, gradients_by_operator
from tilesmith.torch_ops.results import axes, padding_of

Optional = torch.Tensor | None
_LIMIT = 4096
_known: dict[Hashable, Any] = {}
when_forgotten(_known.clear)
_C: Any = torch._C
_is_deterministic: Callable[[], bool] = _C._get_deterministic_algorithms


PLAIN_TYPES = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
# Tensors of autograd's own vmap (``is_grads_batched``): plain to Python, unseen by torch.func, and without memory.
is_batched: Callable[[torch.Tensor], bool] = _C._functorch.is_legacy_batchedtensor


def is_launch(*tensors: Optional) -> bool:
    """Whether a call with these tensors is no more than a launch: nothing records it or watches this thread."""
    if _C.is_grad_enabled() or torch_watches() or torch_settings():
        return False
    for each in tensors:  # noqa: SIM110  a generator takes twice the time
        if each is not None and (type(each) not in PLAIN_TYPES or is_batched(each)):
            return False
    return True


class Arguments:
    """Options of an operator that has two operands, a bias, a residual and an epilogue.

    Args:
        shape: What comes before the epilogue in the schema.
        epilogue: ``activation, slope, low, high`` and ``frozen``.
        sums: ``acc_dtype, mode, threads``.
    """

    def __init__(self, shape: tuple[Any, ...], epilogue: tuple[Any, ...], sums: tuple[Any, ...]) -> None:
        *numbers, self.frozen = epilogue
        self.epilogue = Epilogue(False, numbers[0], False, *numbers[1:])
        self.is_linear = self.epilogue.activation == "none"
        self.shape, self.sums = shape, sums
        self.all = (*shape, *epilogue, *sums)
        # From the filter's id to a plan that takes the tensors as they are. None: the filter meets several problems. An
        # id may be used again: that is safe, since the plan checks its arguments.
        self._bound: dict[Hashable, Callable[..., torch.Tensor] | None] = {}
        # The same of the plans of its gradients, by the filter's id and which of them are wanted.
        self._gradients: dict[Hashable, GradientCalls | None] = {}

    @classmethod
    def of(cls, *options: Any) -> Self:
        """The record of these options, the same one at each call."""
        key = cls, *[tuple(each) if type(each) is list else each for each in options]
        try:
            found: Any = _known.get(key)
        except TypeError:  # symbolic integers
            return cls.made(*key[1:])
        if found is None:
            found = cls.made(*key[1:])
            if len(_known) >= _LIMIT:
                _known.clear()
            # PyTorch leaves out options at the end that have their defaults.
            found = _known[key] = _known.setdefault((cls, *found.all), found)
        return found  # type: ignore[no-any-return]

    @classmethod
    def made(cls, *options: Any) -> Self:
        raise NotImplementedError

    def find(
        self, x: torch.Tensor, w: torch.Tensor, b: Optional, z: Optional, deterministic: bool, out: Optional = None
    ) -> Call:
        """The function of the four tensors that runs their problem. With ``out``, its bound plan takes that, too."""
        raise NotImplementedError

    @cached_property
    def before(self) -> Self:
        """The same without the activation, where the gradient of the activation needs its argument; else itself."""
        if not needs_argument(self.epilogue):
            return self
        return type(self).of(*self.shape, "none", 0.01, 0.0, 6.0, self.frozen, *self.sums)

    def bound_for(self, w: torch.Tensor, b: Optional) -> Callable[..., torch.Tensor] | None:
        """The plan that ran the last such call with this filter, if it takes the tensors as they are."""
        return self._bound.get((id(w), b is None, True, False))

    def bound_now(
        self, w: torch.Tensor, b: Optional, z: Optional, *place: Hashable
    ) -> tuple[Callable[..., torch.Tensor] | None, bool]:
        """The plan that has just run such a call, if it takes the tensors as they are, and whether it has the filter
        packed: then it takes the other tensors alone. ``place`` says how the result lies, where that is given.
        """
        forms, view = packed_forms(w) if self.frozen else (None, None)
        if forms is not None:
            bound = forms.bound.get((self, b is None, z is None, False, view, *place))
            if bound is not None:
                return bound, True
        return self._bound.get((id(w), b is None, z is None, False, *place)), False

    def kernel(self, x: torch.Tensor, w: torch.Tensor, b: Optional, z: Optional) -> Launchable:
        """The launchable that ``run`` calls for these tensors."""
        with torch.no_grad():
            return self.find(x, w, b, z, _is_deterministic()).launch

    def run(self, x: torch.Tensor, w: torch.Tensor, b: Optional, z: Optional) -> torch.Tensor:
        """The result for tensors with memory. Nothing is recorded."""
        forms, view = packed_forms(w) if self.frozen else (None, None)
        deterministic = _is_deterministic()
        own: tuple[Hashable, ...] = (id(w), b is None, z is None, deterministic)
        packed_own: tuple[Hashable, ...] = ()
        if forms is not None:
            packed_own = (self, b is None, z is None, deterministic, view)
            bound = forms.bound.get(packed_own)
            if bound is not None:
                try:
                    if z is None:
                        return bound(x) if b is None else bound(x, b)
                    return bound(x, z) if b is None else bound(x, b, z)
                except ArgumentError:
                    forms.bound[packed_own] = None
        bound = self._bound.get(own)
        if bound is not None:
            try:
                if z is None:
                    return bound(x, w) if b is None else bound(x, w, b)
                return bound(x, w, z) if b is None else bound(x, w, b, z)
            except ArgumentError:
                self._bound[own] = None
        with torch.no_grad():
            call = self.find(x, w, b, z, deterministic)
            packed = self._kept(call, w, forms, own, packed_own)
            if packed is not None:
                return packed(x, b, z)  # type: ignore[no-any-return]
            return call(x, w, b, z)  # type: ignore[no-any-return]

    def _kept(self, call: Call, w: torch.Tensor, forms: PackedForms | None, own: Hashable, packed_own: Hashable) -> Any:
        """Keep the plan of a call for later ones, under the filter's id or its packed forms; the call with its filter
        packed, None where nothing is packed.
        """
        packed = None if forms is None else forms.packed(call, w)
        if forms is not None and packed is not None:
            if packed.bound is not None and packed_own not in forms.bound:
                forms.bound[packed_own] = packed.bound
        elif call.bound is not None and own not in self._bound:
            if len(self._bound) >= _LIMIT:
                self._bound.clear()
            self._bound[own] = call.bound
        return packed

    def run_into(self, x: torch.Tensor, w: torch.Tensor, b: Optional, z: Optional, out: torch.Tensor) -> None:
        """``run`` with the result in ``out``, which may be z, or lie with gaps: the kernel writes there if it can."""
        bound, packed = (None, False) if _is_deterministic() else self._bound_into(x, w, b, z, out)
        if bound is not None:
            operands = [each for each in (x, None if packed else w, b, z) if each is not None]
            try:
                bound(*operands, out=out)
                return
            except ArgumentError:  # the filter meets several problems
                pass
        out.copy_(self.run(x, w, b, z))

    def _bound_into(
        self, x: torch.Tensor, w: torch.Tensor, b: Optional, z: Optional, out: torch.Tensor
    ) -> tuple[Callable[..., torch.Tensor] | None, bool]:
        """The plan that writes into ``out``, and whether it has the filter packed."""
        if z is out:
            bound, packed = self.bound_now(w, b, z)
            return (bound if getattr(bound, "in_place", False) else None), packed
        place = out.shape, out.stride()
        bound, packed = self.bound_now(w, b, z, place)
        if bound is not None:
            return bound, packed
        with torch.no_grad():
            forms, view = packed_forms(w) if self.frozen else (None, None)
            absent = b is None, z is None, False
            call = self.find(x, w, b, z, False, out)
            self._kept(call, w, forms, (id(w), *absent, place), (self, *absent, view, place))
        return self.bound_now(w, b, z, place)


class ConvArguments(Arguments):
    """Options of ``tilesmith::convolution``."""

    leaves: Leaves | None = None

    @classmethod
    def made(
        cls, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int,
        activation: str = "none", slope: float = 0.01, low: float = 0.0, high: float = 6.0, frozen: bool = False,
        acc_dtype: str = "", mode: str | None = None, threads: int | None = None,
    ) -> ConvArguments:  # fmt: skip
        return cls(
            (stride, padding, dilation, transposed, output_padding, groups), (activation, slope, low, high, frozen),
            (acc_dtype, mode, threads),
        )  # fmt: skip

    @staticmethod
    def operator() -> Any:
        return torch.ops.tilesmith.convolution.default

    def product(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.operator()(x, w, None, None, *self.shape, "none", 0.01, 0.0, 6.0, False, *self.sums)
        return y

    def gradients(self, dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, wanted: tuple[bool, bool, bool]) -> Found:
        if not is_launch(dy, x, w):
            return gradients_by_operator(dy, x, w, self.shape, wanted, self.sums)
        own = id(w), wanted
        known = self._gradients.get(own)
        if known is not None and known.takes(w):
            try:
                return known.run(dy, x, w)
            except ArgumentError:
                self._gradients[own] = None  # the filter meets several problems
        find: Callable[..., GradientCalls] = gradient_calls
        calls = find(dy, x, w, *self.shape, wanted, *self.sums, self.leaves)
        if calls.checks_all and own not in self._gradients:
            if len(self._gradients) >= _LIMIT:
                self._gradients.clear()
            self._gradients[own] = calls
        return calls.run(dy, x, w)

    @staticmethod
    def spread(bias: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        return bias.reshape(1, -1, *[1] * (len(shape) - 2)).expand(shape)

    def find(
        self, x: torch.Tensor, w: torch.Tensor, b: Optional, z: Optional, deterministic: bool, out: Optional = None
    ) -> Call:
        stride, padding, dilation, transposed, output_padding, groups = self.shape
        acc_dtype, mode, threads = self.sums
        epilogue = self.epilogue
        return find_conv(
            (x, w, b, z), axes(stride), padding_of(padding, x.dim() - 2), axes(dilation), groups, transposed,
            axes(output_padding) if transposed else 0, "", "", "", "", epilogue.activation, epilogue.slope,
            epilogue.low, epilogue.high, threads, mode, acc_dtype, deterministic, out=out, frozen=self.frozen,
        )  # fmt: skip


class GemmArguments(Arguments):
    """Options of ``tilesmith::gemm``."""

    @classmethod
    def made(
        cls, activation: str = "none", slope: float = 0.01, low: float = 0.0, high: float = 6.0, frozen: bool = False,
        acc_dtype: str = "", mode: str | None = None, threads: int | None = None,
    ) -> GemmArguments:  # fmt: skip
        return cls((), (activation, slope, low, high, frozen), (acc_dtype, mode, threads))

    @staticmethod
    def operator() -> Any:
        return torch.ops.tilesmith.gemm.default

    def product(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.operator()(x, w, None, None, "none", 0.01, 0.0, 6.0, False, *self.sums)
        return y

    def gradients(self, dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, wanted: tuple[bool, bool, bool]) -> Found:
        if is_launch(dy, x, w):
            plain = GemmArguments.of("none", 0.01, 0.0, 6.0, False, *self.sums)
            multiply: Callable[..., torch.Tensor] = lambda a, b: plain.run(a, b, None, None)  # noqa: E731
        else:
            multiply = self.product
        to_a, to_b, to_bias = wanted
        return (
            multiply(dy, w.mT) if to_a else None,
            multiply(x.mT, dy) if to_b else None,
            dy.sum(tuple(range(dy.dim() - 1))) if to_bias else None,
        )

    @staticmethod
    def spread(bias: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        return bias.expand(shape)

    def find(
        self, x: torch.Tensor, w: torch.Tensor, b: Optional, z: Optional, deterministic: bool, out: Optional = None
    ) -> Call:
        acc_dtype, mode, threads = self.sums
        epilogue = self.epilogue
        trans_a, trans_b = _is_transposed(x), _is_transposed(w)
        call = find_gemm(
            (x.mT if trans_a else x, w.mT if trans_b else w, None, b, z), 1.0, 0.0, trans_a, trans_b,
            epilogue.activation, epilogue.slope, epilogue.low, epilogue.high, threads, mode, acc_dtype, deterministic,
            out=out, frozen=self.frozen,
        )  # fmt: skip
        key = (call.token, trans_a, trans_b)
        found: Call | None = _products.get(key)
        if found is None:
            if len(_products) >= _LIMIT:
                _products.clear()
            found = _products[key] = _Product(call, x if trans_a else None, w if trans_b else None)
        return found


_products: dict[Hashable, Call] = {}
when_forgotten(_products.clear)


def _is_transposed(matrix: torch.Tensor) -> bool:
    """Whether the columns lie one after another, and the rows do not: then it is read as it lies."""
    if matrix.dim() < 2:
        return False
    *_, row, column = matrix.stride()
    return row == 1 and column > 1 and column >= matrix.shape[-2]


class _Product:
    """A call of ``gemm`` as a function of ``a, b, bias, residual``, with the axes of matrices in the operator's order.

    Args:
        call: The call, of transposed views where ``a`` or ``b`` is given.
        a: The left matrix if it lies transposed.
        b: The right matrix if it lies transposed.
    """

    def __init__(self, call: Call, a: Optional, b: Optional) -> None:
        self._call, self._trans_a, self._trans_b = call, a is not None, b is not None
        self.token: Hashable = self
        self.launch = call.launch
        self.bound: Callable[..., Any] | None = call.bound
        if call.bound is not None and not (a is None and b is None):
            slots = list(arguments(call.launch.signature))
            for place, matrix in enumerate((a, b)):
                if matrix is not None:
                    slots[place] = relaid(slots[place], tuple(matrix.shape), matrix.stride())
            self.bound = call.launch.bound_for(slots, exact=0) if call.launch.exportable else None

    def __call__(self, a: torch.Tensor, b: torch.Tensor, bias: Optional, z: Optional) -> Any:
        return self._call(a.mT if self._trans_a else a, b.mT if self._trans_b else b, None, bias, z)

    def packed(self, filter_: torch.Tensor) -> Any:
        packed = self._call.packed(filter_.mT if self._trans_b else filter_)
        return None if packed is None else _PackedProduct(packed, self._trans_a)


class _PackedProduct:
    def __init__(self, packed: Any, trans_a: bool) -> None:
        self._packed, self._trans_a = packed, trans_a
        self.bound = None if trans_a else packed.bound

    def __call__(self, a: torch.Tensor, bias: Optional, z: Optional) -> Any:
        return self._packed(a.mT if self._trans_a else a, None, bias, z)
