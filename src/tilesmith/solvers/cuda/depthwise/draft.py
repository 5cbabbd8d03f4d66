"""The text of depthwise convolution: constants, arguments, launches."""

from __future__ import annotations

from math import prod
from pathlib import Path

from tilesmith.codegen.cuda.activation import LONG, activate
from tilesmith.codegen.cuda.mma import TYPES, divisors, mma_prelude
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, template, unit
from tilesmith.plan.records import Draft, Launch, Pointer, Source, Space
from tilesmith.solvers.cuda.common.depthwise_sum import depthwise_sum
from tilesmith.solvers.cuda.common.steps import filter_steps, tensor_steps
from tilesmith.solvers.cuda.depthwise.tile import DepthwiseTile

_FOLDER = Path(__file__).parent
_COMMON = _FOLDER.parent / "common"


def depthwise_draft(t: DepthwiseTile) -> Draft:
    """One kernel; for backward weights a second one, which adds up the blocks."""
    g = t.g
    slots = [Pointer(Space.SLOT, i) for i in range(3 + g.epilogue.bias + g.epilogue.residual)]
    partial, out = Pointer(Space.WORKSPACE), slots[-1]
    source, result = (g.x, g.y) if t.weights or not t.back else (g.y, g.x)
    if t.weights:
        pointers = _pointers({"dy": ("const Element", slots[0]), "x": ("const Element", slots[1]),
                              "partial": ("float", partial)})  # fmt: skip
    else:
        pointers = _pointers({
            "x": ("const Element", slots[0]), "w": ("const Element", slots[1]),
            "bias": ("const Out", slots[2]), "residual": ("const Out", slots[2 + g.epilogue.bias]), "out": ("Out", out),
        })  # fmt: skip
    arguments = (
        *pointers,
        *integers("int", channels=g.k, tiles=t.tiles),
        *divisors(tiles_h=t.tiles_h, tiles_w=t.tiles_w, out_d=result.shape[2]),
        *integers("int", in_d=source.shape[2], in_h=source.shape[3], in_w=source.shape[4]),
        *integers("int", out_h=result.shape[3], out_w=result.shape[4]),
        *tensor_steps("in", source), *tensor_steps("out", result),
        *(() if t.weights else filter_steps(g.w)),
    )  # fmt: skip
    first = _source(t, "wrw" if t.weights else "kernel", g.direction, result.dtype, arguments)
    launch = Launch(0, first.symbol, (t.parts, t.channel_blocks, t.row_blocks), passed(arguments),
                    (t.lanes, t.slots, 1), shared_bytes=t.shared_bytes, programmatic=t.target.has_cluster)  # fmt: skip
    if not t.weights:
        return Draft((first,), (launch,))
    second, total = depthwise_sum(g, t.parts, "depthwise", _tile(t), t.target)
    return Draft((first, second), (launch, total), workspace_bytes=t.parts * prod(g.filter) * g.k * 4)


def _tile(t: DepthwiseTile) -> str:
    return "x".join(str(value) for _, value in t.config.values)


def _pointers(named: dict[str, tuple[str, Pointer]]) -> tuple[Argument, ...]:
    return tuple(Argument(name, f"{kind} *", pointer) for name, (kind, pointer) in named.items())


def _source(t: DepthwiseTile, name: str, op: str, out: str, arguments: tuple[Argument, ...]) -> Source:
    g, v = t.g, t.value
    numbers = {
        "KD": g.filter[0], "R": g.filter[1], "S": g.filter[2], "TH": v["rows_per_thread"],
        "TW": v["columns_per_thread"], "VEC": v["channels_per_thread"], "AHEAD": v["rows_ahead"],
        "TAP_ROWS": v["filter_rows"], "SPAN": t.span,
        "MULTIPLIER": t.multiplier, "INPUTS": t.inputs,
        "LANES": t.lanes, "THREADS": t.lanes * t.slots, "BLOCKS": t.resident,
    }  # fmt: skip
    for axis, i in (("D", 0), ("H", 1), ("W", 2)):
        numbers |= {f"STRIDE_{axis}": g.stride[i], f"PAD_{axis}": g.padding[i], f"DILATION_{axis}": g.dilation[i]}
    flags = {
        "DEEP": g.deep, "BACK": t.back, "BIAS": g.epilogue.bias, "RESIDUAL": g.epilogue.residual,
        "IN_SHARED": t.in_shared, "ROLLED": t.rolled, "IN_TURNS": g.epilogue.activation in LONG,
    }  # fmt: skip
    types = {"Element": TYPES[(g.y if t.back else g.x).dtype], "Out": TYPES[out]}
    functions = activate(g.epilogue, "TS_MMA_DEVICE", out) + template(_COMMON, "halves") + template(_FOLDER, "vector")
    header = Header(numbers, flags, types, functions=functions, arguments=arguments)
    text = template(_FOLDER, name)
    return unit(f"depthwise{op}", g.x.dtype, _tile(t), t.target.arch, mma_prelude(), text, header)
