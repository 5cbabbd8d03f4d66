"""The calls of ``conv`` and ``gemm`` that this process has met, so that the next one of the same kind is a look-up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilesmith.dispatch.calls import Call
from tilesmith.dispatch.launchable import forget_launchables, when_replaced
from tilesmith.dispatch.locations import forget_databases

Function = Callable[..., Any]
LIMIT = 4096  # of entries: a table that has as many is emptied
# From the shapes, strides, dtypes, devices and options of a call to the function that runs it.
by_arrays: dict[tuple[Any, ...], Call] = {}
# From shapes, dtype and options to a bound plan that takes the arrays without a copy. The key leaves out strides,
# devices and the other dtypes: the bound plan checks them. If it refuses the arrays, the call goes through by_arrays.
by_shapes: dict[tuple[Any, ...], Function] = {}
# Like by_shapes, but the key is the id of the filter: reading it is faster than reading two shapes (for a PyTorch
# tensor a shape costs a microsecond). The value is None for a filter that is used with several input shapes. Python may
# reuse an id for another filter; that is safe, because the bound plan checks its arguments.
by_filter: dict[tuple[int, bool, tuple[Any, ...]], Function | None] = {}
# Like by_filter, for calls whose gradients are recorded: the number of x's axes, and the call of ``x, w`` and, if there
# is one, ``b``; of ``gemm`` the call of ``a, b``. PyTorch's side adds them (``keep_recorded``).
with_gradients: dict[tuple[int, bool, tuple[Any, ...]], tuple[int, Function]] = {}
# How often the tables were emptied. Whoever makes a call to keep reads it before, and keeps nothing if it has changed.
emptied = 0
_emptied_too: list[Callable[[], None]] = []


def keep_recorded(key: tuple[int, bool, tuple[Any, ...]], axes: int, call: Function) -> None:
    """Keep a call whose gradients are recorded. Raises ``TypeError`` for a list among the options."""
    if len(with_gradients) >= LIMIT:
        with_gradients.clear()
    with_gradients[key] = axes, call


def forget() -> None:
    """Forget every decision of this process. Call it after a change of an environment variable or a database.

    The next call of ``conv``, ``gemm`` and ``get_launchable`` for each problem decides again. Databases whose files
    were deleted or replaced are opened again.
    """
    forget_calls()
    forget_launchables()
    forget_databases()


def forget_calls() -> None:
    """Make the next call of each problem ask for its launchable again."""
    global emptied
    emptied += 1
    by_arrays.clear()
    by_shapes.clear()
    by_filter.clear()
    with_gradients.clear()
    for empty in _emptied_too:
        empty()


def when_forgotten(empty: Callable[[], None]) -> None:
    """Have ``forget`` call ``empty``, too: for tables of bound plans that are kept elsewhere."""
    _emptied_too.append(empty)


when_replaced(forget_calls)
