"""The text of the kernels of narrow groups: constants, taps, arguments, launches."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from pathlib import Path

from tilesmith.codegen.cuda.activation import LONG, activate
from tilesmith.codegen.cuda.mma import TYPES, divisors, mma_prelude
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, resolved, template, unit
from tilesmith.plan.records import Draft, Launch, Pointer, Source, Space
from tilesmith.solvers.cuda.common.steps import tensor_steps
from tilesmith.solvers.cuda.narrow_groups.tile import NarrowExactTile, NarrowTile, NarrowWeightsTile

_FOLDER = Path(__file__).parent


def narrow_draft(t: NarrowTile) -> Draft:
    """The one launch of ``fwd`` and ``bwd``."""
    arguments = _arguments(t)
    source = _source(t, arguments)
    launch = Launch(0, source.symbol, (t.grid, 1, 1), passed(arguments), (t.threads, 1, 1),
                    shared_bytes=t.shared_bytes, programmatic=t.target.has_cluster)  # fmt: skip
    return Draft((source,), (launch,))


def weights_draft(t: NarrowWeightsTile) -> Draft:
    """The two launches of ``wrw``: the second adds the sums of the first one's blocks."""
    arguments = _weight_arguments(t)
    g, f, v = t.form.geometry, t.form, t.value
    types = {"Element": TYPES[g.x.dtype], "Out": TYPES[g.w.dtype]}
    own = {
        "LOAD_OUT": t.load_out, "COPIES": 4,
        "RESULT_BYTES": t.result_bytes, "STAGE_BYTES": t.stage_bytes, "TABLE": t.table, "WARPS": t.warps,
        "UNROLL": max(1, min(t.pixels // 32, 16 // (t.tiles_m * v["products_n"]))),
    }  # fmt: skip
    tile, sources = f"{v['bundles']}x{f.bundle}x{f.inputs}h{v['tile_h']}w{v['tile_w']}m{v['warps_m']}", []
    for op, part in (("narrowwrw", "weights"), ("narrowsum", "total")):
        functions = template(_FOLDER, "planes") + (template(_FOLDER, "window") if part == "weights" else "")
        header = Header(_numbers(t) | own, _flags(t), types, functions=functions, arguments=arguments)
        text = template(_FOLDER, part)
        sources.append(unit(op, g.x.dtype, tile, t.target.arch, mma_prelude(), text, header))
    early, values = t.target.has_cluster, passed(arguments)
    first = Launch(0, sources[0].symbol, (t.grid, 1, 1), values, (t.threads, 1, 1), shared_bytes=t.shared_bytes,
                   programmatic=early)  # fmt: skip
    second = Launch(1, sources[1].symbol, (t.blocks * t.warps * t.sums, 1, 1), values, (32, 8, 1), programmatic=early)
    return Draft(tuple(sources), (first, second), workspace_bytes=t.partial_bytes)


def _weight_arguments(t: NarrowWeightsTile) -> tuple[Argument, ...]:
    g = t.form.geometry
    element = f"const {TYPES[g.x.dtype]} *"
    return (
        Argument("dy", element, Pointer(Space.SLOT, 0)), Argument("x", element, Pointer(Space.SLOT, 1)),
        Argument("partial", "float *", Pointer(Space.WORKSPACE)),
        Argument("out", f"{TYPES[g.w.dtype]} *", Pointer(Space.SLOT, 2)),
        *_sizes(t), *integers("int", images=g.n, shares=t.grid // t.blocks),
    )  # fmt: skip


def _numbers(t: NarrowTile) -> dict[str, int]:
    """Constants of all kernels."""
    f, g, v = t.form, t.form.geometry, t.value
    return {
        "THREADS": t.threads, "WARPS_M": v["warps_m"], "SUPERS": v["bundles"], "PARTS_N": t.parts_n,
        "TILES_N": v["products_n"], "TILES_M": t.tiles_m, "TILE_H": v["tile_h"], "TILE_W": v["tile_w"],
        "WINDOW_H": t.window[0], "WINDOW_W": t.window[1], "STAGES": v["stages"], "MIN_BLOCKS": v["blocks_per_sm"],
        "PIXEL_BYTES": t.pixel_bytes, "PITCH_W": t.pitch_w, "WINDOW_BYTES": t.window_bytes,
        "SHARED_BYTES": t.shared_bytes,
        "LOAD_IN": t.load_in,
        "GROUP_IN": f.inputs, "GROUP_OUT": f.outputs, "BUNDLE_IN": f.bundle * f.inputs, "BUNDLE_OUT": f.columns,
        "STEP_H": f.step[0], "STEP_W": f.step[1], "FILTER_D": g.filter[0], "PLANE_H": g.filter[1],
        "FILTER_H": g.filter[0] * g.filter[1], "FILTER_W": g.filter[2], "STRIDE_D": g.stride[0],
        "PAD_D": g.padding[0], "DILATION_D": g.dilation[0],
        "DILATION_H": g.dilation[1], "DILATION_W": g.dilation[2],
    }  # fmt: skip


def _flags(t: NarrowTile) -> dict[str, bool]:
    return {"DEEP": t.form.geometry.deep, "BACK": t.form.geometry.direction == "bwd"}


def _source(t: NarrowTile, arguments: tuple[Argument, ...]) -> Source:
    f, g, v = t.form, t.form.geometry, t.value
    numbers = _numbers(t) | {
        "COPIES": 2, "ZERO": t.zero, "STAGED": t.staged, "STAGED_PITCH": t.staged_pitch, "VECTOR": t.vector,
        "PHASES_H": f.phases[0], "PHASES_W": f.phases[1], "PHASES": f.phases[0] * f.phases[1],
        "STRIDE_H": g.stride[1], "STRIDE_W": g.stride[2], "PAD_H": g.padding[1], "PAD_W": g.padding[2],
    }  # fmt: skip
    flags = _flags(t) | {
        "BIAS": g.epilogue.bias, "RESIDUAL": g.epilogue.residual, "REPAIR": f.repair,
        # In fp32 long results are finished as they leave, where the text has four of them.
        "LATE": g.epilogue.residual or (f.exact and g.epilogue.activation in LONG),
        "DENSE": g.w.strides[4] == g.c // g.groups and g.w.strides[3] == g.filter[2] * g.w.strides[4],
    }  # fmt: skip
    types = {"Element": TYPES[f.source.dtype], "Out": TYPES[f.result.dtype]}
    functions = activate(g.epilogue, "TS_MMA_DEVICE", f.result.dtype) + _taps(t)
    functions += template(_FOLDER, "planes") + template(_FOLDER, "window") + template(_FOLDER, "results")
    header = Header(numbers, flags, types, functions=functions, arguments=arguments)
    tile = f"{v['bundles']}x{f.bundle}x{f.inputs}h{v['tile_h']}w{v['tile_w']}m{v['warps_m']}n{v['products_n']}"
    if isinstance(t, NarrowExactTile):
        numbers["RESULTS_EACH"] = 8 * v["products_n"]
    text = template(_FOLDER, "exact")
    if not f.exact:
        text = resolved(template(_FOLDER, "kernel"), IN_TURNS=t.in_turns, COPIED=t.copied)
    return unit(f"narrow{g.direction}", f.source.dtype, tile, t.target.arch, mma_prelude(), text, header)


def _taps(t: NarrowTile) -> str:
    """Taps by phase, as functions of constants: their places in a window, and in the filter.

    In fp32, those of the filter's first plane: a loop goes over planes.
    """
    planes = range(1 if t.form.exact else t.form.geometry.filter[0])
    step, rows = t.window[0], t.form.geometry.filter[1]
    taps = [
        [((d * step + at, d * rows + r), tap) for d in planes for (at, r), tap in product(h, w)]
        for h in t.form.taps[0]
        for w in t.form.taps[1]
    ]
    first = [sum(map(len, taps[:i])) for i in range(len(taps) + 1)]
    flat = [tap for phase in taps for tap in phase] or [((0, 0), (0, 0))]
    tables = {
        "tap_first": first, "tap_h": [h for (h, _), _ in flat], "tap_w": [w for _, (w, _) in flat],
        "filter_h": [r for (_, r), _ in flat], "filter_w": [s for _, (_, s) in flat],
    }  # fmt: skip
    return "".join(_table(name, values) for name, values in tables.items())


def _table(name: str, values: Iterable[int]) -> str:
    listed = ", ".join(map(str, values))
    return f"TS_MMA_CONSTANT int {name}(int i) {{\n  constexpr int values[] = {{{listed}}};\n  return values[i];\n}}\n"


def _arguments(t: NarrowTile) -> tuple[Argument, ...]:
    f, g = t.form, t.form.geometry
    slots = [Pointer(Space.SLOT, i) for i in range(3 + g.epilogue.bias + g.epilogue.residual)]
    element, out = TYPES[f.source.dtype], TYPES[f.result.dtype]
    return (
        Argument("x", f"const {element} *", slots[0]), Argument("w", f"const {element} *", slots[1]),
        Argument("bias", f"const {out} *", slots[2] if g.epilogue.bias else slots[-1]),
        Argument("residual", f"const {out} *", slots[2 + g.epilogue.bias] if g.epilogue.residual else slots[-1]),
        Argument("out", f"{out} *", slots[-1]), *_sizes(t),
    )  # fmt: skip


def _sizes(t: NarrowTile) -> tuple[Argument, ...]:
    f, g = t.form, t.form.geometry
    tiles_h, tiles_w = t.across
    return (
        *integers(
            "int", tiles=t.tiles, blocks=t.blocks, groups=g.groups, channels=f.source.shape[1],
            results=f.result.shape[1], in_d=f.source.shape[2], in_h=f.source.shape[3], in_w=f.source.shape[4],
            out_h=f.result.shape[3], out_w=f.result.shape[4], corner_h=f.corner[0], corner_w=f.corner[1],
        ),
        *divisors(tiles_h=tiles_h, tiles_w=tiles_w, out_d=f.result.shape[2]),
        *tensor_steps("in", f.source), *tensor_steps("out", f.result),
        *integers("i64", w_row=g.w.strides[0], w_h=g.w.strides[3], w_w=g.w.strides[4]),
    )  # fmt: skip
