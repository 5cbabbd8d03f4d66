"""Texts, arguments and launches of the sm_90a kernel (``kernel.cu``) and of the sum of its slices (``sum.cu``)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tilesmith.codegen.cuda.activation import activate
from tilesmith.codegen.cuda.hopper import hopper_prelude, product_text
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, resolved, scoped, template, unit
from tilesmith.plan.records import Draft, Integer, Launch, Pointer, Real, Source, Space, TensorMap
from tilesmith.problems.geometry import SCALE_K
from tilesmith.solvers.cuda.common.form import Mapped, Sm90Form, Taps, Tiled, Window
from tilesmith.solvers.cuda.common.planes import look, look_bytes, planes
from tilesmith.solvers.cuda.common.sm90 import (
    TYPES,
    along,
    beyond_argument,
    box_map,
    divisors,
    edge_pointers,
    edge_strides,
    rescaling,
    residual_map,
    shared_text,
    sum_groups,
    three,
    touched,
    window_map,
)
from tilesmith.solvers.cuda.wgmma.tile import APART_BYTES, Sm90Tile

FOLDER = Path(__file__).parent
SUM_THREADS = 128
_KINDS = {"gemm": 0, "conv": 1, "wrw": 2}
_STORES = ("MAPPED", "ROWS", "DIRECT", "PARTIAL", "LINES", "RUN")
# What a GEMM reads. The rest are zeros in the text: each line of arguments is a read before the first copy.
_OF_GEMM = frozenset(
    "out partial bias residual scale alpha beta total rows cols layers tiles_m tiles_n slices steps group all_m "
    "block_m block_n a_layer b_layer by_tiles by_layers by_width by_group by_left by_parts out_layer out_row "
    "out_col image_steps by_image_steps row_factors column_factors factor_blocks row_step column_step row_along "
    "column_along".split()
)
# Of them, those that say where a block's tiles are: the grid does, where a block has one.
_OF_WALKS = frozenset(
    "partial total layers tiles_m tiles_n slices group all_m block_m block_n a_layer b_layer by_tiles by_layers "
    "by_width by_group by_left by_parts out_layer".split()
)


def tile_draft(t: Sm90Tile) -> Draft:
    """The kernel, after it the sum of its slices when there are several, before it what ``planes.look`` says."""
    v, arguments = t.value, _arguments(t)
    source, parameters = _kernel(t, arguments), passed(arguments)
    grid = (t.walked * t.cast, t.tiles_n, t.tiles_m // t.walked) if t.once else (t.grid, 1, 1)
    launch = Launch(
        0, source.symbol, grid, (*_maps(t), *parameters), (t.threads, 1, 1), (v["cluster_k"] * t.cast, 1, 1),
        t.shared_bytes, programmatic=True,
    )  # fmt: skip
    if t.looks:
        looking, before = look(t.form, t.target, 1)
        return Draft((source, looking), (before, launch), workspace_bytes=look_bytes(t.form))
    if v["split_k"] == 1:
        return Draft((source,), (launch,))
    adding = _sum(t, arguments)
    blocks = -(-t.partial_quads * sum_groups(v["split_k"]) // SUM_THREADS)
    step = Launch(1, adding.symbol, (blocks, 1, 1), parameters, (SUM_THREADS, 1, 1), programmatic=True)
    return Draft((source, adding), (launch, step), workspace_bytes=v["split_k"] * t.partial_quads * 16)


def _kernel(t: Sm90Tile, arguments: tuple[Argument, ...]) -> Source:
    """The kernel of ``t``. Sizes are arguments: problems that share a tile and a filter share the text."""
    form, v = t.form, t.value
    product, copy = t.registers
    header = _placing(t, arguments)
    numbers = {name: value for value, name in enumerate(_STORES)} | {
        "STORE": _STORES.index(t.store), "BLOCK_M": t.block_m, "BLOCK_N": t.block_n, "BLOCK_K": t.block_k,
        "CAST": t.cast, "CAST_M": t.cast_m, "CAST_N": t.cast_n, "A_ROWS": t.a_rows, "A_READ": t.a_read,
        "B_READ": t.b_read, "MI": v["products_m"],
        "BEYOND_RING": t.beyond_ring, "WARPGROUPS": v["warpgroups"], "STAGES": t.stages, "SPLIT": v["cluster_k"],
        "PER_SM": v["blocks_per_sm"], "BUFFERS": t.store_buffers, "APART_BYTES": APART_BYTES,
        "PRODUCT_N": t.product_n, "PRODUCT_REGISTERS": product, "COPY_REGISTERS": copy, "THREADS": t.threads,
        "SHARED_BYTES": t.fixed_bytes, "ROWS_SHARE": form.factors[0].share if form.factors else 1,
        "COLUMNS_SHARE": form.factors[1].share if form.factors else 1, "PLANES": planes(form) if t.left_out else 1,
        "RUN_COLS": form.cols if t.store == "RUN" else 0,
        "FIRST": min(t.stages, t.layer_steps[0]) if t.once else 0, **({"TURNS": t.turns} if t.turns > 1 else {}),
    }  # fmt: skip
    flags = {
        "PINGPONG": t.pingpong, "A_BY_COLUMNS": form.a_columns, "B_BY_COLUMNS": form.b_columns,
        "TAPS_INNER": bool(v["taps_inner"]), "REPAIR": form.halo, "SLICED": v["split_k"] > 1,
        "MIXED": bool(v["mix_layers"]), "LAYERED": form.layers > form.groups, "RESIDENT": bool(v["resident"]),
        "PROMOTED": form.promoted, "BLOCKWISE": form.blockwise, "A_ONCE": t.read_once[0], "B_ONCE": t.read_once[1],
        "BY_IMAGES": form.images > 1, "LEAVES_OUT": t.left_out > 0, "LOOKS": t.looks, "ONCE": t.once, "EARLY": t.early,
        "A_IN_TURNS": t.in_turns[0], "B_IN_TURNS": t.in_turns[1],
    }  # fmt: skip
    # A GEMM has no taps: problems of all batch sizes share one text.
    taps = form.taps if form.kind != "gemm" else Taps()
    # The longest sums first: what is left for the end is short.
    order = sorted(range(len(taps.counts)), key=lambda layer: -taps.counts[layer])
    header = replace(
        header, numbers={**header.numbers, **numbers}, flags={**header.flags, **flags},
        tables={"layer_order": order, "phase_first": taps.first, "tap_offset": taps.offset, "tap_filter": taps.index},
        functions=header.functions
        + product_text("product", t.product_n, form.dtype, form.a_columns, form.b_columns, form.b_type)
        + touched(arguments) + residual_map(t.staged, "map_c"),
        maps=("map_a", "map_b", "map_c", "map_tail", *(("map_residual",) if t.staged else ())),
    )  # fmt: skip
    parts = (template(FOLDER, name) for name in ("factors", "work", "shape", "copies", "results", "kernel"))
    text = scoped(template(FOLDER, "place"), shared_text("planes"), shared_text("edge"), *parts)
    text = resolved(text, IN_TURNS=t.turns > 1, ONE_AT_ONCE=t.one_at_once, GROUPS_APART=form.apart)
    groups = f"w{v['warpgroups']}" if not t.pingpong else "pp" if v["warpgroups"] == 2 else f"pp{v['warpgroups']}"
    tile = f"m{t.block_m}n{t.block_n}k{t.block_k}s{t.stages}{groups}x{v['blocks_per_sm']}"
    return unit(f"wgmma{form.kind}", _dtypes(t), tile, t.target.arch, hopper_prelude(), text, header)


def _sum(t: Sm90Tile, arguments: tuple[Argument, ...]) -> Source:
    slices, header = t.value["split_k"], _placing(t, arguments)
    numbers = {"SLICES": slices, "GROUPS": sum_groups(slices), "THREADS": SUM_THREADS}
    header = replace(header, numbers={**header.numbers, **numbers})
    text = scoped(template(FOLDER, "place"), shared_text("slices"), template(FOLDER, "sum"))
    return unit(f"sum{t.form.kind}", _dtypes(t), f"s{slices}", t.target.arch, hopper_prelude(), text, header)


def _dtypes(t: Sm90Tile) -> str:
    form = t.form
    return "".join(dict.fromkeys((form.dtype, form.b_type, form.out_dtype)))


def _placing(t: Sm90Tile, arguments: tuple[Argument, ...]) -> Header:
    """The values that ``place.cu`` reads; the kernel and the sum of its slices share them."""
    form = t.form
    numbers = {kind.upper(): value for kind, value in _KINDS.items()} | {
        "KIND": _KINDS[form.kind], "RANK": form.rank, "SLAB_COLS": t.value["slab_n"], "TAPS": len(form.taps.offset),
    }  # fmt: skip
    flags = {
        "OUT_LINEAR": form.placed.pixels is None, "TRANSPOSED": form.transposed, "BIAS_OF_ROW": form.bias_of_rows,
        "EVEN": t.even, "BIAS": form.bias is not None, "RESIDUAL": form.residual is not None,
        "SCALED": form.alpha != 1.0 or form.factored, "FACTORED": form.factored,
        "BETA": form.beta != 0.0, "GROUPED": form.groups > 1, "RESCALED": form.scale is not None,
    }  # fmt: skip
    whole = form.dtype == "int8"
    value = "int" if form.out_dtype == "int32" else "float"
    types = {
        "Element": TYPES[form.dtype], "Out": TYPES[form.out_dtype], "Sum": "int" if whole else "float",
        "Quad": "int4" if whole else "float4", "Value": value, "Bias": "float" if form.scale else TYPES[form.out_dtype],
        "BiasPair": TYPES["fp16" if form.out_dtype == "fp16" else "bf16"],
    }  # fmt: skip
    functions = activate(form.epilogue, "TS_DEVICE", form.out_dtype, value) + rescaling(form.epilogue)
    return Header(numbers, flags, types, functions=functions, arguments=arguments)


def _arguments(t: Sm90Tile) -> tuple[Argument, ...]:
    """Everything that the kernel takes beside its maps; the sum of its slices takes the same."""
    form, placed, v = t.form, t.form.placed, t.value
    out, sums = f"{TYPES[form.out_dtype]} *", "int *" if form.dtype == "int8" else "float *"
    window = next((x for x in (form.a, form.b) if isinstance(x, Window)), _NO_WINDOW)
    group, slices, image_steps = v["group_m"], v["split_k"], t.layer_steps[0] // form.images
    axes = along(
        "whd", corner=three(window.corner, 0), base=three(window.base, 1), step=three(window.step, 1),
        in_size=three(window.dims[1:-1], 1), out_size=placed.sizes, phases=placed.phases,
    )  # fmt: skip
    own_a, own_b = (form.kind == "gemm" and isinstance(x, Tiled) and x.dims[2] > 1 for x in (form.a, form.b))
    of_groups = (
        (*integers("int", groups=form.groups), *integers("ts_i64", out_group=placed.group),
         *divisors(groups=form.groups)) if form.groups > 1
        else (Argument("groups", "int", None), Argument("out_group", "ts_i64", None),
              Argument("by_groups", "ts_u64", None))
    )  # fmt: skip
    found = (
        Argument("out", out, form.out),
        Argument("partial", sums, Pointer(Space.WORKSPACE) if slices > 1 else form.out),
        Argument("bias", "const float *" if form.scale else f"const {out}", form.bias or form.out),
        Argument("residual", f"const {out}", form.residual or form.out),
        *edge_pointers(form), beyond_argument(t.looks), *_factors(form),
        *((Argument("scale", "const float *", form.scale),) if form.scale else ()),
        Argument("alpha", "float", Real(form.alpha)), Argument("beta", "float", Real(form.beta)),
        *integers(
            "int", total=t.tiles, rows=form.rows, cols=form.cols, layers=form.layers, tiles_m=t.tiles_m,
            tiles_n=t.tiles_n, slices=slices, steps=t.layer_steps[0], group=group, blocks=t.blocks,
            channels=form.channels, all_m=t.tiles_m * t.cast_m, block_m=t.block_m, block_n=t.block_n,
            a_layer=int(own_a), b_layer=int(own_b), **axes,
        ),
        *divisors(
            tiles=t.tiles_m * t.tiles_n, layers=form.layers, width=group * t.tiles_n, group=group,
            left=t.tiles_m % group or group, parts=t.parts, blocks=max(t.blocks, 1),
            **{name: value for name, value in axes.items() if name.startswith(("base", "phases"))},
        ),
        *integers(
            "ts_i64", out_layer=placed.layer, out_row=placed.row, out_col=placed.column, out_tap=placed.tap,
            **along("ndhw", out=placed.pixels or (0, 0, 0, 0)), **edge_strides(form),
        ),
        *of_groups, *(integers("int", b_group=form.b_group) if form.apart else ()),
        *(a if form.images > 1 else replace(a, parameter=None)
          for a in (*integers("int", image_steps=image_steps), *divisors(image_steps=image_steps))),
    )  # fmt: skip
    if form.kind == "gemm":
        wanted = _OF_GEMM - _OF_WALKS if t.once else _OF_GEMM
        return tuple(a if a.name in wanted else replace(a, parameter=None) for a in found)
    return found


def _factors(form: Sm90Form) -> tuple[Argument, ...]:
    """The factors of both operands, and how they lie; none is passed where there are none."""
    rows, columns = form.factors or (None, None)
    blocks = Integer(-(-form.reduced // SCALE_K)) if form.blockwise else None
    found = [Argument("factor_blocks", "int", blocks)]
    for name, each in (("row", rows), ("column", columns)):
        found.append(Argument(f"{name}_factors", "const float *", each.pointer if each else None))
        steps = (
            {"step": each.step, "along": each.along} if each and form.blockwise else dict.fromkeys(("step", "along"))
        )
        found += [Argument(f"{name}_{of}", "ts_i64", None if n is None else Integer(n)) for of, n in steps.items()]
    return tuple(found)


_NO_WINDOW = Window(Pointer(Space.SLOT), (1, 1), (), (), (), ())


def _maps(t: Sm90Tile) -> tuple[TensorMap, ...]:
    form, tail = t.form, t.block_n % t.chunk or t.chunk
    turns_a, turns_b = t.in_turns
    a = _load(t, form.a, form.dtype, t.a_read // (1 if turns_a else t.cast_n), form.a_columns)
    b = _load(t, form.b, form.b_type, t.b_read // (1 if turns_b else t.cast_m), form.b_columns)
    if t.store != "MAPPED" or form.mapped is None:
        return (a, b, a, a)  # the kernel does not read the last two
    if form.transposed:  # rows are the contiguous axis, and a warpgroup stores them together
        boxes = [(t.chunk, columns, 1) for columns in (t.chunk, tail)]
    else:
        boxes = [(columns, 16, 1) if form.mapped.across == 1 else (columns, 1, 16) for columns in (t.chunk, tail)]
    stores = (box_map(form.mapped, form.out_dtype, box, 128) for box in boxes)
    if not t.staged:
        return a, b, *stores
    assert form.residual is not None
    # A part of fewer than 64 columns, too, is copied as 64: the kernel reads those that it has.
    return a, b, *stores, box_map(replace(form.mapped, pointer=form.residual), form.out_dtype, boxes[0], 128)


def _load(t: Sm90Tile, operand: Mapped, dtype: str, extent: int, by_columns: bool) -> TensorMap:
    """The map that loads ``extent`` rows of one step; rows that are contiguous come in slabs of 64."""
    if isinstance(operand, Window):
        channels, pixels = (t.value["slab_n"], t.block_k) if by_columns else (t.block_k, extent)
        return window_map(operand, dtype, channels, pixels)
    assert isinstance(operand, Tiled)
    whole = 128 // t.form.nbytes
    inner, across = (whole, t.block_k) if by_columns else (min(t.block_k, whole), extent)
    return box_map(operand, dtype, (inner, across, 1) if operand.across == 1 else (inner, 1, across))
