"""Grouped convolution and its data gradient, straight from channels-last tensors, for groups of any width.

Narrow groups share vectors (``grouped_lanes``); nothing is copied or padded. The filter is packed once (``prepare``).
"""

from __future__ import annotations

from math import ceil

from tilesmith.codegen.c.prelude import c_prelude
from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Draft, Launch, Parameter, Pointer, Space
from tilesmith.plan.slots import slot_names
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.features import EPILOGUE, USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.c.common.schedule import items_a_turn
from tilesmith.solvers.c.grouped import kernel
from tilesmith.solvers.c.grouped.axis import axis_phases, column_tiles
from tilesmith.solvers.c.grouped.cost import predicted_seconds
from tilesmith.solvers.c.grouped.lanes import LaneMap, lane_map
from tilesmith.solvers.c.grouped.tile import UNROLLED
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

# Multiply-adds in one kernel's text: more compile for seconds.
_MAX_STATEMENTS = 12_000
_MAX_ZERO_ROW = 4 * 1024 * 1024
# NOTE: stores that pass the caches by and write half a line each need its other half while the processor still collects
# it. On a Zen 3, 3x3 depthwise with 144 channels, 56x56 and batch 8 takes 1.1 to 1.6 ms with tiles of up to 6 results,
# 1.1 or 6.1 ms with 8, and 5.2 ms with 10; without such stores 2.3 ms.
_COLLECTED = 6
_DTYPES = ("fp32", "bf16", "fp16")

AXES = (
    Axis("tile_h", (1, 2, 3, 4, 5, 6, 7, 8), "Rows of pixels of a tile."),
    Axis("tile_w", (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14), "Pixels of each of its rows."),
    Axis("vectors", (1, 2, 3, 4), "Vectors of output channels of a tile, where a group fills some."),
    Axis("item_blocks", (), "Blocks of channels of an item, which one thread computes."),
    Axis("stream_stores", (0, 1), "1: stores pass the caches by."),
    Axis("prefetch", (0, 1), "1: the next strip's inputs are fetched early."),
)


class GroupedSolver(Unranked):
    """``fwd`` and ``bwd`` with more than one group, neither depthwise nor of one channel a side."""

    name = "c_grouped"
    op = "grouped"
    revision = 5
    features = USUAL | EPILOGUE | WINDOW | {"fwd", "bwd", "groups"}
    axes = AXES

    def covers(self, problem: ConvGeometry) -> bool:
        """Which group widths are this solver's."""
        return problem.groups > 1 and problem.groups not in (problem.c, problem.k)

    @remembered
    def applicable(self, problem: Geometry, target: CpuTarget) -> Accepted | Rejected:
        if not isinstance(problem, ConvGeometry):
            return Rejected(reasons.OP)
        if problem.direction not in ("fwd", "bwd"):
            return Rejected(reasons.DIRECTION, problem.direction)
        if not self.covers(problem):
            return Rejected(reasons.GROUPS, f"{problem.c}->{problem.k} in {problem.groups} groups")
        names = (problem.x.dtype, problem.w.dtype, problem.y.dtype)
        if problem.acc_dtype != "fp32" or any(name not in _DTYPES for name in names):
            return Rejected(reasons.DTYPE, " ".join((*names, problem.acc_dtype)))
        if not (problem.x.channels_last and problem.y.channels_last):
            return Rejected(reasons.LAYOUT, "channels are not contiguous")
        if problem.w.vector > 1:
            return Rejected(reasons.LAYOUT, "vector filter layout")
        if kernel.zero_row_elements(problem) * dtype(problem.x.dtype).nbytes > _MAX_ZERO_ROW:
            return Rejected(reasons.SIZE, f"rows of {problem.input[2]} x {problem.c}")
        if not self.search_space(problem, target).allowed(self._smallest(problem, target)):
            return Rejected(reasons.FILTER, f"{problem.filter} with stride {problem.stride}: too many different tiles")
        return Accepted()

    def search_space(self, problem: Geometry, target: CpuTarget) -> SearchSpace:
        assert isinstance(problem, ConvGeometry)
        wide = lane_map(problem, target, 1).splat
        blocks = lane_map(problem, target, 1).blocks
        chunks = sorted({1, *(n for n in (2, 4, 8, 16, 32, 64) if n < blocks), blocks})

        def allowed(config: Config) -> bool:
            lanes = lane_map(problem, target, config["vectors"])
            spare = 2 + lanes.vectors if wide else 3
            in_registers = config["tile_h"] * config["tile_w"] * lanes.vectors + spare <= target.vector_registers
            vectors = ceil(lanes.outer / lanes.width)
            return (
                in_registers
                and (not config["stream_stores"] or config["tile_h"] * config["tile_w"] <= _open_lines(target))
                and (config["vectors"] <= vectors if wide else config["vectors"] == 1)
                and _statements(problem, lanes, config) <= _MAX_STATEMENTS
            )

        axes = values_of(AXES) | {
            "vectors": (1, 2, 3, 4) if wide else (1,), "item_blocks": tuple(chunks),
            "prefetch": (0,) if wide else (0, 1),
        }  # fmt: skip
        return SearchSpace(axes, allowed)

    def _smallest(self, problem: ConvGeometry, target: CpuTarget) -> Config:
        return Config(
            (("tile_h", 1), ("tile_w", 1), ("vectors", 1), ("item_blocks", 1), ("stream_stores", 0), ("prefetch", 0))
        )

    @remembered
    def default_config(self, problem: Geometry, target: CpuTarget) -> Config:
        """The best prediction among tiles of all shapes, with the chunk and stores that the sizes call for."""
        assert isinstance(problem, ConvGeometry)
        space = self.search_space(problem, target)
        best = self._smallest(problem, target)
        # A large result would be gone from the caches before anybody reads it, and a large input is not in them.
        large = _footprint(problem) > target.l3_bytes // 8
        ahead = int(large and 1 in space.axes["prefetch"])
        found = []
        for nv in space.axes["vectors"]:
            lanes = lane_map(problem, target, nv)
            chunk = _chunk(problem, lanes, space.axes["item_blocks"], target)
            stream = int(large and _worth_streaming(lanes, target))
            for rows in (1, 2, 3, 4, 6):
                for cols in (1, 2, 3, 4, 5, 6, 7, 8, 12, 14):
                    config = best.replace(
                        tile_h=rows, tile_w=cols, vectors=nv, item_blocks=chunk, stream_stores=stream, prefetch=ahead
                    )
                    if space.allowed(config):
                        found.append(config)
        return min(found, key=lambda config: self.predict(problem, config, target), default=best)

    def predict(self, problem: Geometry, config: Config, target: CpuTarget) -> float:
        assert isinstance(problem, ConvGeometry)
        return predicted_seconds(
            problem, lane_map(problem, target, config["vectors"]), _schedule(config), target, cpu_fit_of(target).grouped
        )

    def draft(self, problem: Geometry, config: Config, target: CpuTarget) -> Draft:
        assert isinstance(problem, ConvGeometry)
        lanes = lane_map(problem, target, config["vectors"])
        schedule = _schedule(config)
        prelude = c_prelude(target)
        tile = "x".join(str(value) for _, value in config.values)
        x, _ = kernel.source_and_result(problem)
        run = make_source(
            "c",
            self.op + problem.direction,
            x.dtype,
            tile,
            target.arch,
            prelude,
            kernel.run_body(problem, lanes, schedule),
        )
        pack = make_source("c", self.op + "pack", x.dtype, tile, target.arch, prelude, kernel.pack_body(problem, lanes))
        slots = slot_names(problem)
        parameters: tuple[Parameter, ...] = (
            Pointer(Space.SLOT, 0),
            Pointer(Space.PACKED),
            *(Pointer(Space.SLOT, i) for i in range(2, len(slots))),
        )
        items = problem.n * kernel.items_per_image(problem, lanes, schedule)
        return Draft(
            sources=(run, pack),
            run=(Launch(0, run.symbol, (items, 1, 1), parameters, block=(items_a_turn(items, target), 1, 1)),),
            prepare=(Launch(1, pack.symbol, (lanes.blocks, 1, 1), (Pointer(Space.SLOT, 1), Pointer(Space.PACKED))),),
            packed_bytes=kernel.packed_bytes(problem, lanes),
        )


