"""Bound plans as functions of the arrays of ``conv`` and ``gemm``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from tilesmith.dispatch.arrays import contiguous, permuted
from tilesmith.dispatch.launchable import Launchable
from tilesmith.dispatch.layout_names import NamedArray


class PackedCall(Protocol):
    """A call whose filter is packed: a function of the other arrays, None for those that are not given.

    Attributes:
        bound: The prepared plan, if it takes the arrays that are given as they are.
    """

    bound: Callable[..., Any] | None

    @property
    def __call__(self) -> Callable[..., Any]: ...


class Call(Protocol):
    """A problem's kernel as a function of the arrays of ``conv`` or ``gemm``, None for those that are not given.

    Attributes:
        bound: The bound plan, if it takes the arrays that are given as they are.
        launch: The launchable behind it.
        token: Stands for the call in the keys of tables.
    """

    bound: Callable[..., Any] | None
    launch: Launchable
    token: Hashable

    @property
    def __call__(self) -> Callable[..., Any]: ...

    def packed(self, filter_: Any) -> PackedCall | None:
        """The call with its filter packed now. None if the kernel reads the filter as it is."""


class DirectCall:
    """Calls a bound plan with the arrays unchanged, and leaves out arrays that are None."""

    def __init__(self, bound: Callable[..., Any], launch: Launchable) -> None:
        self.bound: Callable[..., Any] | None = bound
        self.launch = launch
        self.token: Hashable = self
        self._run = bound

    def __call__(self, *arrays: Any) -> Any:
        return self._run(*[array for array in arrays if array is not None])

    def packed(self, filter_: Any) -> PackedCall | None:
        return DirectPackedCall(self._run.prepare(filter_)) if self.launch.prepares else None  # type: ignore[attr-defined]


class DirectPackedCall:
    """A plan with its filter packed, called with the other arrays; those that are None are left out."""

    def __init__(self, bound: Callable[..., Any]) -> None:
        self.bound: Callable[..., Any] | None = bound
        self._run = bound

    def __call__(self, *arrays: Any) -> Any:
        return self._run(*[array for array in arrays if array is not None])


class _Packed:
    """A packed call that rearranges the arrays first."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self.bound: Callable[..., Any] | None = None
        self._run = run

    def __call__(self, *arrays: Any) -> Any:
        return self._run(*arrays)


class PlacedCall:
    """Calls a launchable of a convolution with copies of arrays, or with their axes in another order."""

    def __init__(self, launch: Launchable, placed: tuple[NamedArray, ...]) -> None:
        self.bound: Callable[..., Any] | None = None
        self.launch = launch
        self.token: Hashable = self
        self._x, self._w, y = placed
        self._order = y.order
        self._returned = None if y.order is None else tuple(y.order.index(axis) for axis in range(len(y.order)))

    def __call__(self, x: Any, w: Any, b: Any, z: Any) -> Any:
        return self._run(self.launch.bound, [self._x.take(x), self._w.take(w)], b, z)

    def packed(self, filter_: Any) -> PackedCall | None:
        if not self.launch.prepares:
            return None
        prepared = self.launch.prepare(self._w.take(filter_))
        return _Packed(lambda x, b, z: self._run(prepared, [self._x.take(x)], b, z))

    def _run(self, bound: Callable[..., Any], operands: list[Any], b: Any, z: Any) -> Any:
        operands += [] if b is None else [contiguous(b)]
        operands += [] if z is None else [contiguous(permuted(z, self._order) if self._order else z)]
        y = bound(*operands)
        return permuted(y, self._returned) if self._returned else y


class ProductCall:
    """Calls a launchable of a product with dense copies of the matrices that ``copied`` says."""

    def __init__(self, launch: Launchable, copied: Sequence[bool], squeeze: bool, beta: float) -> None:
        self.bound: Callable[..., Any] | None = None
        self.launch = launch
        self.token: Hashable = self
        self._copied, self._squeeze, self._beta = copied, squeeze, beta

    def __call__(self, a: Any, b: Any, c: Any, bias: Any, z: Any) -> Any:
        return self._run(self.launch.bound, [self._matrix(0, a), self._matrix(1, b)], c, bias, z)

    def packed(self, filter_: Any) -> PackedCall | None:
        if not self.launch.prepares:
            return None
        prepared = self.launch.prepare(self._matrix(1, filter_))
        return _Packed(lambda a, c, bias, z: self._run(prepared, [self._matrix(0, a)], c, bias, z))

    def _matrix(self, place: int, array: Any) -> Any:
        array = contiguous(array) if self._copied[place] else array
        return array[0] if self._squeeze else array

    def _run(self, bound: Callable[..., Any], operands: list[Any], c: Any, bias: Any, z: Any) -> Any:
        operands += [] if bias is None else [contiguous(bias)]
        for each in (z, None if self._beta == 0 else c):
            if each is not None:
                added = contiguous(each)
                operands.append(added[0] if self._squeeze else added)
        y = bound(*operands)
        return y[None] if self._squeeze else y
