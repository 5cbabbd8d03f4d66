"""The text of depthwise convolution on tensor cores: constants, arguments, launches."""

from __future__ import annotations

from math import prod
from pathlib import Path

from tilesmith.codegen.cuda.activation import activate
from tilesmith.codegen.cuda.mma import TYPES, divisors, mma_prelude
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, resolved, scoped, template, unit
from tilesmith.plan.records import Draft, Launch, Pointer, Source, Space
from tilesmith.solvers.cuda.common.depthwise_sum import depthwise_sum
from tilesmith.solvers.cuda.common.steps import filter_steps, tensor_steps
from tilesmith.solvers.cuda.depthwise_mma.tile import DepthwiseMmaTile

_FOLDER = Path(__file__).parent
_INFINITE = {"bf16": 0x7F80, "fp16": 0x7C00}  # the exponent of what is not finite


def depthwise_mma_draft(t: DepthwiseMmaTile) -> Draft:
    """One kernel; for backward weights a second one, which adds up the blocks."""
    g, e, early = t.g, t.g.epilogue, t.target.has_cluster
    slots = [Pointer(Space.SLOT, i) for i in range(3 + e.bias + e.residual)]
    sizes = (
        *integers("int", channels=g.c, unit_count=t.all_units, strip_rows=t.strip_rows, in_d=t.source.shape[2]),
        *divisors(channel_blocks=t.channel_blocks, column_blocks=t.column_blocks, out_d=t.image[0]),
        *integers("int", in_h=t.source.shape[3], in_w=t.source.shape[4], out_h=t.image[1]),
        *integers("int", out_w=t.image[2]), *tensor_steps("in", t.source), *tensor_steps("out", t.result),
    )  # fmt: skip
    if t.weights:
        return _weights(t, slots, sizes)
    arguments = (
        Argument("x", "const Element *", slots[0]), Argument("w", "const Element *", slots[1]),
        Argument("bias", "const Out *", slots[2] if e.bias else None),
        Argument("residual", "const Out *", slots[2 + e.bias] if e.residual else None),
        Argument("out", "Out *", slots[-1]), *sizes, *filter_steps(g.w),
    )  # fmt: skip
    source = _source(t, "rows", g.direction, t.result.dtype, arguments)
    launch = Launch(0, source.symbol, (t.teams * t.channel_blocks, t.strips, 1), passed(arguments), (t.threads, 1, 1),
                    shared_bytes=t.shared_bytes, programmatic=early)  # fmt: skip
    return Draft((source,), (launch,))


def _weights(t: DepthwiseMmaTile, slots: list[Pointer], sizes: tuple[Argument, ...]) -> Draft:
    g, early, partial, results = t.g, t.target.has_cluster, Pointer(Space.WORKSPACE), prod(t.g.filter) * t.g.c
    operands = (Argument("dy", "const Element *", slots[0]), Argument("x", "const Element *", slots[1]))
    counts = integers("int", parts=t.parts, results=results)
    arguments = (
        *operands, Argument("partial", "float *", partial), *sizes, *counts,
        *integers("int", items=t.teams * t.strips), *divisors(teams=t.teams),
    )  # fmt: skip
    first = _source(t, "weights", "wrw", t.source.dtype, arguments)
    launch = Launch(0, first.symbol, (t.parts * t.channel_blocks, t.passes, 1), passed(arguments), (t.threads, 1, 1),
                    shared_bytes=t.shared_bytes, programmatic=early)  # fmt: skip
    second, total = depthwise_sum(g, t.parts, "depthwisemma", _tile(t), t.target)
    return Draft((first, second), (launch, total), workspace_bytes=t.partial_bytes)


def _tile(t: DepthwiseMmaTile) -> str:
    return "x".join(str(value) for _, value in t.config.values)


def _source(t: DepthwiseMmaTile, name: str, op: str, out: str, arguments: tuple[Argument, ...]) -> Source:
    g = t.g
    numbers = {
        "KD": g.filter[0], "R": t.filter_rows, "FILTER_ROWS": g.filter[1], "S": g.filter[2], "STEPS": t.steps,
        "THREADS": t.threads, "HALVES": t.halves, "PRODUCTS": t.products, "GROUPS": t.groups,
        "STAGES": t.value["stages"],
        "SHARED_BYTES": t.shared_bytes, "BLOCKS": t.resident, "INFINITE": _INFINITE[t.source.dtype],
    }  # fmt: skip
    for axis, i in (("D", 0), ("H", 1), ("W", 2)):
        numbers |= {f"STRIDE_{axis}": g.stride[i], f"PAD_{axis}": t.padding[i], f"DILATION_{axis}": g.dilation[i]}
    flags = {
        "HELD": t.held, "BACK": t.back, "FLIP": t.back, "BIAS": g.epilogue.bias, "RESIDUAL": g.epilogue.residual,
        "IN_TURNS": t.in_turns, "RELU": g.epilogue.activation == "relu",
    }  # fmt: skip
    types = {"Element": TYPES[t.source.dtype], "Out": TYPES[out]}
    functions = activate(g.epilogue, "TS_MMA_DEVICE", out)
    header = Header(numbers, flags, types, functions=functions, arguments=arguments)
    kernel = template(_FOLDER, name)
    if name == "rows":
        kernel = resolved(kernel, ONCE_IN_TEXT=t.once_in_text)
    text = "namespace ts_mma {\n" + scoped(template(_FOLDER, "stage"), kernel) + "} // namespace ts_mma\n"
    return unit(f"depthwisemma{op}", t.source.dtype, _tile(t), t.target.arch, mma_prelude(), text, header)
