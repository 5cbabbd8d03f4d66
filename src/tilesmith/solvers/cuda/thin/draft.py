"""The text of the kernels for few channels: constants, arguments, launches."""

from __future__ import annotations

from pathlib import Path

from tilesmith.codegen.cuda.activation import activate
from tilesmith.codegen.cuda.hopper import mma_bulk_text, mma_product_text, mma_wait_text
from tilesmith.codegen.cuda.mma import TYPES, mma_prelude
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, resolved, template, unit
from tilesmith.plan.records import Draft, Launch, Pointer, Real, Source, Space
from tilesmith.solvers.cuda.thin.few import FewTile
from tilesmith.solvers.cuda.thin.form import ThinForm
from tilesmith.solvers.cuda.thin.tile import ThinTile
from tilesmith.solvers.cuda.thin.wide import WideTile

_FOLDER = Path(__file__).parent


def thin_draft(t: ThinTile) -> Draft:
    form, early = t.form, t.target.has_cluster
    operands, results = _tensors(form)
    row, column = form.steps
    alpha, rows = Argument("alpha", "float", Real(form.alpha)), integers("i64", rows=form.length)
    if not t.weights:
        arguments = _of_rows(form)
        source = _source(t, "wide" if isinstance(t, WideTile) else "rows", arguments)
        launch = Launch(0, source.symbol, (t.blocks, 1, 1), passed(arguments), (t.threads, 1, 1),
                        shared_bytes=t.shared_bytes, programmatic=early)  # fmt: skip
        return Draft((source,), (launch,))
    partial = Pointer(Space.WORKSPACE)
    arguments = (*operands, Argument("partial", "float *", partial), *rows)
    sums = integers("i64", parts=t.blocks, out_row=row, out_column=column)
    of_total = (Argument("partial", "const float *", partial), *results, *sums, alpha)
    source, total = _source(t, "weights", arguments), _source(t, "total", of_total)
    first = Launch(0, source.symbol, (t.blocks, 1, 1), passed(arguments), (t.threads, 1, 1),
                   shared_bytes=t.shared_bytes, programmatic=early)  # fmt: skip
    second = Launch(1, total.symbol, (t.sums * t.team, 1, 1), passed(of_total), (32, 8, 1), programmatic=early)
    return Draft((source, total), (first, second), workspace_bytes=t.partial_bytes)


def few_draft(t: FewTile) -> Draft:
    form, arguments = t.form, _of_rows(t.form)
    header = Header(
        {"K": form.first, "N": form.second, "THREADS": t.threads},
        {"BIAS": form.bias, "SCALED": form.alpha != 1.0},
        {"Element": TYPES[form.dtype], "Out": TYPES[form.out_dtype]},
        functions=activate(form.epilogue, "TS_MMA_DEVICE", form.out_dtype), arguments=arguments,
    )  # fmt: skip
    tile, arch = f"{form.first}x{form.second}t{t.threads}", t.target.arch
    source = unit("thinfew", form.dtype, tile, arch, mma_prelude(), template(_FOLDER, "few"), header)
    launch = Launch(
        0, source.symbol, (t.blocks, 1, 1), passed(arguments), (t.threads, 1, 1), programmatic=t.target.has_cluster
    )
    return Draft((source,), (launch,))


def _tensors(form: ThinForm) -> tuple[tuple[Argument, ...], tuple[Argument, ...]]:
    """Operands, and bias, residual and result."""
    e = form.epilogue
    slots = [Pointer(Space.SLOT, i) for i in range(3 + e.bias + e.residual)]
    operands = (Argument("a", "const Element *", slots[0]), Argument("b", "const Element *", slots[1]))
    # Without a bias the kernel does not read it.
    bias, out = Argument("bias", "const Out *", slots[2]), Argument("out", "Out *", slots[-1])
    added = (Argument("residual", "const Out *", slots[2 + e.bias]),) if e.residual else ()
    return operands, (bias, *added, out)


def _of_rows(form: ThinForm) -> tuple[Argument, ...]:
    operands, results = _tensors(form)
    row, column = form.steps
    sizes = (*integers("i64", rows=form.length), *integers("i64", b_row=row, b_column=column))
    return (*operands, *results, *sizes, Argument("alpha", "float", Real(form.alpha)))


def _source(t: ThinTile, part: str, arguments: tuple[Argument, ...]) -> Source:
    form = t.form
    first, pad = ("M", "PAD_B") if t.weights else ("K", "PAD_OUT")
    numbers = {first: form.first, "N": form.second, "PAD_A": t.pads[0], pad: t.pads[1]}
    flags = {"BIAS": form.bias, "SCALED": form.alpha != 1.0}
    functions, tile = activate(form.epilogue, "TS_MMA_DEVICE", form.out_dtype), f"{form.first}x{form.second}"
    if t.weights:
        numbers |= {"TILES_M": t.tile[0], "TILES_N": t.tile[1], "PARTS_M": t.parts[0], "PARTS": t.team}
        numbers |= dict(zip(("ROW_STEP", "LANE_STEP", "HALF_STEP"), t.reading.steps, strict=True))
        flags["RUNS"] = t.reading.runs
    elif isinstance(t, WideTile):
        numbers |= {"ROW_STEP": t.row_step, "SPREAD_K": t.spreads[0], "SPREAD_N": t.spreads[1]}
        flags["BY_COLUMNS"] = form.steps[1] == 1
        functions += mma_bulk_text() + mma_product_text(t.products[1] * 8, form.dtype)
    else:
        flags["HELD"] = t.held
    if part != "total":
        numbers |= {
            "SLAB": t.slab, "WARPS": t.warps, "STAGES": t.stages, "STAGE": t.stage_bytes,
            "MIN_BLOCKS": t.value["blocks_per_sm"], "SHARED_BYTES": t.shared_bytes,
        }  # fmt: skip
        functions += template(_FOLDER, "slabs")
        functions += mma_wait_text() + template(_FOLDER, "bulk") if isinstance(t, WideTile) else ""
        tile += f"r{t.slab}w{t.warps}s{t.stages}"
    types = {"Element": TYPES[form.dtype], "Out": TYPES[form.out_dtype]}
    header = Header(numbers, flags, types, functions=functions, arguments=arguments)
    text = template(_FOLDER, part)
    if isinstance(t, WideTile):
        text = resolved(text, RESIDUAL=form.epilogue.residual)
    return unit(f"thin{part}", form.dtype, tile, t.target.arch, mma_prelude(), text, header)
