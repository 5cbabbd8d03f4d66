"""Tiles of the reference: how much a block computes, and how much there is."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.problems.geometry import GemmGeometry
from tilesmith.solvers.solver import Geometry


@dataclass(frozen=True)
class Tile:
    """``m`` x ``n`` results of a block, ``q`` elements of the reduction at a time, ``rm`` x ``rn`` results a thread."""

    m: int
    n: int
    q: int
    rm: int
    rn: int


_SQUARE = Tile(64, 64, 16, 4, 4)
NARROW = Tile(256, 8, 8, 4, 2)  # for groups of few channels


def extent(problem: Geometry) -> tuple[Tile, int, int]:
    """The tile, how many there are, and the length of the reduction."""
    if isinstance(problem, GemmGeometry):
        layers = problem.batch + problem.groups
        return _SQUARE, layers * -(-problem.m // _SQUARE.m) * -(-problem.n // _SQUARE.n), problem.k
    g = problem
    if g.direction == "bgrad":
        return _SQUARE, g.k, g.reduction_length // 256 + 1
    taps = g.filter[0] * g.filter[1] * g.filter[2]
    kn, cn = g.k // g.groups, g.c // g.groups
    if g.direction == "wrw":
        rows, columns, depth = kn, cn * taps, g.reduction_length
    else:
        image = g.output if g.direction == "fwd" else g.input
        rows = g.n * image[0] * image[1] * image[2]
        columns, depth = (kn, cn * taps) if g.direction == "fwd" else (cn, kn * taps)
    tile = NARROW if columns <= NARROW.n and g.direction != "wrw" else _SQUARE
    return tile, g.groups * -(-rows // tile.m) * -(-columns // tile.n), depth
