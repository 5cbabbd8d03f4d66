"""Text, arguments and launch of the sm_90a kernel that reads each window of pixels once (``kernel.cu``)."""

from __future__ import annotations

from pathlib import Path

from tilesmith.codegen.cuda.activation import activate
from tilesmith.codegen.cuda.hopper import hopper_prelude, product_text
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, scoped, template, unit
from tilesmith.plan.records import Draft, Launch, Source, TensorMap
from tilesmith.solvers.cuda.common.conv_form import pixel_axes
from tilesmith.solvers.cuda.common.form import Mapped, Tiled
from tilesmith.solvers.cuda.common.groups import with_groups
from tilesmith.solvers.cuda.common.planes import look, look_bytes, planes
from tilesmith.solvers.cuda.common.sm90 import (
    TYPES,
    along,
    beyond_argument,
    box_map,
    divisors,
    edge_pointers,
    edge_strides,
    residual_map,
    shared_text,
    three,
    touched,
)
from tilesmith.solvers.cuda.halo.tile import HaloTile

FOLDER = Path(__file__).parent


def halo_draft(t: HaloTile) -> Draft:
    """The launch of ``t``, and before it what ``planes.look`` says."""
    arguments = _arguments(t)
    source = _kernel(t, arguments)
    launch = Launch(0, source.symbol, (t.grid, 1, 1), (*_maps(t), *passed(arguments)), (t.threads, 1, 1),
                    shared_bytes=t.shared_bytes, programmatic=True)  # fmt: skip
    if not t.looks:
        return Draft((source,), (launch,))
    looking, before = look(t.form, t.target, 1)
    return Draft((source, looking), (before, launch), workspace_bytes=look_bytes(t.form))


def _kernel(t: HaloTile, arguments: tuple[Argument, ...]) -> Source:
    form, v = t.form, t.value
    product, copy = t.registers
    w, h, d = t.window
    header = Header(
        numbers={
            "BLOCK_M": t.block_m, "BLOCK_N": t.block_n, "BLOCK_K": t.block_k, "WARPGROUPS": v["warpgroups"],
            "WINDOWS": v["windows"], "STAGES": 1 if v["resident"] else t.stages, "TILE_W": v["tile_w"],
            "TILE_H": v["tile_h"], "WINDOW_W": w, "WINDOW_H": h, "WINDOW_D": d, "BLOCKS": t.blocks,
            "TAPS": len(t.taps), "PHASES": len(t.phases), "PRODUCTS": t.products, "STEP_W": t.step[0],
            "STEP_H": t.step[1], "STEP_D": t.step[2], "RANK": form.rank, "PRODUCT_REGISTERS": product,
            "COPY_REGISTERS": copy, "THREADS": t.threads, "SHARED_BYTES": t.shared_bytes,
            "PLANES": planes(form) if t.left_out else 1,
        },
        flags={
            "PINGPONG": t.pingpong, "RESIDENT": bool(v["resident"]), "A_BY_COLUMNS": form.b_columns,
            "GROUPED": t.groups > 1, "LEAVES_OUT": t.left_out > 0, "LOOKS": t.looks,
            "BIAS": form.bias is not None, "RESIDUAL": form.residual is not None, "REPAIR": form.halo,
        },
        types={"Element": TYPES[form.dtype], "Out": TYPES[form.out_dtype]},
        tables={
            "window_row": t.rows, "tap_offset": tuple(tap.offset for tap in t.taps),
            "tap_filter": tuple(tap.index for tap in t.taps),
            "phase_at": tuple(w | h << 8 | d << 16 for w, h, d in t.phases), "phase_first": _firsts(t),
        },
        functions=product_text("product", t.block_n, form.dtype, form.b_columns, False)
        + activate(form.epilogue, "TS_DEVICE", form.out_dtype) + touched(arguments)
        + residual_map(form.residual is not None, "map_out"),
        maps=("map_pixels", "map_filter", "map_out", *(("map_residual",) if form.residual else ())),
        arguments=arguments,
    )  # fmt: skip
    tile = f"m{t.block_m}h{v['tile_h']}w{v['tile_w']}k{t.block_k}" + ("pp" if t.pingpong else f"w{v['warpgroups']}")
    text = scoped(shared_text("planes"), shared_text("edge"), template(FOLDER, "kernel"))
    return unit("wgmmahalo", form.dtype, tile, t.target.arch, hopper_prelude(), text, header)


def _firsts(t: HaloTile) -> tuple[int, ...]:
    """For each phase its first tap, then how many taps there are."""
    of = [tap.phase for tap in t.taps]
    return (*map(of.index, t.phases), len(of))


def _arguments(t: HaloTile) -> tuple[Argument, ...]:
    form, window = t.form, t.pixels
    out = f"{TYPES[form.out_dtype]} *"
    n, _, *steps = t.result.strides
    tiles_w, tiles_h = t.across
    sizes = along("whd", in_size=three(window.dims[1:-1], 1), out_size=three(window.base, 1))
    of_groups = (
        (*integers("int", tiles_each=t.tiles_each), *divisors(tiles_each=t.tiles_each)) if t.groups > 1
        else (Argument("tiles_each", "int", None), Argument("by_tiles_each", "ts_u64", None))
    )  # fmt: skip
    return (
        Argument("out", out, form.out), Argument("bias", f"const {out}", form.bias or form.out),
        Argument("residual", f"const {out}", form.residual), *edge_pointers(form), beyond_argument(t.looks),
        *integers(
            "int", tiles=t.tiles, tiles_m=t.tiles_m, tiles_w=tiles_w, tiles_h=tiles_h, rows=form.cols,
            channels=form.channels, **along("whd", corner=t.corner), **sizes,
        ),
        *divisors(tiles_m=t.tiles_m, tiles_w=tiles_w, tiles_h=tiles_h, out_size_d=sizes["out_size_d"]),
        *integers("ts_i64", **along("ndhw", out=(n, *steps)), **edge_strides(form)), *of_groups,
    )  # fmt: skip


def _maps(t: HaloTile) -> tuple[TensorMap, ...]:
    form, window, bk = t.form, t.pixels, t.block_k
    spatial = len(window.base)
    assert isinstance(form.b, Tiled)
    filter_: Mapped = form.b
    filter_box: tuple[int, ...] = (64, 1, bk) if form.b_columns else (bk, 1, t.block_m)
    tile = (t.value["tile_w"], t.value["tile_h"], 1)[:spatial]
    results = (form.out, form.residual) if form.residual else (form.out,)
    one = (1,) if t.groups > 1 and spatial == 2 else ()  # a box holds one group
    if t.groups > 1:
        tap, row = form.b.strides
        filter_ = Mapped(filter_.pointer, (*filter_.dims, t.groups), (tap, row, filter_.dims[2] * row))
        filter_box = (*filter_box, 1)
    return (
        box_map(
            with_groups(window, t.groups),
            form.dtype,
            (bk, *one, *t.box[:spatial], 1),
            steps=(1, *one, *t.step[:spatial], 1),
        ),
        box_map(filter_, form.dtype, filter_box),
        *(
            box_map(with_groups(pixel_axes(each, t.result, spatial), t.groups), form.out_dtype, (64, *one, *tile, 1))
            for each in results
        ),
    )
