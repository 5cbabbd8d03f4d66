"""Weight gradient as a product of matrices over pixels, for dense convolutions and wide groups."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from tilesmith.codegen.c.prelude import c_prelude
from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Draft, Integer, Launch, Pointer, Space
from tilesmith.problems.features import USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.c.common.schedule import items_a_turn
from tilesmith.solvers.c.wrw.cost import dense_seconds
from tilesmith.solvers.c.wrw.sum_text import sum_body
from tilesmith.solvers.c.wrw.text import run_body
from tilesmith.solvers.c.wrw.tiling import (
    MAX_PIXELS,
    flattened,
    joins_columns,
    reads_in_place,
    tiling,
)
from tilesmith.solvers.solver import (
    Accepted,
    Axis,
    Config,
    Geometry,
    Rejected,
    SearchSpace,
    Unranked,
    remembered,
    values_of,
)
from tilesmith.targets.fits.choose import cpu_fit_of
from tilesmith.targets.target import CpuTarget

_DTYPES = ("fp32", "bf16", "fp16")
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


class WrwSolver(Unranked):
    """``wrw`` from channels-last tensors to a filter of any layout."""

    name = "c_wrw"
    revision = 1
    features = USUAL | WINDOW | {"wrw", "groups"}
    axes = AXES

    @remembered
    def applicable(self, problem: Geometry, target: CpuTarget) -> Accepted | Rejected:
        if not isinstance(problem, ConvGeometry):
            return Rejected(reasons.OP)
        if problem.direction != "wrw":
            return Rejected(reasons.DIRECTION, problem.direction)
        names = (problem.x.dtype, problem.w.dtype, problem.y.dtype)
        if problem.acc_dtype != "fp32" or any(name not in _DTYPES for name in names):
            return Rejected(reasons.DTYPE, " ".join((*names, problem.acc_dtype)))
        if not (problem.x.channels_last and problem.y.channels_last):
            return Rejected(reasons.LAYOUT, "channels are not contiguous")
        if problem.w.vector > 1:
            return Rejected(reasons.LAYOUT, "vector filter layout")
        if not self.search_space(problem, target).allowed(self.default_config(problem, target)):
            return Rejected(reasons.SIZE, f"strips of {problem.c // problem.groups} channels")
        return Accepted()

    def search_space(self, problem: Geometry, target: CpuTarget) -> SearchSpace:
        assert isinstance(problem, ConvGeometry)
        form = flattened(problem, target)
        run = problem.c // problem.groups * (form.filter[2] if joins_columns(form) else 1)
        fan_k = problem.k // problem.groups
        width = target.lanes(4)

        def allowed(config: Config) -> bool:
            mr, nv = config["tile_m"], config["vectors"]
            t = tiling(form, config, target)
            return (
                mr * nv + nv + 1 <= target.vector_registers
                and mr <= max(1, run)
                and nv <= ceil(fan_k / width)
                and t.scratch_bytes <= _MAX_SCRATCH
                and t.partial_bytes <= _MAX_PARTIAL
                and (not config["in_place"] or (reads_in_place(form) and fan_k % (nv * width) == 0))
            )

        return SearchSpace(values_of(AXES), allowed)

    @remembered
    def default_config(self, problem: Geometry, target: CpuTarget) -> Config:
        assert isinstance(problem, ConvGeometry)
        form = flattened(problem, target)
        width = target.lanes(4)
        fan_c, fan_k = problem.c // problem.groups, problem.k // problem.groups
        run = fan_c * (form.filter[2] if joins_columns(form) else 1)
        base = _smallest()
        if reads_in_place(form) and fan_k % width == 0:
            base = base.replace(in_place=1)
        found, fit = [], cpu_fit_of(target).wrw
        for mr, nv in _register_tiles(run, fan_k, width, target.vector_registers):
            for px in (128, 256, 512, 1024):
                for direct in {0, base["in_place"] if fan_k % (nv * width) == 0 else 0}:
                    config = base.replace(tile_m=mr, vectors=nv, strip_pixels=px, in_place=direct)
                    t = tiling(form, config, target)
                    if t.scratch_bytes <= _MAX_SCRATCH:
                        found.append((dense_seconds(t, replace(target, cores=1), fit), config))
        base = min(found, key=lambda pair: pair[0])[1] if found else _smallest()
        t = tiling(form, base, target)
        if target.cores > 1:
            wanted = 4 * target.cores
            have = problem.groups
            parts = 1
            while have * parts < wanted and parts * 2 <= min(32, t.tiles) and t.tiles >= parts * 8:
                parts *= 2
            splits = 1
            while have * parts * splits < wanted and splits * 2 <= min(32, t.units):
                splits *= 2
            base = base.replace(split_m=parts, split_n=splits)
        return base

    def predict(self, problem: Geometry, config: Config, target: CpuTarget) -> float:
        assert isinstance(problem, ConvGeometry)
        return dense_seconds(tiling(flattened(problem, target), config, target), target, cpu_fit_of(target).wrw)

    def draft(self, problem: Geometry, config: Config, target: CpuTarget) -> Draft:
        assert isinstance(problem, ConvGeometry)
        form = flattened(problem, target)
        t = tiling(form, config, target)
        prelude = c_prelude(target)
        tile = "x".join(str(value) for _, value in config.values)
        run = make_source("c", "wrw", problem.x.dtype, tile, target.arch, prelude, run_body(t))
        fold = make_source("c", "wrwsum", problem.w.dtype, tile, target.arch, prelude, sum_body(t))
        items = problem.groups * t.parts * t.splits
        tiles = problem.groups * t.tiles
        sums = Pointer(Space.WORKSPACE)
        return Draft(
            sources=(run, fold),
            run=(
                Launch(
                    0, run.symbol, (items, 1, 1),
                    (Pointer(Space.SLOT, 0), Pointer(Space.SLOT, 1), sums,
                     Integer(form.n * form.output[0]), Integer(t.splits)),
                    shared_bytes=t.scratch_bytes,
                ),
                Launch(
                    1, fold.symbol, (tiles, 1, 1), (sums, Pointer(Space.SLOT, 2), Integer(t.splits)),
                    block=(items_a_turn(tiles, target), 1, 1),
                ),
            ),
            workspace_bytes=t.partial_bytes,
        )  # fmt: skip


def _smallest() -> Config:
    return Config(
        (("tile_m", 1), ("vectors", 1), ("strip_pixels", 64), ("split_m", 1), ("split_n", 1), ("in_place", 0))
    )


def _register_tiles(run: int, fan_k: int, width: int, registers: int) -> list[tuple[int, int]]:
    """The few tiles with the least waste: full registers, few rows beyond the run, few lanes beyond ``k``."""
    found = []
    for nv in range(1, min(4, ceil(fan_k / width)) + 1):
        for mr in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16):
            if mr * nv + nv + 1 > registers or mr > max(1, run):
                continue
            steps = ceil(fan_k / (nv * width)) * (run // mr * _step(mr, nv) + (_step(run % mr, nv) if run % mr else 0))
            found.append((steps, (mr, nv)))
    return [tile for _, tile in sorted(found)[:6]]


def _step(mr: int, nv: int) -> float:
    """Cycles of one pixel: multiply-adds, which wait for each other below 8 sums, or loads."""
    return max(mr * nv / 2, 4.0, (mr + nv) / 2 * 1.05) + 0.8
