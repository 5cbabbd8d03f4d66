"""The text of the kernel, its arguments and its launch."""

from __future__ import annotations

from pathlib import Path

from tilesmith.codegen.cuda.hopper import hopper_prelude, product_text
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, scoped, template, unit
from tilesmith.plan.records import Draft, Launch, TensorMap
from tilesmith.solvers.cuda.common.sm90 import TYPES, box_map, divisors
from tilesmith.solvers.cuda.row_groups.tile import BLOCK_K, GroupsTile

_FOLDER = Path(__file__).parent


def groups_draft(t: GroupsTile) -> Draft:
    """One launch; sizes and the number of groups are arguments, so that problems share the text."""
    form, v, g = t.form, t.value, t.form.g
    element = TYPES[g.a.dtype]
    product, copy = t.registers
    arguments = (
        Argument("out", f"{element} *", form.out), Argument("ends", "const int *", form.ends),
        *integers(
            "int", rows=g.m, cols=g.n, groups=g.groups, steps=t.steps, tiles_n=t.tiles_n, band=v["band_m"],
            width=v["band_m"] * t.tiles_n,
        ),
        *divisors(width=v["band_m"] * t.tiles_n), *integers("ts_i64", out_row=g.c.strides[1]),
    )  # fmt: skip
    numbers = {
        "BLOCK_ROWS": t.block_rows, "BLOCK_COLS": t.block_columns, "MI": v["products_n"], "WARPGROUPS": t.warpgroups,
        "STAGES": t.stages, "THREADS": t.threads, "PRODUCT_REGISTERS": product, "COPY_REGISTERS": copy,
        "FIXED_BYTES": t.fixed_bytes, "CHUNK": t.chunk,
    }  # fmt: skip
    whole = form.result is not None
    flags = {
        "PINGPONG": t.pingpong, "B_BY_COLUMNS": form.by_columns, "B_ONCE": t.read_once, "MAPPED": whole, "WHOLE": whole,
    }  # fmt: skip
    # The rows of wgmma are columns of b.
    functions = product_text("product", t.block_rows, g.a.dtype, form.by_columns, False)
    header = Header(
        numbers, flags, {"Out": element}, functions=functions, maps=("map_a", "map_b", "map_c"), arguments=arguments
    )
    text = scoped(template(_FOLDER, "kernel"))
    tile = f"m{t.block_rows}n{t.block_columns}s{t.stages}{'pp' if t.pingpong else f'w{t.warpgroups}'}"
    source = unit("rowgroups", g.a.dtype, tile, t.target.arch, hopper_prelude(), text, header)
    launch = Launch(
        0, source.symbol, (t.grid, 1, 1), (*_maps(t), *passed(arguments)), (t.threads, 1, 1),
        shared_bytes=t.fixed_bytes + t.table_bytes, programmatic=True,
    )  # fmt: skip
    return Draft((source,), (launch,))


def _maps(t: GroupsTile) -> tuple[TensorMap, TensorMap, TensorMap]:
    form, name = t.form, t.form.g.a.dtype
    a = box_map(form.a, name, (BLOCK_K, t.block_rows, 1))
    b = box_map(form.b, name, (64, BLOCK_K, 1) if form.by_columns else (BLOCK_K, t.block_columns, 1))
    if form.result is None:
        return a, b, a  # the kernel does not read the last one
    return a, b, box_map(form.result, name, (64, t.chunk, 1))
