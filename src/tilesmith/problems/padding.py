"""Padding as users spell it: one integer, one for each spatial axis, ``(low, high)`` pairs, or a word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilesmith.errors import ProblemError
from tilesmith.problems.limits import MAX_SIZE, whole_number

# One integer for each spatial axis where both sides of every axis are equal, else ``(low, high)`` for each.
Padding = tuple[int, ...] | tuple[tuple[int, int], ...]
WORDS = ("valid", "same", "causal")


def read_padding(
    value: object, size: Sequence[int], filter_: Sequence[int], stride: Sequence[int], dilation: Sequence[int],
    transposed: bool,
) -> Padding:  # fmt: skip
    """The padding that ``value`` means for these spatial axes.

    ``value`` is an integer; a sequence of one integer or ``(low, high)`` pair for each axis; or a word:

    - ``"valid"``: 0.
    - ``"same"``, as in PyTorch: ``dilation * (filter - 1)`` in all, of which ``low`` is the half rounded down. The
      stride must be 1.
    - ``"causal"``, as in Keras: one spatial axis, ``low = dilation * (filter - 1)``, ``high = 0``, any stride.

    Raises ``ProblemError`` for anything else.
    """
    if isinstance(value, str):
        return joined(_of_word(value, size, filter_, stride, dilation, transposed))
    dims = len(filter_)
    items: tuple[object, ...] = tuple(value) if isinstance(value, Iterable) else (value,) * dims
    if len(items) != dims:
        typed = f"; for a low and a high side type padding=({items},)" if (len(items), dims) == (2, 1) else ""
        raise ProblemError(
            f"padding {items} has {len(items)} values, the problem has {dims} spatial axes; give one value, or {dims}"
            f"{typed}"
        )
    return joined(tuple(map(_pair, items)))


def joined(pairs: tuple[tuple[int, int], ...]) -> Padding:
    """One integer for each axis where no axis has unequal sides."""
    for low, high in pairs:
        if low != high:
            return pairs
    return tuple([low for low, _ in pairs])


def sides(padding: Padding) -> tuple[tuple[int, int], ...]:
    """``(low, high)`` for each axis."""
    found: list[tuple[int, int]] = []
    for side in padding:
        found.append((side, side) if isinstance(side, int) else side)
    return tuple(found)


def canonical_high(low: int, high: int, size: int, filter_: int, stride: int, dilation: int, output: int) -> int:
    """The one ``high`` for all of those that give this output: ``low`` where it does, else the least that does."""
    if low == high:
        return low
    reach = dilation * (filter_ - 1) + 1
    if reach <= size + 2 * low and (output == 1 or (size + 2 * low - reach) // stride + 1 == output):
        return low
    return max(0, (output - 1) * stride + reach - size - low)


def _pair(item: object) -> tuple[int, int]:
    if isinstance(item, str) or not isinstance(item, Iterable):
        side = whole_number("padding", item, 0, MAX_SIZE)
        return side, side
    try:
        given = tuple(item)
    except TypeError:  # an array without axes says that it is iterable
        side = whole_number("padding", item, 0, MAX_SIZE)
        return side, side
    if len(given) != 2:
        raise ProblemError(f"padding {given} of an axis has {len(given)} values; give one value, or (low, high)")
    low, high = (whole_number("padding", side, 0, MAX_SIZE) for side in given)
    return low, high


def _of_word(
    word: str, size: Sequence[int], filter_: Sequence[int], stride: Sequence[int], dilation: Sequence[int],
    transposed: bool,
) -> tuple[tuple[int, int], ...]:  # fmt: skip
    dims = len(filter_)
    if word not in WORDS:
        text = word.strip().lower()
        rule = (
            f"padding {word!r} does not exist; it is an integer, one (or a (low, high) pair) for each of {dims} "
            f"spatial axes, or one of {', '.join(map(repr, WORDS))}"
        )
        digits = text.isascii() and text.isdecimal()
        typed = f"padding={text}" if digits else f"padding={text!r}" if text in WORDS else ""
        raise ProblemError(f"{rule}; type {typed}" if typed else rule)
    if word == "valid":
        return ((0, 0),) * dims
    if transposed:
        raise ProblemError(f"padding {word!r} goes with transposed=False; give integers or (low, high) pairs")
    reach = [d * (f - 1) for d, f in zip(dilation, filter_, strict=True)]
    if word == "causal":
        if dims != 1:
            raise ProblemError(
                f"padding 'causal' goes with one spatial axis, the problem has {dims}; give (low, high) pairs"
            )
        return ((reach[0], 0),)
    if max(stride) > 1:
        shown = tuple(_strided_same(n, r, s) for n, r, s in zip(size, reach, stride, strict=True))
        raise ProblemError(
            f"padding 'same' goes with stride 1, got {tuple(stride)}; for an output of ceil(input / stride), as "
            f"TensorFlow's 'SAME' has it, type padding={shown}"
        )
    return tuple((r // 2, r - r // 2) for r in reach)


def _strided_same(size: int, reach: int, stride: int) -> tuple[int, int]:
    total = max((-(-size // stride) - 1) * stride + reach + 1 - size, 0)
    return total // 2, total - total // 2
