"""Text, arguments and launches of the sm_90a backward weights that read each window once."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from tilesmith.codegen.cuda.hopper import hopper_prelude, product_text
from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Draft, Integer, Launch, Pointer, Source, Space, TensorMap
from tilesmith.problems.geometry import TensorView
from tilesmith.solvers.cuda.common.form import Sm90Form, slot, steps_along
from tilesmith.solvers.cuda.halo_wrw.tile import HaloWrwTile
from tilesmith.solvers.cuda.wgmma.source import TYPES, Argument, declarations, passed, reciprocal

_SUM_THREADS = 256


@lru_cache(maxsize=4)
def _template(name: str) -> str:
    return Path(__file__).with_name(f"{name}.cu").read_text()


def halo_wrw_draft(t: HaloWrwTile, form: Sm90Form) -> Draft:
    """The kernel, and after it the sum of its slices when there are several."""
    arguments = _arguments(t, form)
    maps = _maps(t)
    source = _source(t, arguments)
    launch = Launch(
        0, source.symbol, t.grid, (*maps, *passed(arguments)), (t.threads, 1, 1),
        shared_bytes=t.shared_bytes, programmatic=True,
    )  # fmt: skip
    if t.value["split_n"] == 1:
        return Draft((source,), (launch,))
    sum_source = _sum_source(t, arguments)
    blocks = -(-t.units * t.block_quads * _lanes(t) // _SUM_THREADS)
    step = Launch(
        1, sum_source.symbol, (blocks, 1, 1), passed(arguments), (_SUM_THREADS, 1, 1),
        programmatic=True,
    )  # fmt: skip
    return Draft((source, sum_source), (launch, step), workspace_bytes=t.partial_bytes)


def _lanes(t: HaloWrwTile) -> int:
    """Threads that share the slices of a group of sums: each has up to 8 loads under way."""
    lanes = 1
    while lanes < 16 and lanes * 8 < t.value["split_n"]:
        lanes *= 2
    return lanes


def _filled(text: str, holes: dict[str, str]) -> str:
    for name, value in holes.items():
        text = text.replace(f"@{name}@", value)
    return text


def _holes(t: HaloWrwTile, arguments: tuple[Argument, ...], more: dict[str, int]) -> dict[str, str]:
    place = _filled(_template("place"), {"FIELDS": "".join(f"  {a.field}{a.name};\n" for a in arguments)})
    return {"CONSTANTS": _constants(t, more), "PLACE": place, "VALUES": ", ".join(a.cast for a in arguments)}


def _source(t: HaloWrwTile, arguments: tuple[Argument, ...]) -> Source:
    v, dtype = t.value, t.geometry.x.dtype
    product, copy = t.registers
    w, h = t.window
    more = {
        "TILE_W": v["tile_w"], "TILE_H": v["tile_h"], "WINDOW_W": w, "WINDOW_H": h, "X_ROWS": t.x_rows,
        "DY_ROWS": t.dy_rows,
        "STEPS": t.steps, "STAGES": t.stages, "LINES": t.lines, "DILATION_H": t.geometry.dilation[1],
        "DILATION_W": t.geometry.dilation[2], "DY_LEAD": t.dy_lead,
        "ROW_STEP": t.row_step, "GROUP_STEP": t.tap_step, "RANK": 5 if t.geometry_is_deep else 4,
        "WHOLE": int(t.whole), "PARTIAL": int(v["split_n"] > 1), "PRODUCT_REGISTERS": product, "COPY_REGISTERS": copy,
    }  # fmt: skip
    holes = _holes(t, arguments, more)
    maps = [f"const __grid_constant__ ts_map {name}" for name in ("map_dy", "map_x")]
    holes["PARAMETERS"] = ", ".join([*maps, *declarations(arguments)])
    holes["PRODUCT"] = product_text("product", t.columns, dtype, True, True)
    groups = f"x{v['warpgroups_k']}x{v['warpgroups_lines']}x{v['lines']}"
    tile = f"h{v['tile_h']}w{v['tile_w']}c{v['block_c']}k{v['product_k']}g{v['taps']}{groups}"
    return make_source(
        "cuda", "wgmmahalowrw", dtype, tile, t.target.arch, hopper_prelude(), _filled(_template("kernel"), holes)
    )


def _sum_source(t: HaloWrwTile, arguments: tuple[Argument, ...]) -> Source:
    slices = t.value["split_n"]
    holes = _holes(t, arguments, {"SLICES": slices, "LANES": _lanes(t)})
    holes["PARAMETERS"] = ", ".join(declarations(arguments))
    text = _filled(_template("sum"), holes)
    return make_source("cuda", "sumhalowrw", t.geometry.w.dtype, f"s{slices}", t.target.arch, hopper_prelude(), text)


def _constants(t: HaloWrwTile, more: dict[str, int]) -> str:
    v, g = t.value, t.geometry
    numbers = {
        "K_GROUPS": v["warpgroups_k"], "LINE_GROUPS": v["warpgroups_lines"], "LINES_EACH": v["lines"],
        "GROUP": v["taps"],
        "SLAB_COLS": v["block_c"],
        "K_COLS": v["product_k"], "LINE_PIECES": t.pieces, "LINE_PARTS": t.parts, "ALONG_H": int(t.along_h),
        "FILTER_H": g.filter[1], "FILTER_W": g.filter[2],
    } | more  # fmt: skip
    lines = [f"constexpr int {name} = {value};" for name, value in numbers.items()]
    lines += [f"typedef {TYPES[g.x.dtype]} Element;", f"typedef {TYPES[g.w.dtype]} Out;"]
    return "\n".join(lines)


def _arguments(t: HaloWrwTile, form: Sm90Form) -> tuple[Argument, ...]:
    g = t.geometry
    element = f"const {TYPES[g.x.dtype]} *"
    partial = Pointer(Space.WORKSPACE) if t.value["split_n"] > 1 else form.out
    found = [
        Argument("out", f"{TYPES[g.w.dtype]} *", form.out), Argument("partial", "float *", partial),
        Argument("dy", element, slot(0)), Argument("x", element, slot(1)),
    ]  # fmt: skip
    k_blocks, c_blocks = t.blocks
    tiles_w, tiles_h = t.across
    each, more = divmod(t.tiles, t.value["split_n"])
    narrow = {
        "units": t.units, "tiles_each": each, "tiles_more": more, "tiles_w": tiles_w, "tiles_h": tiles_h,
        "blocks_k": k_blocks, "blocks_c": c_blocks, "rows": g.k, "channels": g.c, "images": g.n,
    }  # fmt: skip
    triples = {
        "base": g.output, "in_size": g.input, "corner": tuple(-p for p in g.padding), "dilation": g.dilation
    }  # fmt: skip
    for name, (d, h, w) in triples.items():
        narrow |= {f"{name}_w": w, f"{name}_h": h, f"{name}_d": d}
    divisors = ("tiles_w", "tiles_h", "base_d", "blocks_k", "blocks_c")
    wide = {"out_row": form.placed.row, "out_tap": form.placed.tap}
    for name, view in (("dy", g.y), ("x", g.x)):
        n, _, d, h, w = view.strides
        wide |= {f"{name}_n": n, f"{name}_d": d, f"{name}_h": h, f"{name}_w": w}
    found += [Argument(name, "int ", Integer(value)) for name, value in narrow.items()]
    found += [Argument(f"by_{name}", "ts_u64 ", Integer(reciprocal(narrow[name]))) for name in divisors]
    found += [Argument(name, "ts_i64 ", Integer(value)) for name, value in wide.items()]
    return tuple(found)


def _maps(t: HaloWrwTile) -> tuple[TensorMap, TensorMap]:
    g, v = t.geometry, t.value
    w, h = t.window
    dy = (w, v["tile_h"]) if t.whole else (v["tile_w"], 1)
    return _map(t, g.y, 0, v["product_k"], dy), _map(t, g.x, 1, v["block_c"], (w, h))


def _map(t: HaloWrwTile, view: TensorView, index: int, channels: int, box: tuple[int, int]) -> TensorMap:
    """Boxes of ``channels`` x W x H of one image."""
    spatial = 3 if t.geometry_is_deep else 2
    n, c, *sizes = view.shape
    dims = (c, *reversed(sizes[3 - spatial :]), n)
    strides = steps_along(dims[1:], (*reversed(view.strides[5 - spatial :]), view.strides[0]))
    shape = (channels, *box, *(1,) * (spatial - 1))
    return TensorMap(
        slot(index), view.dtype, dims, tuple(2 * s for s in strides), shape, (1,) * len(dims), channels * 2
    )  # fmt: skip
