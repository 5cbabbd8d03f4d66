"""Text, arguments and launch of the sm_90a kernel that reads each window of pixels once."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from tilesmith.codegen.cuda.activation import activation_body
from tilesmith.codegen.cuda.hopper import hopper_prelude, product_text
from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Draft, Integer, Launch, Source, TensorMap
from tilesmith.problems.geometry import TensorView
from tilesmith.solvers.cuda.common.form import Tiled, steps_along
from tilesmith.solvers.cuda.halo.tile import HaloTile
from tilesmith.solvers.cuda.wgmma.source import (
    TYPES,
    Argument,
    declarations,
    edge_strides,
    passed,
    reciprocal,
    three,
    touched,
)


@lru_cache(maxsize=1)
def _template() -> str:
    return Path(__file__).with_name("kernel.cu").read_text()


def halo_draft(t: HaloTile, result: TensorView) -> Draft:
    """The one launch of ``t``; ``result`` is the tensor that it writes."""
    arguments = _arguments(t, result)
    source = _source(t, arguments)
    maps = _maps(t, result)
    return Draft(
        (source,),
        (Launch(0, source.symbol, (t.grid, 1, 1), (*maps, *passed(arguments)), (t.threads, 1, 1),
                shared_bytes=t.shared_bytes, programmatic=True),),
    )  # fmt: skip


def _source(t: HaloTile, arguments: tuple[Argument, ...]) -> Source:
    form, v = t.form, t.value
    maps = [f"const __grid_constant__ ts_map {name}" for name in ("map_pixels", "map_filter", "map_out")]
    holes = {
        "CONSTANTS": _constants(t),
        "PRODUCT": product_text("product", t.block_n, form.dtype, form.b_columns, False),
        "FIELDS": "".join(f"  {a.field}{a.name};\n" for a in arguments),
        "PARAMETERS": ", ".join([*maps, *declarations(arguments)]),
        "VALUES": ", ".join(a.cast for a in arguments),
        "TOUCH": touched(arguments),
        "ACTIVATION": activation_body(form.epilogue),
    }
    text = _template()
    for name, value in holes.items():
        text = text.replace(f"@{name}@", value)
    tile = f"m{t.block_m}h{v['tile_h']}w{v['tile_w']}k{t.block_k}" + ("pp" if t.pingpong else f"w{v['warpgroups']}")
    return make_source("cuda", "wgmmahalo", form.dtype, tile, t.target.arch, hopper_prelude(), text)


def _constants(t: HaloTile) -> str:
    form, v = t.form, t.value
    product, copy = t.registers
    w, h, d = t.window
    numbers = {
        "BLOCK_N": t.block_n, "BLOCK_K": t.block_k, "WARPGROUPS": v["warpgroups"], "WINDOWS": v["windows"],
        "STAGES": 1 if v["resident"] else t.stages, "TILE_W": v["tile_w"], "TILE_H": v["tile_h"], "WINDOW_W": w,
        "WINDOW_H": h, "WINDOW_D": d, "BLOCKS": t.blocks, "TAPS": len(t.rows), "RANK": form.rank,
        "PRODUCT_REGISTERS": product, "COPY_REGISTERS": copy,
    }  # fmt: skip
    flags = {
        "PINGPONG": t.pingpong, "RESIDENT": bool(v["resident"]), "A_BY_COLUMNS": form.b_columns,
        "BIAS": form.bias is not None, "REPAIR": form.halo,
    }  # fmt: skip
    lines = [f"constexpr int {name} = {value};" for name, value in numbers.items()]
    lines += [f"constexpr bool {name} = {str(value).lower()};" for name, value in flags.items()]
    lines += [f"typedef {TYPES[form.dtype]} Element;", f"typedef {TYPES[form.out_dtype]} Out;"]
    tables = (("window_row", t.rows), ("tap_offset", form.taps.offset), ("tap_filter", form.taps.index))
    lines += [f"static __constant__ ts_u32 {name}[] = {{{', '.join(map(str, row))}}};" for name, row in tables]
    return "\n".join(lines)


def _arguments(t: HaloTile, result: TensorView) -> tuple[Argument, ...]:
    form, window = t.form, t.pixels
    element, out = f"const {TYPES[form.dtype]} *", f"{TYPES[form.out_dtype]} *"
    pixels, filter_ = (form.a.pointer, form.b.pointer) if form.halo else (form.out, form.out)
    found = [
        Argument("out", out, form.out), Argument("bias", f"const {out}", form.bias or form.out),
        Argument("pixels", element, pixels), Argument("filter", element, filter_),
    ]  # fmt: skip
    n, _, d, h, w = result.strides
    wide = {"out_n": n, "out_d": d, "out_h": h, "out_w": w} | edge_strides(form)
    tiles_w, tiles_h = t.across
    narrow = {
        "tiles": t.tiles, "tiles_m": t.tiles_m, "tiles_w": tiles_w, "tiles_h": tiles_h, "rows": form.cols,
        "channels": form.channels,
    }  # fmt: skip
    triples = {
        "corner": three(window.corner, 0), "in_size": three(window.dims[1:-1], 1), "out_size": three(window.base, 1)
    }  # fmt: skip
    for name, values in triples.items():
        narrow |= {f"{name}_{axis}": value for axis, value in zip("whd", values, strict=True)}
    divisors = ("tiles_m", "tiles_w", "tiles_h", "out_size_d")
    found += [Argument(name, "int ", Integer(value)) for name, value in narrow.items()]
    found += [Argument(f"by_{name}", "ts_u64 ", Integer(reciprocal(narrow[name]))) for name in divisors]
    found += [Argument(name, "ts_i64 ", Integer(value)) for name, value in wide.items()]
    return tuple(found)


def _maps(t: HaloTile, result: TensorView) -> tuple[TensorMap, TensorMap, TensorMap]:
    form, window, bk = t.form, t.pixels, t.block_k
    assert isinstance(form.b, Tiled)
    spatial = len(window.base)
    ones = (1,) * (spatial + 2)
    box = (bk, *t.window[:spatial], 1)
    pixels = TensorMap(window.pointer, form.dtype, window.dims, tuple(2 * s for s in window.strides), box, ones, bk * 2)
    box = (64, 1, bk) if form.b_columns else (bk, 1, t.block_m)
    filter_ = TensorMap(
        form.b.pointer, form.dtype, form.b.dims, tuple(2 * s for s in form.b.strides), box, (1, 1, 1), 2 * box[0]
    )
    n, c, *sizes = result.shape
    dims = (c, *reversed(sizes[3 - spatial :]), n)
    strides = steps_along(dims[1:], (*reversed(result.strides[5 - spatial :]), result.strides[0]))
    tile = (t.value["tile_w"], t.value["tile_h"], 1)[:spatial]
    out = TensorMap(form.out, form.out_dtype, dims, tuple(2 * s for s in strides), (64, *tile, 1), ones, 128)
    return pixels, filter_, out
