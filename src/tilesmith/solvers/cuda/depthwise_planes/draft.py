"""The text of channels-first depthwise convolution: constants, arguments, launches."""

from __future__ import annotations

from pathlib import Path

from tilesmith.codegen.cuda.activation import LONG, activate
from tilesmith.codegen.cuda.mma import TYPES, mma_prelude
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, scoped, template, unit
from tilesmith.plan.records import Draft, Launch, Pointer, Source, Space
from tilesmith.problems.geometry import TensorView
from tilesmith.solvers.cuda.depthwise_planes.tile import PlanesTile

_FOLDER = Path(__file__).parent
_COMMON = _FOLDER.parent / "common"


def planes_draft(t: PlanesTile) -> Draft:
    """One kernel; for backward weights a second one, if several blocks share a channel."""
    g, e, early, threads = t.g, t.g.epilogue, t.target.has_cluster, t.value["threads"]
    slots = [Pointer(Space.SLOT, i) for i in range(3 + e.bias + e.residual)]
    vector = t.value["columns_per_thread"]
    sizes = (
        *integers("int", channels=g.c, images=g.n, tiles_h=t.tiles_h, in_h=t.source.shape[3], out_h=t.image[0]),
        *integers("int", in_vectors=t.source.shape[4] // vector, out_vectors=t.image[1] // vector, parts=t.parts),
        *_steps("in", t.source), *_steps("out", t.result),
        *integers("i64", w_channel=g.w.strides[0], w_row=g.w.strides[3], w_column=g.w.strides[4]),
    )  # fmt: skip
    if not t.weights:
        arguments = (
            Argument("x", "const Element *", slots[0]), Argument("w", "const Element *", slots[1]),
            Argument("bias", "const Out *", slots[2] if e.bias else None),
            Argument("residual", "const Out *", slots[2 + e.bias] if e.residual else None),
            Argument("out", "Out *", slots[-1]), *sizes,
        )  # fmt: skip
        source = _source(t, "kernel", g.direction, t.result.dtype, arguments)
        launch = Launch(0, source.symbol, (t.blocks, 1, 1), passed(arguments), (threads, 1, 1), programmatic=early)
        return Draft((source,), (launch,))
    partial, alone = Pointer(Space.WORKSPACE), t.parts == 1
    results = (Argument("partial", "float *", None if alone else partial), Argument("dw", "Out *", slots[2]))
    operands = (Argument("dy", "const Element *", slots[0]), Argument("x", "const Element *", slots[1]))
    arguments, totals = (*operands, *results, *sizes), (*results, *sizes)
    first = _source(t, "weights", "wrw", g.w.dtype, arguments)
    launch = Launch(0, first.symbol, (g.c, t.parts, 1), passed(arguments), (threads, 1, 1), programmatic=early)
    if alone:
        return Draft((first,), (launch,))
    second = _source(t, "sum", "sum", g.w.dtype, totals)
    total = Launch(1, second.symbol, (-(-g.c * t.taps // 256), 1, 1), passed(totals), (256, 1, 1), programmatic=early)
    return Draft((first, second), (launch, total), workspace_bytes=t.parts * t.taps * g.c * 4)


def _steps(name: str, view: TensorView) -> tuple[Argument, ...]:
    n, c, _, h, _ = view.strides
    return integers("i64", **{f"{name}_n": n, f"{name}_channel": c, f"{name}_row": h})


def _source(t: PlanesTile, name: str, op: str, out: str, arguments: tuple[Argument, ...]) -> Source:
    g, v, e = t.g, t.value, t.g.epilogue
    numbers = {
        "R": g.filter[1], "S": g.filter[2], "PAD_H": t.padding[1], "PAD_W": t.padding[2], "DILATION_H": g.dilation[1],
        "DILATION_W": g.dilation[2], "TH": v["rows_per_thread"], "VEC": v["columns_per_thread"],
        "THREADS": v["threads"],
    }  # fmt: skip
    flags = {
        "BACK": t.back, "BIAS": e.bias, "RESIDUAL": e.residual, "ALONE": t.parts == 1,
        "IN_TURNS": e.activation in LONG,
    }  # fmt: skip
    types = {"Element": TYPES[t.source.dtype], "Out": TYPES[out]}
    functions = activate(e, "TS_MMA_DEVICE", out) + template(_COMMON, "halves")
    header = Header(numbers, flags, types, functions=functions, arguments=arguments)
    parts = (template(_FOLDER, "window"), template(_FOLDER, name)) if name != "sum" else (template(_FOLDER, name),)
    text = "namespace ts_mma {\n" + scoped(*parts) + "} // namespace ts_mma\n"
    tile = "x".join(str(value) for _, value in t.config.values)
    return unit(f"depthwiseplanes{op}", t.source.dtype, tile, t.target.arch, mma_prelude(), text, header)
