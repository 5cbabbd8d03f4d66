"""Weight gradients of bf16 by matrix tiles (AMX), for dense convolutions and wide groups."""

from __future__ import annotations

import itertools
from dataclasses import replace

from tilesmith.plan.records import Draft, Integer, Memset, Pointer, Space
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
from tilesmith.solvers.c.common.tile_registers import WIDE
from tilesmith.solvers.c.reference.solver import guarded_reference
from tilesmith.solvers.c.tiles_wrw.cost import predicted_seconds
from tilesmith.solvers.c.tiles_wrw.text import dy_text, run_text, x_text
from tilesmith.solvers.c.tiles_wrw.tile import NOTE_BYTES, WrwTiles
from tilesmith.solvers.solver import Axis, Config, Geometry, Rejected, SearchSpace, remembered, values_of
from tilesmith.targets.fits.choose import tiles_fit_of
from tilesmith.targets.target import CpuTarget

AXES = (
    Axis("tiles_m", (1, 2), "Registers of 16 channels of dy of a tile."),
    Axis("tiles_n", (1, 2), "Registers of 16 channels of x of a tile."),
    Axis("line_steps", (0, 16, 32, 64), "Times 32 pixels, which all taps go through; 0: a tap goes through all."),
)
_MAX_WORKSPACE = 1 << 30
_LEAST = 8  # channels of a group, on both sides: of fewer most of a tile is idle


class TilesWrwSolver(Family[WrwTiles]):
    """``wrw`` from channels-last tensors to a filter of any layout."""

    name = "c_tiles_wrw"
    revision = 1
    features = USUAL | WINDOW | {"wrw", "groups"}
    axes = AXES
    directions = ("wrw",)

    @remembered
    def refusal(self, problem: ConvGeometry, target: CpuTarget) -> Rejected | None:
        if not target.bf16_tiles:
            return Rejected(reasons.TARGET, "no matrix tiles")
        unread = not_channels_last_floats(problem)
        if unread:
            return unread
        if problem.x.dtype != "bf16" or problem.y.dtype != "bf16":
            return Rejected(reasons.DTYPE, f"{problem.x.dtype} {problem.y.dtype}")
        t = self.tile(problem, self.default_config(problem, target), target)
        if problem.groups > 1 and min(t.channels) < _LEAST:
            return Rejected(reasons.GROUPS, f"{t.channels} channels a group")
        return Rejected(reasons.WORKSPACE) if t.workspace_bytes > _MAX_WORKSPACE else None

    def search_space(self, problem: Geometry, target: CpuTarget) -> SearchSpace:
        t = self.tile(problem, self._config(1, 1, 0), target)
        k, c = t.channels
        most = {"tiles_m": -(-k // WIDE), "tiles_n": -(-c // WIDE), "line_steps": t.steps if t.taps > 1 else 0}
        axes = {name: tuple(n for n in values if n <= most[name]) for name, values in values_of(AXES).items()}
        return SearchSpace(axes)

    @remembered
    def default_config(self, problem: Geometry, target: CpuTarget) -> Config:
        axes = self.search_space(problem, target).axes
        found = [self._config(*values) for values in itertools.product(*axes.values())]
        return min(found, key=lambda config: self.seconds(self.tile(problem, config, target)))

    @staticmethod
    def _config(tiles_m: int, tiles_n: int, line_steps: int) -> Config:
        return Config((("tiles_m", tiles_m), ("tiles_n", tiles_n), ("line_steps", line_steps)))

    def tile(self, problem: Geometry, config: Config, target: CpuTarget) -> WrwTiles:
        return WrwTiles(convolution(problem), config, target)

    def seconds(self, tile: WrwTiles) -> float:
        return predicted_seconds(tile, tiles_fit_of(tile.target))

    def kernels(self, tile: WrwTiles, tag: str) -> Draft:
        t, g, note = tile, tile.problem, WORKSPACE
        lines, pairs = (Pointer(Space.WORKSPACE, offset=at) for at in (NOTE_BYTES, t.x_offset))
        of_dy, of_x = g.n * g.output[0] * t.steps, g.n * g.input[0] * len(t.sets) * t.plane_size[0]
        run = [
            Kernel("tileswrwdy", "bf16", dy_text(t), of_dy, (slot(0), note, lines), items_a_turn(of_dy, t.target)),
            Kernel("tileswrwx", "bf16", x_text(t), of_x, (slot(1), note, pairs), items_a_turn(of_x, t.target)),
            Kernel(
                "tileswrw", f"bf16{g.w.dtype}", run_text(t), t.items, (lines, note, pairs, slot(2), Integer(g.n)),
                items_a_turn(t.items, t.target), t.scratch_bytes,
            ),
        ]  # fmt: skip
        draft = assembled(t.target, tag, run, workspace=t.workspace_bytes)
        # Zeros between and behind rows of dy are multiplied by pixels of other rows: an Inf there would give a NaN.
        reference, launch = guarded_reference(g, t.target, note)
        steps = (Memset(note, NOTE_BYTES), *draft.run, replace(launch, artifact=len(run)))
        return replace(draft, sources=(*draft.sources, reference), run=steps)
