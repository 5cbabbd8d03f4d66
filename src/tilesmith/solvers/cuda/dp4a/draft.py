"""The texts and launches of the dp4a kernel: the filter's packing, once, and the convolution."""

from __future__ import annotations

from pathlib import Path

from tilesmith.codegen.cuda.activation import activate
from tilesmith.codegen.cuda.mma import mma_prelude
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, template, unit
from tilesmith.plan.records import Draft, Launch, Pointer, Source, Space
from tilesmith.plan.slots import slot_names
from tilesmith.solvers.cuda.dp4a.tile import Dp4aTile

_HERE = Path(__file__).parent
_TYPES = {"int8": "signed char", "int32": "int"}
_PACK_THREADS = 256


def dp4a_draft(t: Dp4aTile) -> Draft:
    """``prepare`` packs the filter, ``run`` is one launch."""
    arguments, packing = _arguments(t), _pack_arguments(t)
    kernel = _source(t, "kernel", "dp4adepthwise", arguments)
    pack = _source(t, "pack", "dp4apack", packing)
    words = t.packed_bytes // 4
    run = Launch(
        0, kernel.symbol, (t.blocks, 1, 1), passed(arguments), (t.value["threads"], 1, 1),
        programmatic=t.target.has_cluster,
    )  # fmt: skip
    prepare = Launch(
        1, pack.symbol, (-(-words // _PACK_THREADS), 1, 1), passed(packing), (_PACK_THREADS, 1, 1)
    )  # fmt: skip
    return Draft((kernel, pack), (run,), (prepare,), packed_bytes=t.packed_bytes)


def _source(t: Dp4aTile, name: str, op: str, arguments: tuple[Argument, ...]) -> Source:
    g, v = t.g, t.value
    tile = "x".join(str(value) for value in v.values()) if name == "kernel" else f"{g.filter[1]}x{g.filter[2]}"
    header = Header(
        numbers={"R": g.filter[1], "S": g.filter[2], "FOURS": t.fours},
        arguments=arguments,
    )
    if name == "kernel":
        header = Header(
            numbers={
                **header.numbers, "STRIDE_H": g.stride[1], "STRIDE_W": g.stride[2], "DILATION_H": g.dilation[1],
                "DILATION_W": g.dilation[2], "CHANNELS": v["channels_per_thread"], "ROWS": v["rows_per_thread"],
                "COLUMNS": v["columns_per_thread"], "THREADS": v["threads"], "PIXELS": t.pixels, "IN_ROWS": t.rows,
                "WORDS": t.words,
            },
            flags={
                "SCALED": g.epilogue.is_scaled, "BY_CHANNEL": g.epilogue.scale == "channel", "BIAS": g.epilogue.bias,
            },
            types={"Out": _TYPES[g.y.dtype]},
            functions=activate(g.epilogue, "TS_MMA_DEVICE", g.y.dtype),
            arguments=arguments,
        )  # fmt: skip
    return unit(op, g.y.dtype, tile, t.target.arch, mma_prelude(), template(_HERE, name), header)


def _arguments(t: Dp4aTile) -> tuple[Argument, ...]:
    g = t.g
    slots = {name: Pointer(Space.SLOT, index) for index, name in enumerate(slot_names(g))}
    out = slots["y"]  # stands for what is not read
    pointers = (
        Argument("x", "const signed char *", slots["x"]), Argument("y", f"{_TYPES[g.y.dtype]} *", out),
        Argument("packed", "const uint4 *", Pointer(Space.PACKED)),
        Argument("bias", "const float *", slots.get("b", out)), Argument("scale", "const float *", slots.get("s", out)),
    )  # fmt: skip
    _, h, w = g.input
    _, out_h, out_w = g.output
    return pointers + integers(
        "int", threads=t.threads, channels=g.c, tiles_h=t.tiles[0], tiles_w=t.tiles[1], in_h=h, in_w=w, out_h=out_h,
        out_w=out_w, pad_h=g.padding[1], pad_w=g.padding[2], x_n=g.x.strides[0], x_h=g.x.strides[3],
        x_w=g.x.strides[4], y_n=g.y.strides[0], y_h=g.y.strides[3], y_w=g.y.strides[4],
    )  # fmt: skip


def _pack_arguments(t: Dp4aTile) -> tuple[Argument, ...]:
    w = t.g.w
    pointers = (
        Argument("w", "const signed char *", Pointer(Space.SLOT, 1)),
        Argument("packed", "unsigned *", Pointer(Space.PACKED)),
    )
    return pointers + integers("int", channels=t.g.c, w_k=w.strides[0], w_r=w.strides[3], w_s=w.strides[4])
