"""The text of the portable kernel, and of the sum of its parts: constants, arguments, launches."""

from __future__ import annotations

import math
from pathlib import Path

from tilesmith.codegen.cuda.activation import LONG, activate
from tilesmith.codegen.cuda.mma import TYPES, divisors, mma_prelude
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, resolved, template, unit
from tilesmith.plan.records import Draft, Launch, Pointer, Real, Source, Space
from tilesmith.problems.epilogue import IDENTITY
from tilesmith.solvers.cuda.common.dense import BYTES
from tilesmith.solvers.cuda.mma.tile import MmaTile

_FOLDER = Path(__file__).parent
_COMMON = _FOLDER.parent / "common"
_AXES = ("d", "h", "w")
_SUM_THREADS = 256


def mma_draft(t: MmaTile) -> Draft:
    """The kernel, and after it the sum of its parts when k is split."""
    arguments = _arguments(t)
    values, early = passed(arguments), t.target.has_cluster
    tile = "x".join(str(v) for n, v in t.config.values if n not in ("split_k", "group_m"))
    source = _source(t, "kernel", ("ffma" if t.exact else "mma") + t.form.kind, tile, arguments)
    launch = Launch(0, source.symbol, (t.grid, 1, 1), values, (t.threads, 1, 1), shared_bytes=t.shared_bytes,
                    programmatic=early)  # fmt: skip
    if t.split == 1:
        return Draft((source,), (launch,))
    total = _source(t, "sum", ("ffma" if t.exact else "mma") + t.form.kind + "sum", "s1", arguments)
    blocks = -(-t.form.layers * t.form.rows * t.pitch // 4 // _SUM_THREADS)
    step = Launch(1, total.symbol, (blocks, 1, 1), values, (_SUM_THREADS, 1, 1), programmatic=early)
    return Draft((source, total), (launch, step), workspace_bytes=t.partial_bytes)


def _source(t: MmaTile, name: str, op: str, tile: str, arguments: tuple[Argument, ...]) -> Source:
    form = t.form
    # Kernels of bytes are the longest ones. NOTE: two vectors of long results beside each other are 1 kB more.
    in_turns = form.dtype in BYTES and form.epilogue.activation in LONG
    numbers = {"GEMM": 0, "FWD": 1, "BWD": 2, "WRW": 3}
    numbers |= {"KIND": numbers[form.kind.upper()], "OUT_VECTOR": form.out_vector, "THREADS": _SUM_THREADS}
    flags = {
        "WHOLE": form.whole, "DEEP": form.deep, "BIAS": form.bias is not None, "RESIDUAL": form.residual is not None,
        "SCALED": form.alpha != 1.0, "BETA": form.beta != 0.0,
    }  # fmt: skip
    functions = [_activation(t), template(_COMMON, "kept"), template(_FOLDER, "results")]
    if name == "kernel":
        numbers |= {
            "BLOCK_M": t.block_m, "BLOCK_N": t.block_n, "BLOCK_K": t.block_k, "WARPS_M": t.value["warps_m"],
            "WARPS_N": t.value["warps_n"], "WARP_M": t.warp_m, "WARP_N": t.warp_n, "THREADS": t.threads,
            "STAGES": t.value["stages"], "STAGE_BYTES": t.stage_bytes, "TABLE_OFFSET": t.table_offset,
            "MIN_BLOCKS": t.min_blocks, "A_VECTOR": form.a.vector, "B_VECTOR": form.b.vector,
        }  # fmt: skip
        flags |= {
            "A_BY_K": form.a.by_k, "B_BY_K": form.b.by_k, "COMPARE": t.compares, "INSIDE": form.inside,
            "LINEAR": form.linear, "PARTIAL": t.split > 1, "EXACT": t.exact, "WIDENED": t.widened,
        }  # fmt: skip
        if t.exact:
            flags["FUSED"] = form.beta != 0.0 or form.epilogue != IDENTITY
    dtypes = {"Element": form.dtype, "ElementB": form.b_dtype, "Out": form.out_dtype}
    # A sum, and a value of the epilogue.
    sums = {"Sum": "int", "Value": "i64"} if form.whole else {"Sum": "float", "Value": "float"}
    header = Header(numbers, flags, {n: TYPES[dtype] for n, dtype in dtypes.items()} | sums,
                    functions="\n".join(functions), arguments=arguments)  # fmt: skip
    named = "".join(dict.fromkeys(dtypes.values()))
    text = template(_FOLDER, name)
    if name == "kernel":
        own = template(_FOLDER, "exact") if t.exact else resolved(template(_FOLDER, "tensor"), IN_TURNS=in_turns)
        text += own
    return unit(op, named, tile, t.target.arch, mma_prelude(), text, header)


def _activation(t: MmaTile) -> str:
    """The function ``activate`` of one value; integers pass through doubles, which hold them."""
    e = t.form.epilogue
    if not t.form.whole:
        return activate(e, "TS_MMA_DEVICE", t.form.out_dtype)
    low, high = (
        f"{'-' if v < 0 else ''}__longlong_as_double(0x7ff0000000000000)" if math.isinf(v) else v.hex()
        for v in (e.low, e.high)
    )
    body = {"none": "v", "relu": "v < 0 ? 0 : v", "clamp": f"(i64)(v < {low} ? {low} : v > {high} ? {high} : v)"}
    return f"TS_MMA_DEVICE i64 activate(i64 v) {{ return {body[e.activation]}; }}\n"


def _arguments(t: MmaTile) -> tuple[Argument, ...]:
    """Everything that the kernels take."""
    form, out = t.form, t.form.out.pointer
    window = form.b if form.kind == "wrw" else form.a
    steps = {
        f"{name}_{axis}": value
        for name, along in (("in", window.pixel), ("dy", form.a.pixel), ("out", form.out.pixel))
        for axis, value in zip("ndhw", along, strict=True)
    }
    triples = {
        f"{name}_{axis}": value
        for name, along in (
            ("filter_step", form.b.tap), ("out_tap", form.out.tap), ("filter", form.filter), ("pad", form.padding),
            ("dilation", form.dilation), ("size", form.size), ("out_size", form.out_size),
        )
        for axis, value in zip(_AXES, along, strict=True)
    }  # fmt: skip
    named = {
        "padded": form.padded, "tiles": t.tiles_m * t.tiles_n, "layers": form.layers, "groups": form.groups,
        "walk_n": t.value["group_m"] * t.tiles_n, "parts": t.split,
        **{
            f"{name}_{axis}": value
            for name, along in (("base", form.base), ("phase", form.phases), ("stride", form.stride))
            for axis, value in zip(_AXES, along, strict=True)
        },
    }  # fmt: skip
    return (
        Argument("a_base", "const Element *", form.a.pointer), Argument("b_base", "const ElementB *", form.b.pointer),
        Argument("out_base", "Out *", out), Argument("bias_base", "const Out *", form.bias or out),
        Argument("residual_base", "const Out *", form.residual or out),
        Argument("partial", "Sum *", Pointer(Space.WORKSPACE) if t.split > 1 else out),
        Argument("alpha", "Value", Real(form.alpha)), Argument("beta", "Value", Real(form.beta)),
        *integers("i64", a_group=form.a.group, b_group=form.b.group, out_group=form.out.group),
        *integers(
            "int", rows=form.rows, cols=form.cols, rows_of_tiles=t.tiles_m, walk=t.value["group_m"],
            channels=form.channels, pitch=t.pitch,
            length=form.pixels if form.kind == "wrw" else form.channels, taps_most=form.taps,
            a_line=form.a.line, a_channel=form.a.channel, b_line=form.b.line, b_channel=form.b.channel,
            out_line=form.out.line, out_channel=form.out.channel,
            bias_group=form.cols if form.kind != "gemm" else 0, **steps, **triples,
        ),
        *divisors(**named),
    )  # fmt: skip