def _open_lines(target: CpuTarget) -> int:
    """Results of a tile that streaming stores may write; 0 where there are none."""
    if target.vector_bytes < 32:
        return 0
    return _COLLECTED if target.vector_bytes < 64 else target.vector_registers


def _worth_streaming(lanes: LaneMap, target: CpuTarget) -> bool:
    """Whether stores that pass the caches by fill their lines soon: at once, or within a depthwise sum.

    NOTE: on a Zen 3, 3x3 with 32 groups of 4 channels, 28x28 and batch 8 takes 2.5 ms with stores of half a line in
    tiles of several rows, tuned and without such stores 1.0 ms (benchmarks/results/search_t1.json).
    """
    return target.vector_bytes >= 64 or (target.vector_bytes >= 32 and lanes.steps == 1)


def _schedule(config: Config) -> kernel.Schedule:
    return kernel.Schedule(
        config["tile_h"],
        config["tile_w"],
        config["item_blocks"],
        bool(config["stream_stores"]),
        bool(config["prefetch"]),
    )


def _footprint(problem: ConvGeometry) -> int:
    """Bytes of what is read and of the result."""
    return sum(
        view.shape[0] * view.shape[1] * view.shape[2] * view.shape[3] * view.shape[4] * dtype(view.dtype).nbytes
        for view in kernel.source_and_result(problem)
    )


def _chunk(problem: ConvGeometry, lanes: LaneMap, values: tuple[int, ...], target: CpuTarget) -> int:
    """As many channel blocks an item as their weights fit the first-level cache, and threads find enough items."""
    taps = problem.filter[0] * problem.filter[1] * problem.filter[2]
    weights = taps * lanes.steps * lanes.vectors * lanes.width * 4
    fit = [value for value in values if value == 1 or value * weights <= target.l1_bytes // 2]
    fit = [value for value in fit if value <= lanes.blocks] or [1]
    strips = problem.n * -(-kernel.source_and_result(problem)[1].shape[3] // 4)
    while len(fit) > 1 and target.cores > 1 and strips * -(-lanes.blocks // fit[-1]) < 4 * target.cores:
        fit.pop()
    return fit[-1]


def _statements(problem: ConvGeometry, lanes: LaneMap, config: Config) -> int:
    """Multiply-adds in the kernel's text, counting rows that become a loop once."""
    steps = (2 if lanes.pairs and lanes.inner % 2 else 1) if lanes.splat else lanes.steps
    total = 0
    for p in axis_phases(problem, 2):
        columns = sum(tile.width for tile in column_tiles(p, config["tile_w"])) * len(p.taps) * steps * lanes.vectors
        for kind in kernel.strips(problem, config["tile_h"]):
            rows = len(kind.depth.taps) * len(kind.height.taps) * kind.rows
            if (
                kind.rows == 1
                and rows * min(config["tile_w"], p.count) * len(p.taps) * steps * lanes.vectors > UNROLLED
            ):
                rows = 1
            total += columns * rows
    return total * (2 if lanes.tail else 1)
