"""The texts and launches of the phases kernel: the filter's packing, once, and the convolution."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path

from tilesmith.codegen.cuda.activation import activate
from tilesmith.codegen.cuda.hopper import mma_bulk_text, mma_wait_text, product_text
from tilesmith.codegen.cuda.mma import TYPES, divisors, mma_prelude
from tilesmith.codegen.cuda.pad_rows import Rows, pad_rows
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, scoped, template, unit
from tilesmith.plan.records import Draft, Launch, Pointer, Source, Space
from tilesmith.solvers.cuda.common.dense import slot
from tilesmith.solvers.cuda.phases.tile import PhasesTile

_FOLDER = Path(__file__).parent
_PACK_THREADS = 256


def phases_draft(t: PhasesTile) -> Draft:
    """``prepare`` packs the filter, ``run`` is one launch, and ahead of it a copy of the input where that is padded."""
    arguments, packing = _arguments(t), _pack_arguments(t)
    kernel, pack = _source(t, "kernel", arguments), _source(t, "pack", packing)
    run = Launch(
        0, kernel.symbol, (t.grid, 1, 1), passed(arguments), (t.threads, 1, 1), shared_bytes=t.shared_bytes,
        programmatic=t.target.has_cluster,
    )  # fmt: skip
    blocks = -(-t.packed_elements // _PACK_THREADS)
    prepare = Launch(1, pack.symbol, (blocks, 1, 1), passed(packing), (_PACK_THREADS, 1, 1))
    made = Draft((kernel, pack), (run,), (prepare,), packed_bytes=t.packed_elements * 2)
    if not t.padded:
        return made
    form = t.form
    rows = Rows(
        slot(0), Pointer(Space.WORKSPACE), 1, form.outer * prod(form.size), form.channels * 2, form.source[3] * 2, 0
    )
    copy, first = pad_rows(rows, None, t.target)
    return replace(
        made, sources=(kernel, pack, copy), run=(replace(first, artifact=2), run),
        workspace_bytes=rows.rows * rows.pitch,
    )  # fmt: skip


def _source(t: PhasesTile, name: str, arguments: tuple[Argument, ...]) -> Source:
    form, v = t.form, t.value
    numbers = {"BLOCK_C": t.block_c, "CHUNKS": t.chunks, "CHANNELS": form.channels, "COLS": form.cols}
    numbers |= {"BLOCK_N": t.block_n, "PHASE_ROWS": v["phase_rows"]}
    for given, values in (("TAPS", form.taps), ("FILTER", form.filter), ("STRIDE", form.stride), ("TILE", t.box)):
        numbers |= {f"{given}_{axis}": value for axis, value in zip("DHW", values, strict=True)}
    flags = {"TAPS_ON_N": t.taps_on_n, "ROWS_ON_N": t.rows_on_n, "TURNED": form.turned, "WGMMA": t.wgmma}
    types, functions = {"Element": TYPES[form.dtype]}, ""
    parts: tuple[str, ...] = ("sizes", "pack")
    if name == "kernel":
        numbers |= {
            "BLOCKS_N": t.blocks_n, "WARPS_M": v["warps_m"], "WARPS_N": v["warps_n"], "STAGES": v["stages"],
            "MIN_BLOCKS": v["blocks_per_sm"], "OUT_VECTOR": t.out_vector,
            "IN_VECTOR": 8 if t.padded else form.in_vector,
            "STAGED_PITCH": t.staged_pitch, "SHARED_BYTES": t.shared_bytes, "WINDOW_BYTES": t.window_bytes,
            "FILTER_BYTES": t.filter_bytes, "SKEW": t.skew if t.bulk else 0,
        }  # fmt: skip
        flags |= {
            "RESIDENT": t.resident, "DENSE_ROWS": form.dense_rows,
            "BIAS": form.epilogue.bias, "RESIDUAL": form.epilogue.residual, "BULK": t.bulk,
            "BULK_IN": t.bulk_in, "ROWS_AS_THEY_LIE": t.rows_as_they_lie,
        }  # fmt: skip
        types |= {"Out": TYPES[form.out_dtype], "Staged": "float" if t.staged_size == 4 else TYPES[form.out_dtype]}
        functions = activate(form.epilogue, "TS_MMA_DEVICE", form.out_dtype) + mma_bulk_text() + mma_wait_text()
        functions += _product(t) if t.wgmma else _used(t)
        parts = ("sizes", "window", "wgmma" if t.wgmma else "warps", "kernel")
    header = Header(numbers, flags, types, functions=functions, arguments=arguments)
    tile = "x".join(str(value) for _, value in t.config.values)
    text = f"namespace ts_mma {{\n{scoped(*(template(_FOLDER, part) for part in parts))}}} // namespace ts_mma\n"
    return unit(f"phases{name}", form.dtype, tile, t.target.arch, mma_prelude(), text, header)


def _product(t: PhasesTile) -> str:
    """``product`` of a warpgroup, in the words of this prelude."""
    text = product_text("product", t.products[1] * 8, t.form.dtype, False, False)
    return text.replace("TS_DEVICE", "TS_MMA_DEVICE").replace("ts_u64", "u64")


def _used(t: PhasesTile) -> str:
    """The function of a step's products of 8 columns in which some weight exists, a bit for each."""
    every = (1 << t.products[1]) - 1
    cases = "".join(f"s == {step} ? {mask}u : " for step, mask in enumerate(t.used) if mask != every)
    return f"TS_MMA_CONSTANT u32 used_columns(int s) {{ return {cases}{every}u; }}\n"


def _filter_arguments(t: PhasesTile) -> tuple[Argument, ...]:
    channel, column, d, h, w = t.form.weights
    return (
        Argument("filter", "const Element *", slot(1)),
        *integers("int", filter_channel=channel, filter_column=column, filter_d=d, filter_h=h, filter_w=w),
    )


def _pack_arguments(t: PhasesTile) -> tuple[Argument, ...]:
    packed = Argument("packed", "Element *", Pointer(Space.PACKED))
    return (packed, *_filter_arguments(t), *integers("int", elements=t.packed_elements))


def _arguments(t: PhasesTile) -> tuple[Argument, ...]:
    form, e = t.form, t.form.epilogue
    out = slot(2 + e.bias + e.residual)  # stands for what is not read
    steps = {
        f"{name}_{axis}": step
        for name, view in (("in", t.source_steps), ("out", form.result))
        for axis, step in zip("ndhw", view, strict=True)
    }
    triples = {
        f"{name}_{axis}": value
        for name, values in (
            ("size", form.size), ("out_size", form.out_size), ("pad", form.pad), ("first", form.first),
        )
        for axis, value in zip("dhw", values, strict=True)
    }  # fmt: skip
    tiles = dict(zip(("tiles_d", "tiles_h", "tiles_w"), t.tiles_of, strict=True))
    return (
        Argument("source", "const Element *", Pointer(Space.WORKSPACE) if t.padded else slot(0)),
        Argument("packed", "const uint4 *", Pointer(Space.PACKED)),
        Argument("out", "Out *", out), Argument("bias", "const Out *", slot(2) if e.bias else out),
        Argument("residual", "const Out *", slot(2 + e.bias) if e.residual else out),
        *_filter_arguments(t), *integers("int", tiles=t.tiles, strip_h=t.strip, turns=t.turns, **steps, **triples),
        *divisors(**tiles),
    )  # fmt: skip
