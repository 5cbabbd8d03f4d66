"""The text of the exact fp32 kernel, and of the sum of its parts: constants, arguments, launches."""

from __future__ import annotations

from pathlib import Path

from tilesmith.codegen.cuda.activation import activate
from tilesmith.codegen.cuda.hopper import mma_arrive_text, mma_bulk_text, mma_producer_text, mma_wait_text
from tilesmith.codegen.cuda.mma import TYPES, divisors, mma_prelude
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, scoped, template, unit
from tilesmith.plan.records import Draft, Launch, Pointer, Real, Source, Space
from tilesmith.solvers.cuda.ffma.tile import COPY_REGISTERS, SUM_THREADS, FfmaTile

_FOLDER = Path(__file__).parent
_COMMON = _FOLDER.parent / "common"
_IN_SYMBOL = ("block_m", "block_n", "block_k", "warps_m", "warps_n", "warps_k", "stages")


def ffma_draft(t: FfmaTile) -> Draft:
    """The kernel, and after it the sum of its parts where blocks share tiles."""
    arguments = _arguments(t)
    values, early = passed(arguments), t.target.has_cluster
    op = "ffmagemmproducers" if t.producers else "ffmagemm"
    source = _source(t, "kernel", op, "x".join(str(t.value[name]) for name in _IN_SYMBOL), arguments)
    launch = Launch(0, source.symbol, (t.grid, 1, 1), values, (t.threads, 1, 1), shared_bytes=t.shared_bytes,
                    programmatic=early)  # fmt: skip
    if not t.partial:
        return Draft((source,), (launch,))
    total = _source(t, "sum", "ffmagemmsum", f"{t.block_m}x{t.block_n}", arguments)
    step = Launch(1, total.symbol, (t.sum_blocks, 1, 1), values, (SUM_THREADS, 1, 1), programmatic=early)
    return Draft((source, total), (launch, step), workspace_bytes=t.partial_bytes)


def _source(t: FfmaTile, name: str, op: str, tile: str, arguments: tuple[Argument, ...]) -> Source:
    form = t.form
    numbers = {"BLOCK_M": t.block_m, "BLOCK_N": t.block_n, "OUT_VECTOR": form.out_vector, "THREADS": SUM_THREADS}
    flags = {
        "STREAM": t.stream, "BIAS": form.bias is not None, "RESIDUAL": form.residual is not None,
        "SCALED": form.alpha != 1.0, "BETA": form.beta != 0.0, "OUT_DENSE": form.out.channel == 1,
    }  # fmt: skip
    if name == "kernel":
        numbers |= {
            "BLOCK_K": t.block_k, "WARPS_M": t.value["warps_m"], "WARPS_N": t.value["warps_n"],
            "WARPS_K": t.value["warps_k"], "THREADS": t.threads, "STAGES": t.value["stages"],
            "STAGE_BYTES": t.stage_bytes, "MIN_BLOCKS": t.min_blocks, "A_VECTOR": t.vectors[0],
            "B_VECTOR": t.vectors[1], "PRODUCERS": t.value["producers"],
        }  # fmt: skip
        if t.producers:
            numbers |= {
                "BARRIERS_AT": t.barriers_at, "REGISTERS": t.multiplying_registers, "COPY_REGISTERS": COPY_REGISTERS,
            }  # fmt: skip
        flags |= {"A_BY_K": form.a.by_k, "B_BY_K": form.b.by_k, "PARTIAL": t.partial, "FUSED": t.fused}
    functions = activate(form.epilogue, "TS_MMA_DEVICE", form.out_dtype)
    functions += template(_COMMON, "kept") + template(_FOLDER, "results")
    text = template(_FOLDER, name)
    if name == "kernel":
        parts = ("shape", "copies", "producers" if t.producers else "feed", name)
        text = f"namespace ts_mma {{\n{scoped(*(template(_FOLDER, part) for part in parts))}}} // namespace ts_mma\n"
        if t.producers:
            functions = mma_bulk_text() + mma_wait_text() + mma_arrive_text() + mma_producer_text() + functions
    header = Header(numbers, flags, {"Out": TYPES[form.out_dtype]}, functions=functions, arguments=arguments)
    named = "".join(dict.fromkeys(("fp32", form.out_dtype)))
    return unit(op, named, tile, t.target.arch, mma_prelude(), text, header)


def _arguments(t: FfmaTile) -> tuple[Argument, ...]:
    """Everything that the kernels take."""
    form, out, walk = t.form, t.form.out.pointer, t.value["group_m"]
    return (
        Argument("a_base", "const float *", form.a.pointer), Argument("b_base", "const float *", form.b.pointer),
        Argument("out_base", "Out *", out), Argument("bias_base", "const Out *", form.bias or out),
        Argument("residual_base", "const Out *", form.residual or out),
        Argument("partial", "float *", Pointer(Space.WORKSPACE) if t.partial else out),
        Argument("alpha", "float", Real(form.alpha)), Argument("beta", "float", Real(form.beta)),
        *integers("i64", a_group=form.a.group, b_group=form.b.group, out_group=form.out.group,
                  all_steps=t.shared_steps),
        *integers(
            "int", share=t.shared_steps // t.grid, over=t.shared_steps % t.grid,
            rows=form.rows, cols=form.cols, channels=form.channels, rows_of_tiles=t.tiles_m,
            waves=t.waves, a_line=form.a.line, a_channel=form.a.channel,
            b_line=form.b.line, b_channel=form.b.channel, out_line=form.out.line, out_column=form.out.channel,
        ),
        *divisors(
            blocks=t.grid, steps=t.steps, tiles=t.tiles_m * t.tiles_n, band=walk * t.tiles_n, walk=walk,
            last_walk=(t.tiles_m - 1) % walk + 1,
        ),
    )  # fmt: skip
