"""The texts and launches of the slices kernel: the filter's packing, once, and the convolution."""

from __future__ import annotations

from pathlib import Path

from tilesmith.codegen.cuda.activation import activate
from tilesmith.codegen.cuda.hopper import product_text
from tilesmith.codegen.cuda.mma import TYPES, divisors, mma_prelude
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, scoped, template, unit
from tilesmith.plan.records import Draft, Launch, Pointer, Source, Space
from tilesmith.solvers.cuda.common.dense import slot
from tilesmith.solvers.cuda.slices.tile import SlicesTile

_FOLDER = Path(__file__).parent
_PACK_THREADS = 256


def slices_draft(t: SlicesTile) -> Draft:
    """``prepare`` packs the filter, ``run`` is one launch."""
    kernel_arguments, pack_arguments = _arguments(t), _pack_arguments(t)
    kernel, pack = _source(t, "kernel", kernel_arguments), _source(t, "pack", pack_arguments)
    run = Launch(
        0, kernel.symbol, (t.grid, 1, 1), passed(kernel_arguments), (t.threads, 1, 1), shared_bytes=t.shared_bytes,
        programmatic=t.target.has_cluster,
    )  # fmt: skip
    blocks = -(-t.filter_bytes // 2 // _PACK_THREADS)
    prepare = Launch(1, pack.symbol, (blocks, 1, 1), passed(pack_arguments), (_PACK_THREADS, 1, 1))
    return Draft((kernel, pack), (run,), (prepare,), packed_bytes=t.filter_bytes)


def _source(t: SlicesTile, name: str, arguments: tuple[Argument, ...]) -> Source:
    form, v = t.form, t.value
    numbers = {"BLOCK_C": t.block_c, "CHANNELS": form.channels, "COLS": form.cols, "LINES": t.lines}
    filter_ = tuple(size - lead for size, lead in zip(form.filter, t.lead, strict=True))
    for given, values in (("TAPS", form.taps), ("FILTER", filter_), ("STRIDE", form.stride), ("LEAD", t.lead)):
        numbers |= {f"{given}_{axis}": value for axis, value in zip("DHW", values, strict=True)}
    flags = {"TURNED": form.turned}
    types, functions = {"Element": TYPES[form.dtype]}, ""
    parts: tuple[str, ...] = ("sizes", "pack")
    if name == "kernel":
        numbers |= {
            "CHUNKS": t.chunks, "UNITS": v["units"], "TILE_W": t.tile_w, "WARPGROUPS": v["warpgroups"],
            "STAGES": v["stages"], "MIN_BLOCKS": v["blocks_per_sm"], "OUT_VECTOR": t.out_vector,
            "IN_VECTOR": form.in_vector, "STAGED_PITCH": t.staged_pitch, "STAGE_BYTES": t.stage_bytes,
            "FILTER_BYTES": t.filter_bytes, "SHARED_BYTES": t.shared_bytes, "MOST_PLACES": t.most_places,
        }  # fmt: skip
        epilogue = form.epilogue
        flags |= {"DENSE_ROWS": form.dense_rows, "BIAS": epilogue.bias, "RESIDUAL": epilogue.residual}
        types |= {"Out": TYPES[form.out_dtype], "Staged": "float" if epilogue.residual else TYPES[form.out_dtype]}
        functions = activate(epilogue, "TS_MMA_DEVICE", form.out_dtype)
        functions += _product(t.block_n, form.dtype)
        parts = ("sizes", "products", "kernel")
    header = Header(numbers, flags, types, functions=functions, arguments=arguments)
    tile = "x".join(str(value) for _, value in t.config.values)
    text = f"namespace ts_mma {{\n{scoped(*(template(_FOLDER, part) for part in parts))}}} // namespace ts_mma\n"
    return unit(f"slices{name}", form.dtype, tile, t.target.arch, mma_prelude(), text, header)


def _product(columns: int, dtype: str) -> str:
    """``product`` of so many columns, in the words of this prelude."""
    text = product_text("product", columns, dtype, False, False, loaded=True)
    return text.replace("TS_DEVICE", "TS_MMA_DEVICE").replace("ts_u", "u")


def _filter_arguments(t: SlicesTile) -> tuple[Argument, ...]:
    names = ("filter_channel", "filter_column", "filter_d", "filter_h", "filter_w")
    steps = dict(zip(names, t.form.weights, strict=True))
    return Argument("filter", "const Element *", slot(1)), *integers("int", **steps)


def _pack_arguments(t: SlicesTile) -> tuple[Argument, ...]:
    packed = Argument("packed", "Element *", Pointer(Space.PACKED))
    return packed, *_filter_arguments(t), *integers("int", elements=t.filter_bytes // 2)


def _arguments(t: SlicesTile) -> tuple[Argument, ...]:
    form, e = t.form, t.form.epilogue
    out = slot(2 + e.bias + e.residual)  # stands for what is not read
    named = {"in": form.source, "out": form.result}
    values = {f"{name}_{axis}": step for name, steps in named.items() for axis, step in zip("ndhw", steps, strict=True)}
    sizes = {"size": form.size, "out_size": form.out_size, "pad": form.pad, "first": form.first}
    values |= {f"{name}_{axis}": n for name, triple in sizes.items() for axis, n in zip("dhw", triple, strict=True)}
    values |= {"tiles": t.tiles, "strip": t.strip, "end_d": form.first[0] + form.base[0]}
    tiles = dict(zip(("tiles_d", "tiles_h", "tiles_w"), t.tiles_of, strict=True))
    return (
        Argument("source", "const Element *", slot(0)), Argument("packed", "const uint4 *", Pointer(Space.PACKED)),
        Argument("out", "Out *", out), Argument("bias", "const Out *", slot(2) if e.bias else out),
        Argument("residual", "const Out *", slot(2 + e.bias) if e.residual else out),
        *_filter_arguments(t), *integers("int", **values), *divisors(**tiles),
    )  # fmt: skip
