"""Weight gradient as a product of matrices over pixels, for dense convolutions and wide groups."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from tilesmith.plan.records import Draft, Integer
from tilesmith.problems.features import USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.c.common.family import (
    WORKSPACE,
    Family,
    Kernel,
    assembled,
    convolution,
    items_a_turn,
    not_channels_last_floats,
    slot,
)
from tilesmith.solvers.c.wrw.cost import predicted_seconds
from tilesmith.solvers.c.wrw.text import run_body, sum_body
from tilesmith.solvers.c.wrw.tile import (
    MAX_PIXELS,
    WrwTile,
    flattened,
    line_length,
    reads_in_place,
    wrw_tile,
)
from tilesmith.solvers.solver import Axis, Config, Geometry, Rejected, SearchSpace, remembered, values_of
from tilesmith.targets.fits.choose import cpu_fit_of
from tilesmith.targets.target import CpuTarget

_MAX_SCRATCH = 32 * 1024 * 1024
_MAX_PARTIAL = 256 * 1024 * 1024

AXES = (
    Axis(
        "tile_m",
        (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16),
        "Elements of a filter row (taps and input channels) of a tile.",
    ),
    Axis("vectors", (1, 2, 3, 4), "Vectors of output channels of a tile."),
    Axis("strip_pixels", (64, 128, 256, 512, 1024, 2048, 4096, MAX_PIXELS), "Pixels of a strip, about."),
    Axis("split_m", (1, 2, 4, 8, 16, 32), "Parts of the tiles, each an item of its own."),
    Axis("split_n", (1, 2, 4, 8, 16, 32), "Shares of the strips, whose sums a second kernel adds."),
    Axis("in_place", (0, 1), "1: operands are read where they lie, 0: they are copied into strips."),
)
_SMALLEST = Config(tuple((axis.name, axis.values[0]) for axis in AXES))


class WrwSolver(Family[WrwTile]):
    """``wrw`` from channels-last tensors to a filter of any layout."""

    name = "c_wrw"
    revision = 1
    features = USUAL | WINDOW | {"wrw", "groups"}
    axes = AXES
    directions = ("wrw",)

    @remembered
    def refusal(self, problem: ConvGeometry, target: CpuTarget) -> Rejected | None:
        unread = not_channels_last_floats(problem)
        if unread or self.search_space(problem, target).allowed(self.default_config(problem, target)):
            return unread
        return Rejected(reasons.SIZE, f"strips of {problem.c // problem.groups} channels")

    def search_space(self, problem: Geometry, target: CpuTarget) -> SearchSpace:
        form = flattened(convolution(problem), target)
        in_place = reads_in_place(form)

        def allowed(config: Config) -> bool:
            t = wrw_tile(form, config, target)
            return (
                t.mr * t.nv + t.nv + 1 <= target.vector_registers
                and t.mr <= max(1, t.run)
                and t.nv <= ceil(t.fan_k / t.lanes)
                and t.scratch_bytes <= _MAX_SCRATCH
                and t.partial_bytes <= _MAX_PARTIAL
                and (not t.direct or (in_place and t.fan_k % t.nr == 0))
            )

        return SearchSpace(values_of(AXES), allowed)

    @remembered
    def default_config(self, problem: Geometry, target: CpuTarget) -> Config:
        form = flattened(convolution(problem), target)
        width, fan_k = target.lanes(4), form.k // form.groups
        in_place = int(reads_in_place(form) and fan_k % width == 0)
        found, one_thread = [], replace(target, cores=1)
        for mr, nv in _register_tiles(line_length(form), fan_k, width, target.vector_registers):
            for px in (128, 256, 512, 1024):
                for direct in {0, in_place if fan_k % (nv * width) == 0 else 0}:
                    config = _SMALLEST.replace(tile_m=mr, vectors=nv, strip_pixels=px, in_place=direct)
                    t = wrw_tile(form, config, one_thread)
                    if t.scratch_bytes <= _MAX_SCRATCH:
                        found.append((self.seconds(t), config))
        base = min(found, key=lambda pair: pair[0])[1] if found else _SMALLEST
        if target.cores == 1:
            return base
        t = wrw_tile(form, base, target)
        wanted, parts, splits = 4 * target.cores, 1, 1
        while form.groups * parts < wanted and parts * 2 <= min(32, t.tiles) and t.tiles >= parts * 8:
            parts *= 2
        while form.groups * parts * splits < wanted and splits * 2 <= min(32, t.units):
            splits *= 2
        return base.replace(split_m=parts, split_n=splits)

    def tile(self, problem: Geometry, config: Config, target: CpuTarget) -> WrwTile:
        return wrw_tile(flattened(convolution(problem), target), config, target)

    def seconds(self, tile: WrwTile) -> float:
        return predicted_seconds(tile, cpu_fit_of(tile.target).wrw)

    def kernels(self, tile: WrwTile, tag: str) -> Draft:
        t, form, splits = tile, tile.problem, Integer(tile.splits)
        planes, tiles = Integer(form.n * form.output[0]), form.groups * t.tiles
        run = Kernel(
            "wrw", form.x.dtype, run_body(t), form.groups * t.parts * t.splits,
            (slot(0), slot(1), WORKSPACE, planes, splits), scratch=t.scratch_bytes,
        )  # fmt: skip
        fold = Kernel(
            "wrwsum", form.w.dtype, sum_body(t), tiles, (WORKSPACE, slot(2), splits), items_a_turn(tiles, t.target)
        )
        return assembled(t.target, tag, [run, fold], workspace=t.partial_bytes)


def _register_tiles(run: int, fan_k: int, width: int, registers: int) -> list[tuple[int, int]]:
    """The few tiles with the least waste: full registers, few rows beyond the run, few lanes beyond ``k``."""
    found = []
    for nv in range(1, min(4, ceil(fan_k / width)) + 1):
        for mr in values_of(AXES)["tile_m"]:
            if mr * nv + nv + 1 > registers or mr > max(1, run):
                continue
            steps = ceil(fan_k / (nv * width)) * (run // mr * _step(mr, nv) + (_step(run % mr, nv) if run % mr else 0))
            found.append((steps, (mr, nv)))
    return [tile for _, tile in sorted(found)[:6]]


def _step(mr: int, nv: int) -> float:
    """Cycles of one pixel: multiply-adds, which wait for each other below 8 sums, or loads."""
    return max(mr * nv / 2, 4.0, (mr + nv) / 2 * 1.05) + 0.8
