"""The texts and launches: the filter's packing and the convolution, or backward weights and the sum of its slices."""

from __future__ import annotations

from pathlib import Path

from tilesmith.codegen.cuda.activation import activate
from tilesmith.codegen.cuda.hopper import mma_arrive_text, mma_bulk_text, mma_wait_text
from tilesmith.codegen.cuda.mma import TYPES, divisors, mma_prelude
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, scoped, template, unit
from tilesmith.plan.records import Draft, Launch, Pointer, Source, Space
from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.solvers.cuda.common.dense import slot
from tilesmith.solvers.cuda.runs.back import BackTile
from tilesmith.solvers.cuda.runs.form import RunsForm
from tilesmith.solvers.cuda.runs.tile import FILTER_PARTS, RunsTile, RunsWeightsTile

_FOLDER = Path(__file__).parent
_PACK_THREADS = 256
_AnyTile = RunsTile | RunsWeightsTile | BackTile


def runs_draft(t: RunsTile) -> Draft:
    """``prepare`` packs the filter, ``run`` is one launch."""
    g, v = t.form.g, t.value
    arguments = _arguments(t)
    numbers = {
        **_numbers(t), "TILE_H": v["tile_h"], "ROWS": v["rows"], "PARTS": v["parts"], "WARPS_K": v["warps_k"],
        "STAGES": v["stages"], "STAGE_BYTES": t.stage_bytes, "STAGED_PITCH": t.staged_pitch,
        "SHARED_BYTES": t.shared_bytes, "QUADS": t.quads, "OUT_VECTOR": t.out_vector,
    }  # fmt: skip
    flags = {"BIAS": g.epilogue.bias, "RESIDUAL": g.epilogue.residual, "BULK": t.bulk}
    if t.bulk:
        numbers |= {"PART_K": t.part_k, "FILTER_PARTS": FILTER_PARTS}
    types = {"Element": TYPES[g.x.dtype], "Out": TYPES[g.y.dtype]}
    functions = mma_bulk_text() + mma_wait_text() + mma_arrive_text() + activate(g.epilogue, "TS_MMA_DEVICE", g.y.dtype)
    tile = "x".join(str(value) for _, value in t.config.values)
    header = Header(numbers, flags, types, functions=functions, arguments=arguments)
    kernel = _unit("runsfwd", t, tile, ("rows", "forward", "bulk" if t.bulk else "kernel"), header)
    words = t.packed_quads * 4
    packing = (
        Argument("packed", "u32 *", Pointer(Space.PACKED)), Argument("filter", "const Element *", slot(1)),
        *integers("int", words=words, **_steps(g.w, "k")),
    )  # fmt: skip
    sizes = {name: value for name, value in numbers.items() if name in _OF_FILTER}
    header = Header(sizes, {}, {"Element": TYPES[g.x.dtype]}, arguments=packing)
    pack = _unit("runspack", t, f"n{v['block_n']}", ("pack",), header)
    run = Launch(
        0, kernel.symbol, (t.blocks, 1, 1), passed(arguments), (32 * t.warps, 1, 1), shared_bytes=t.shared_bytes,
        programmatic=t.target.has_cluster,
    )  # fmt: skip
    blocks = -(-words // _PACK_THREADS)
    prepare = Launch(1, pack.symbol, (blocks, 1, 1), passed(packing), (_PACK_THREADS, 1, 1))
    return Draft((kernel, pack), (run,), (prepare,), packed_bytes=words * 4)


_OF_FILTER = ("LEAD", "RUN", "COLS", "BLOCK_N", "QUADS", "FILTER_D", "FILTER_H", "STRIDE_H")


def weights_draft(t: RunsWeightsTile) -> Draft:
    """The kernel, and after it the sum of its slices."""
    form, g, v = t.form, t.form.g, t.value
    numbers = {
        **_numbers(t), "WARPS_A": v["warps_a"], "WARPS_E": v["warps_e"], "STAGES": v["stages"],
        "STAGE_BYTES": t.stage_bytes, "SHARED_BYTES": t.shared_bytes, "DY_BYTES": t.dy_bytes,
    }  # fmt: skip
    partial, turned = Pointer(Space.WORKSPACE), Pointer(Space.WORKSPACE, 0, t.partial_bytes)
    early = t.target.has_cluster
    reading = (
        Argument("dy", "const Element *", slot(0)), Argument("to", "u32 *", turned),
        *integers("int", words=t.dy_words, out_w=g.output[2]), *integers("i64", **_steps(g.y, "n")),
        *divisors(blocks_n=t.blocks_n, tiles_w=t.tiles_w, out_h=g.output[1], out_d=g.output[0]),
    )  # fmt: skip
    arguments = (
        Argument("dy", "const uint4 *", turned), Argument("x", "const Element *", slot(1)),
        Argument("partial", "float *", partial),
        *integers("int", items=t.items, groups=t.groups, slices=t.slices, **_sizes(t)),
        *integers("i64", **_steps(g.x, "n")), *divisors(bands=t.bands, tiles_w=t.tiles_w, out_d=g.output[0]),
    )  # fmt: skip
    tile, element = "x".join(str(value) for _, value in t.config.values), TYPES[g.x.dtype]
    functions, flags = mma_bulk_text() + mma_wait_text() + mma_arrive_text(), {"RAGGED": t.ragged, "BULK": t.bulk}
    header = Header(numbers, flags, {"Element": element}, functions=functions, arguments=arguments)
    source = _unit("runswrw", t, tile, ("rows", "weights"), header)
    launch = Launch(
        0, source.symbol, (t.slices * t.groups, 1, 1), passed(arguments), (32 * t.warps, 1, 1),
        shared_bytes=t.shared_bytes, programmatic=early,
    )  # fmt: skip
    sizes = {"TILE_W": v["tile_w"], "BLOCK_N": v["block_n"], "COLS": g.k}
    turn = _unit("runsdy", t, f"w{v['tile_w']}n{v['block_n']}", ("results",),
                 Header(sizes, {}, {"Element": element}, arguments=reading))  # fmt: skip
    blocks = -(-t.dy_words // _PACK_THREADS)
    first = Launch(1, turn.symbol, (blocks, 1, 1), passed(reading), (_PACK_THREADS, 1, 1), programmatic=early)
    adding = (
        Argument("partial", "const float *", partial), Argument("out", "Out *", slot(2)),
        *integers("int", blocks_n=t.blocks_n, slices=t.slices), *integers("i64", **_steps(g.w, "k")),
    )  # fmt: skip
    header = Header(
        {**numbers, "TAPS": form.taps, "K_STEPS": form.k_steps, "PHASES": form.phases, "STEPS": form.steps}, {},
        {"Out": TYPES[g.w.dtype]}, arguments=adding,
    )  # fmt: skip
    total = _unit("runstotal", t, tile, ("total",), header)
    blocks = t.groups * t.warps * t.sums // 4
    second = Launch(2, total.symbol, (blocks, 1, 1), passed(adding), (32, 8, 1), programmatic=early)
    return Draft((source, turn, total), (first, launch, second), workspace_bytes=t.workspace_bytes)


def _unit(op: str, t: _AnyTile, tile: str, parts: tuple[str, ...], header: Header) -> Source:
    text = scoped(*(template(_FOLDER, part) for part in parts))
    text = f"namespace ts_mma {{\n{text}}} // namespace ts_mma\n"
    return unit(op, t.form.g.x.dtype, tile, t.target.arch, mma_prelude(), text, header)


def _numbers(t: RunsTile | RunsWeightsTile) -> dict[str, int]:
    """Constants of all texts."""
    form, g, v = t.form, t.form.g, t.value
    return {
        "WARPS": t.warps, "TILE_W": v["tile_w"], "BLOCK_N": v["block_n"], "MIN_BLOCKS": v["blocks_per_sm"],
        "STEP": form.step, "PAD": form.pad, "LEAD": form.lead, "RUN": form.run, "COPY": form.copy, "CHUNKS": t.chunks,
        "ROW_BYTES": t.row_bytes, "COLS": g.k, "FILTER_D": g.filter[0], "FILTER_H": g.filter[1],
        "STRIDE_D": g.stride[0], "STRIDE_H": g.stride[1], "DILATION_D": g.dilation[0],
    }  # fmt: skip


def _sizes(t: RunsTile | RunsWeightsTile) -> dict[str, int]:
    g: ConvGeometry = t.form.g
    form: RunsForm = t.form
    return {
        "row": form.row, "in_d": g.input[0], "in_h": g.input[1], "out_h": g.output[1], "out_w": g.output[2],
        "pad_d": g.padding[0], "pad_h": g.padding[1], "blocks_n": t.blocks_n,
    }  # fmt: skip


def _arguments(t: RunsTile) -> tuple[Argument, ...]:
    g, e = t.form.g, t.form.g.epilogue
    out = slot(2 + e.bias + e.residual)  # stands for what is not read
    return (
        Argument("x", "const Element *", slot(0)), Argument("packed", "const uint4 *", Pointer(Space.PACKED)),
        Argument("out", "Out *", out), Argument("bias", "const Out *", slot(2) if e.bias else out),
        Argument("residual", "const Out *", slot(2 + e.bias) if e.residual else out),
        *integers("int", tiles=t.tiles, **_sizes(t)), *integers("i64", **_steps(g.x, "n"), **_steps(g.y, "n")),
        *divisors(tiles_h=t.tiles_h, tiles_w=t.tiles_w, out_d=g.output[0]),
    )  # fmt: skip


def _steps(view: TensorView, first: str) -> dict[str, int]:
    """Strides by axis; axes of one element have none."""
    axes = zip((first, *"cdhw"), view.strides, view.shape, strict=True)
    return {f"{view.name}_{axis}": step if size > 1 else 0 for axis, step, size in axes}


def back_draft(t: BackTile) -> Draft:
    """``prepare`` packs the filter, ``run`` is one launch."""
    form, g, v = t.form, t.form.g, t.value
    e = g.epilogue
    numbers = {
        "STEP": form.step, "PAD": form.pad, "RUN": form.run, "CHANNELS": g.k, "COLS": g.c, "FILTER_D": g.filter[0],
        "FILTER_H": g.filter[1], "STRIDE_D": g.stride[0], "STRIDE_H": g.stride[1],
        **{f"TAPS_{axis}": value for axis, value in zip("DHW", form.taps, strict=True)},
    }  # fmt: skip
    words, element = t.packed_words, TYPES[g.y.dtype]
    filters = (Argument("filter", "const Element *", slot(1)), *integers("i64", **_steps(g.w, "k")))
    packing = (Argument("packed", "u32 *", Pointer(Space.PACKED)), *filters, *integers("int", words=words))
    pack = _unit(
        "runsbackpack", t, f"p{form.step}", ("back_pack",), Header(numbers, {}, {"Element": element}, arguments=packing)
    )
    out = slot(2 + e.bias + e.residual)  # stands for what is not read
    triples = {"first": form.first, "pad": g.padding, "size": g.output, "in": g.input}
    sizes = {f"{name}_{axis}": n for name, values in triples.items() for axis, n in zip("dhw", values, strict=True)}
    arguments = (
        Argument("dy", "const Element *", slot(0)), Argument("packed", "const uint4 *", Pointer(Space.PACKED)),
        Argument("out", "Out *", out), Argument("bias", "const Out *", slot(2) if e.bias else out),
        Argument("residual", "const Out *", slot(2 + e.bias) if e.residual else out), *filters,
        *integers("int", row=form.row, groups=t.groups, tiles=t.tiles, tiles_h=t.tiles_h, tiles_w=t.tiles_w,
                  base_d=form.base[0], **sizes),
        *integers("i64", **_steps(g.x, "n"), **_steps(g.y, "n")),
    )  # fmt: skip
    numbers |= {
        "TILE_H": t.tile_h, "TILE_W": t.tile_w, "PHASE_ROWS": v["phase_rows"], "WARPS_M": v["warps_m"],
        "WARPS_N": v["warps_n"], "MIN_BLOCKS": v["blocks_per_sm"], "IN_VECTOR": form.in_vector,
        "OUT_VECTOR": form.out_vector, "SHIFT": t.shift, "PIXEL_BYTES": t.pixel_bytes,
        "WINDOW_BYTES": t.window_bytes, "STAGED_ROW": t.staged_row, "SHARED_BYTES": t.shared_bytes,
    }  # fmt: skip
    types = {"Element": element, "Out": TYPES[g.x.dtype], "Staged": "float" if e.residual else TYPES[g.x.dtype]}
    flags = {"BIAS": e.bias, "RESIDUAL": e.residual}
    header = Header(numbers, flags, types, functions=activate(e, "TS_MMA_DEVICE", g.x.dtype), arguments=arguments)
    kernel = _unit("runsbwd", t, "x".join(str(value) for _, value in t.config.values), ("back",), header)
    run = Launch(
        0, kernel.symbol, (t.blocks, 1, 1), passed(arguments), (32 * t.warps, 1, 1), shared_bytes=t.shared_bytes,
        programmatic=t.target.has_cluster,
    )  # fmt: skip
    blocks = -(-words // _PACK_THREADS)
    prepare = Launch(1, pack.symbol, (blocks, 1, 1), passed(packing), (_PACK_THREADS, 1, 1))
    return Draft((kernel, pack), (run,), (prepare,), packed_bytes=words * 4)
