"""The texts and launches of the channel sums: shares of the items, and the sums of the shares."""

from __future__ import annotations

from pathlib import Path

from tilesmith.codegen.cuda.mma import TYPES, divisor, mma_prelude
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, template, unit
from tilesmith.plan.records import Draft, Integer, Launch, Pointer, Source, Space
from tilesmith.solvers.cuda.channel_sums.tile import SumsTile

_HERE = Path(__file__).parent


def sums_draft(t: SumsTile) -> Draft:
    """One launch, and a second one where blocks share the items of a channel."""
    f = t.form
    dy = Argument("dy", "const Element *", Pointer(Space.SLOT, 0))
    db = Argument("db", "Element *", Pointer(Space.SLOT, 1))
    # Each kernel takes what it stores to.
    out = (db, Argument("partial", "float *", None))
    if not t.is_whole:
        out = (Argument("db", "Element *", None), Argument("partial", "float *", Pointer(Space.WORKSPACE)))
    arguments = (dy, *out, *_places(t))
    # NOTE: left to itself (0), ptxas 13.0 spills a register or two of the kernels with edges, to fit more blocks.
    numbers = {"LANES": t.lanes, "SLOTS": t.slots, "VECTOR": f.vector, "LOADS": t.value["loads_ahead"],
               "AXES": len(f.axes), "BLOCKS": 1 if f.row else 0}  # fmt: skip
    flags = {"COLUMNS": f.columns > 0, "EDGES": f.row > 0, "WHOLE": t.is_whole}
    first = _source(t, "kernel", "channelsums", Header(numbers, flags, _types(t), arguments=arguments))
    run = Launch(0, first.symbol, (t.blocks_wide, t.splits, 1), passed(arguments), (t.threads, 1, 1),
                 programmatic=t.target.has_cluster)  # fmt: skip
    if t.is_whole:
        return Draft((first,), (run,))
    taken = (
        dy, db, Argument("partial", "const float *", Pointer(Space.WORKSPACE)),
        *integers("int", channels=f.channels, parts=t.parts, left=f.left), *integers("i64", left_from=f.left_from),
    )  # fmt: skip
    numbers = {"LANES": t.last_lanes, "SHARES": t.last_shares}
    second = _source(t, "total", "channeltotal", Header(numbers, types=_types(t), arguments=taken))
    total = Launch(1, second.symbol, (-(-f.channels // t.last_lanes), 1, 1), passed(taken),
                   (t.last_lanes * t.last_shares, 1, 1), programmatic=t.target.has_cluster)  # fmt: skip
    return Draft((first, second), (run, total), workspace_bytes=t.workspace_bytes)


def _types(t: SumsTile) -> dict[str, str]:
    return {"Element": TYPES[t.form.dtype]}


def _places(t: SumsTile) -> tuple[Argument, ...]:
    """Sizes and strides of the axes; the outermost one has no size."""
    f = t.form
    found = list(
        integers("int", chunks=f.chunks, columns=f.sums, items=f.items, each=t.each)
        + integers("i64", channel_step=f.channel_step, row=f.row, last=f.last)
    )
    for i in range(4):
        size, stride = f.axes[i] if i < len(f.axes) else (1, 0)
        multiplier, shift = divisor(size)
        here, divides = i < len(f.axes), i + 1 < len(f.axes)
        for name, kind, value, used in (
            ("step", "i64", stride, here), ("size", "int", size, divides),
            ("multiplier", "u32", multiplier, divides), ("shift", "u32", shift, divides),
        ):  # fmt: skip
            found.append(Argument(f"{name}_{i}", kind, Integer(value) if used else None))
    return tuple(found)


def _source(t: SumsTile, name: str, op: str, header: Header) -> Source:
    tile = "x".join(map(str, header.numbers.values()))
    return unit(op, t.form.dtype, tile, t.target.arch, mma_prelude(), template(_HERE, name), header)
