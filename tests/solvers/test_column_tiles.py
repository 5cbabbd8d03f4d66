"""Tiles of an axis on CPUs: against every tile asked by itself, and at once for a billion results."""

from __future__ import annotations

import random

import pytest

from tilesmith.solvers.c.common.axis import AxisPhase, Columns, Tap, column_tiles


@pytest.mark.parametrize("borders_alike", [False, True])
def test_neighbours_that_read_no_padding_are_one_tile(borders_alike):
    rng = random.Random(0)
    for _ in range(3000):
        taps = tuple(Tap(i, rng.randint(-30, 30)) for i in range(rng.randint(0, 4)))
        axis = AxisPhase(rng.randint(0, 40), 0, 1, rng.randint(1, 4), rng.randint(1, 60), taps)
        width = rng.randint(1, 9)
        want: list[Columns] = []
        for begin in range(0, axis.count, width):
            size = min(width, axis.count - begin)
            reads = [(u * axis.in_step) + tap.offset for u in range(begin, begin + size) for tap in taps]
            inside = all(0 <= at < axis.in_size for at in reads)
            if want and (inside or borders_alike) and (want[-1].inside, want[-1].width) == (inside, size):
                want[-1] = Columns(want[-1].start, size, want[-1].repeat + 1, inside)
            else:
                want.append(Columns(begin, size, 1, inside))
        assert column_tiles(axis, width, borders_alike) == tuple(want)


def test_a_long_axis_takes_no_longer():
    axis = AxisPhase(10**9, 0, 1, 1, 10**9, (Tap(0, -1), Tap(1, 0), Tap(2, 1)))
    assert column_tiles(axis, 7) == (
        Columns(0, 7, 1, False), Columns(7, 7, 10**9 // 7 - 1, True), Columns(10**9 // 7 * 7, 6, 1, False)
    )  # fmt: skip
