"""Weight gradient as a product of matrices over pixels, for dense convolutions and wide groups."""

from __future__ import annotations

from math import ceil

from tilesmith.codegen.c.prelude import c_prelude
from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Draft, Integer, Launch, Pointer, Space
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.c import wrw_text
from tilesmith.solvers.c.wrw_tiling import (
    MAX_PIXELS,
    WrwTiling,
    flattened,
    joins_columns,
    reads_in_place,
    strip_shape,
    tiling,
    uses_pairs,
)
from tilesmith.solvers.solver import Accepted, Config, Geometry, Rejected, SearchSpace
from tilesmith.targets.target import Target

_DTYPES = ("fp32", "bf16", "fp16")
_MAX_SCRATCH = 32 * 1024 * 1024
_MAX_PARTIAL = 256 * 1024 * 1024


class WrwSolver:
    """``wrw`` from channels-last tensors to a filter of any layout."""

    name = "c_wrw"
    revision = 1

    def applicable(self, problem: Geometry, target: Target) -> Accepted | Rejected:
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

    def search_space(self, problem: Geometry, target: Target) -> SearchSpace:
        assert isinstance(problem, ConvGeometry)
        form = flattened(problem, target)
        run = problem.c // problem.groups * (form.filter[2] if joins_columns(form) else 1)
        fan_k = problem.k // problem.groups
        width = target.lanes(4)

        def allowed(config: Config) -> bool:
            mr, nv = config["mr"], config["nv"]
            t = tiling(form, config, target)
            return (
                mr * nv + nv + 1 <= target.vector_registers
                and mr <= max(4, run)
                and nv <= ceil(fan_k / width)
                and t.scratch_bytes <= _MAX_SCRATCH
                and t.partial_bytes <= _MAX_PARTIAL
                and (not config["direct"] or (reads_in_place(form) and fan_k % (nv * width) == 0))
            )

        return SearchSpace(
            {
                "mr": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16),
                "nv": (1, 2, 3, 4),
                "px": (64, 128, 256, 512, 1024, 2048, 4096, MAX_PIXELS),
                "parts": (1, 2, 4, 8, 16, 32),
                "splits": (1, 2, 4, 8, 16, 32),
                "direct": (0, 1),
            },
            allowed,
        )

    def default_config(self, problem: Geometry, target: Target) -> Config:
        assert isinstance(problem, ConvGeometry)
        form = flattened(problem, target)
        width = target.lanes(4)
        fan_c, fan_k = problem.c // problem.groups, problem.k // problem.groups
        run = fan_c * (form.filter[2] if joins_columns(form) else 1)
        mr, nv = _register_tile(run, fan_k, width, target.vector_registers)
        base = Config((("mr", mr), ("nv", nv), ("px", 64), ("parts", 1), ("splits", 1), ("direct", 0)))
        if reads_in_place(form) and fan_k % (nv * width) == 0:
            base = base.replace(direct=1)
        base = base.replace(px=_pixels(form, base, target))
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
            base = base.replace(parts=parts, splits=splits)
        return base

    def predict(self, problem: Geometry, config: Config, target: Target) -> float:
        assert isinstance(problem, ConvGeometry)
        return 1.0

    def draft(self, problem: Geometry, config: Config, target: Target) -> Draft:
        assert isinstance(problem, ConvGeometry)
        form = flattened(problem, target)
        t = tiling(form, config, target)
        prelude = c_prelude(target)
        tile = "x".join(str(value) for _, value in config.values)
        run = make_source("c", "wrw", problem.x.dtype, tile, target.arch, prelude, wrw_text.run_body(t))
        fold = make_source("c", "wrwsum", problem.w.dtype, tile, target.arch, prelude, wrw_text.reduce_body(t))
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
                    block=(max(1, tiles // (4 * target.cores)), 1, 1),
                ),
            ),
            workspace_bytes=t.partial_bytes,
        )  # fmt: skip


def _register_tile(run: int, fan_k: int, width: int, registers: int) -> tuple[int, int]:
    """The tile with the least waste: full registers, few rows beyond the run, few lanes beyond ``k``."""
    best, least = (1, 1), float("inf")
    for nv in (1, 2, 3, 4):
        if nv > ceil(fan_k / width):
            break
        for mr in range(1, min(16, run) + 1):
            if mr * nv + nv + 1 > registers or mr in (11, 13, 15):
                continue
            steps = ceil(run / mr) * ceil(fan_k / (nv * width))
            # Multiply-adds wait for each other below 8 sums; loads are hidden above about 3 multiply-adds a load.
            cost = steps * (max(mr * nv / 2, 4.0, (mr + nv) / 2 * 1.05) + 0.8)
            if cost < least * 0.999:
                best, least = (mr, nv), cost
    return best


def _pixels(form: ConvGeometry, config: Config, target: Target) -> int:
    """The largest strip whose panel and input stay in the second-level cache."""
    best = 64
    for px in (128, 256, 512, 1024):
        t: WrwTiling = tiling(form, config.replace(px=px), target)
        planes, rows, cols = strip_shape(form, px, uses_pairs(form, target))
        inputs = t.x_elements * 4
        if inputs + planes * rows * cols * t.nr * 4 <= target.l2_bytes // 2:
            best = px
    return best
