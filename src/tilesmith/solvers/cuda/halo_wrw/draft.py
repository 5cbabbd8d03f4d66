"""Texts, arguments and launches of the sm_90a backward weights that read each window once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tilesmith.codegen.cuda.hopper import hopper_prelude, product_text
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, scoped, template, unit
from tilesmith.plan.records import Draft, Launch, Pointer, Source, Space, TensorMap
from tilesmith.problems.geometry import TensorView
from tilesmith.solvers.cuda.common.conv_form import pixel_axes, spatial_axes
from tilesmith.solvers.cuda.common.dense import slot
from tilesmith.solvers.cuda.common.form import Sm90Form
from tilesmith.solvers.cuda.common.groups import with_groups
from tilesmith.solvers.cuda.common.sm90 import TYPES, along, box_map, divisors, shared_text, sum_groups
from tilesmith.solvers.cuda.halo_wrw.tile import HaloWrwTile

FOLDER = Path(__file__).parent
SUM_THREADS = 256


def halo_wrw_draft(t: HaloWrwTile, form: Sm90Form) -> Draft:
    """The kernel, and after it the sum of its slices when there are several."""
    arguments = _arguments(t, form)
    source, parameters = _kernel(t, arguments), passed(arguments)
    launch = Launch(
        0, source.symbol, t.grid, (*_maps(t), *parameters), (t.threads, 1, 1),
        shared_bytes=t.shared_bytes, programmatic=True,
    )  # fmt: skip
    slices = t.value["split_n"]
    if slices == 1:
        return Draft((source,), (launch,))
    adding = _sum(t, arguments)
    blocks = -(-t.units * t.block_quads * sum_groups(slices) // SUM_THREADS)
    step = Launch(1, adding.symbol, (blocks, 1, 1), parameters, (SUM_THREADS, 1, 1), programmatic=True)
    return Draft((source, adding), (launch, step), workspace_bytes=t.partial_bytes)


def _kernel(t: HaloWrwTile, arguments: tuple[Argument, ...]) -> Source:
    v, g = t.value, t.geometry
    product, copy = t.registers
    w, h = t.window
    header = _placing(t, arguments)
    numbers = {
        "TILE_W": v["tile_w"], "TILE_H": v["tile_h"], "WINDOW_W": w, "WINDOW_H": h, "X_ROWS": t.x_rows,
        "DY_ROWS": t.dy_rows, "STEPS": t.steps, "STAGES": t.stages, "LINES": t.lines, "DILATION_H": g.dilation[1],
        "DILATION_W": g.dilation[2], "DY_LEAD": t.dy_lead, "ROW_STEP": t.row_step, "GROUP_STEP": t.tap_step,
        "RANK": spatial_axes(g) + 2, "PRODUCT_REGISTERS": product, "COPY_REGISTERS": copy, "THREADS": t.threads,
        "SHARED_BYTES": t.shared_bytes,
    }  # fmt: skip
    header = replace(
        header, numbers={**header.numbers, **numbers}, maps=("map_dy", "map_x"),
        flags={**header.flags, "WHOLE": t.whole, "PARTIAL": v["split_n"] > 1},
        functions=product_text("product", t.columns, g.x.dtype, True, True),
    )  # fmt: skip
    groups = f"x{v['warpgroups_k']}x{v['warpgroups_lines']}x{v['lines']}"
    tile = f"h{v['tile_h']}w{v['tile_w']}c{v['block_c']}k{v['product_k']}g{v['taps']}{groups}"
    text = scoped(template(FOLDER, "place"), template(FOLDER, "kernel"))
    return unit("wgmmahalowrw", g.x.dtype, tile, t.target.arch, hopper_prelude(), text, header)


def _sum(t: HaloWrwTile, arguments: tuple[Argument, ...]) -> Source:
    slices, header = t.value["split_n"], _placing(t, arguments)
    numbers = {"SLICES": slices, "GROUPS": sum_groups(slices), "THREADS": SUM_THREADS}
    header = replace(header, numbers={**header.numbers, **numbers})
    text = scoped(template(FOLDER, "place"), shared_text("slices"), template(FOLDER, "sum"))
    return unit("sumhalowrw", t.geometry.w.dtype, f"s{slices}", t.target.arch, hopper_prelude(), text, header)


def _placing(t: HaloWrwTile, arguments: tuple[Argument, ...]) -> Header:
    """The values that ``place.cu`` reads; the kernel and the sum of its slices share them."""
    v, g = t.value, t.geometry
    numbers = {
        "K_GROUPS": v["warpgroups_k"], "LINE_GROUPS": v["warpgroups_lines"], "LINES_EACH": v["lines"],
        "TAPS_EACH": v["taps"], "SLAB_COLS": v["block_c"], "K_COLS": v["product_k"], "LINE_PIECES": t.pieces,
        "LINE_PARTS": t.parts, "FILTER_H": g.filter[1], "FILTER_W": g.filter[2], "BLOCK_QUADS": t.block_quads,
    }  # fmt: skip
    types = {"Element": TYPES[g.x.dtype], "Out": TYPES[g.w.dtype]}
    return Header(numbers, {"ALONG_H": t.along_h, "GROUPED": t.groups > 1}, types, arguments=arguments)


def _arguments(t: HaloWrwTile, form: Sm90Form) -> tuple[Argument, ...]:
    g = t.geometry
    element = f"const {TYPES[g.x.dtype]} *"
    partial = Pointer(Space.WORKSPACE) if t.value["split_n"] > 1 else form.out
    blocks_k, blocks_c = t.blocks
    tiles_w, tiles_h = t.across
    each, more = divmod(t.tiles, t.value["split_n"])
    sizes = {
        "base": g.output, "in_size": g.input, "corner": tuple(-p for p in g.padding), "dilation": g.dilation
    }  # fmt: skip
    steps = {name: (view.strides[0], *view.strides[2:]) for name, view in (("dy", g.y), ("x", g.x))}
    units_of_plane = t.units_each // blocks_k  # by blocks of output channels
    of_groups = (
        (*integers("int", rest_each=units_of_plane), *divisors(rest_each=units_of_plane)) if t.groups > 1
        else (Argument("rest_each", "int", None), Argument("by_rest_each", "ts_u64", None))
    )  # fmt: skip
    return (
        Argument("out", f"{TYPES[g.w.dtype]} *", form.out), Argument("partial", "float *", partial),
        Argument("dy", element, slot(0)), Argument("x", element, slot(1)),
        *integers(
            "int", units=t.units, tiles_each=each, tiles_more=more, tiles_w=tiles_w, tiles_h=tiles_h,
            blocks_k=blocks_k, blocks_c=blocks_c, rows=g.k, channels=g.c, images=g.n,
            **along("whd", **{name: triple[::-1] for name, triple in sizes.items()}),
        ),
        *divisors(tiles_w=tiles_w, tiles_h=tiles_h, base_d=g.output[0], blocks_k=blocks_k, blocks_c=blocks_c),
        *integers("ts_i64", out_row=form.placed.row, out_tap=form.placed.tap, **along("ndhw", **steps)),
        *of_groups,
    )  # fmt: skip


def _maps(t: HaloWrwTile) -> tuple[TensorMap, TensorMap]:
    g, v = t.geometry, t.value
    dy = (t.window[0], v["tile_h"]) if t.whole else (v["tile_w"], 1)
    return _map(t, g.y, 0, v["product_k"], dy), _map(t, g.x, 1, v["block_c"], t.window)


def _map(t: HaloWrwTile, view: TensorView, index: int, channels: int, extent: tuple[int, int]) -> TensorMap:
    """Boxes of ``channels`` x W x H of one image."""
    spatial = spatial_axes(t.geometry)
    one = (1,) if t.groups > 1 and spatial == 2 else ()  # a box holds one group
    axes = with_groups(pixel_axes(slot(index), view, spatial), t.groups)
    return box_map(axes, view.dtype, (channels, *one, *extent, *(1,) * (spatial - 1)))
