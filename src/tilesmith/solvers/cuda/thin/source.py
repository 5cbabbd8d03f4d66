"""The text of the kernels for few channels: constants, templates, launches."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from tilesmith.codegen.cuda.activation import activation_body
from tilesmith.codegen.cuda.mma import mma_prelude
from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Draft, Integer, Launch, Pointer, Real, Source, Space
from tilesmith.solvers.cuda.thin.tile import ThinTile

_TYPES = {"fp32": "float"}  # the others' are called as they are


@lru_cache(maxsize=8)
def _text(name: str) -> str:
    return Path(__file__).with_name(f"{name}.cu").read_text()


def thin_draft(t: ThinTile) -> Draft:
    form = t.form
    slots = [Pointer(Space.SLOT, i) for i in range(3 + form.bias)]
    out, bias = slots[-1], slots[2]  # without a bias the kernel does not read it
    row, column = (Integer(step) for step in form.steps)
    length, alpha = Integer(form.length), Real(form.alpha)
    source = _source(t, form.kind)
    if not t.weights:
        parameters = (slots[0], slots[1], bias, out, length, row, column, alpha)
        launch = Launch(0, source.symbol, (t.blocks, 1, 1), parameters, (t.threads, 1, 1),
                        shared_bytes=t.shared_bytes, programmatic=t.target.has_cluster)  # fmt: skip
        return Draft((source,), (launch,))
    total, partial = _source(t, "total"), Pointer(Space.WORKSPACE)
    first = Launch(0, source.symbol, (t.blocks, 1, 1), (slots[0], slots[1], partial, length), (t.threads, 1, 1),
                   shared_bytes=t.shared_bytes, programmatic=t.target.has_cluster)  # fmt: skip
    parameters_of_total = (partial, bias, out, Integer(t.blocks), row, column, alpha)
    second = Launch(1, total.symbol, (t.sums * t.team, 1, 1), parameters_of_total, (32, 8, 1),
                    programmatic=t.target.has_cluster)  # fmt: skip
    return Draft((source, total), (first, second), workspace_bytes=t.partial_bytes)


def _source(t: ThinTile, part: str) -> Source:
    form = t.form
    text = _text(part)
    holes = {
        "CONSTANTS": _constants(t, part),
        "SLABS": _text("slabs") + (_text("store") if part == "rows" else ""),
        "ACTIVATION": f"TS_MMA_DEVICE float activate(float v) {{\n{activation_body(form.epilogue)}}}",
    }
    for name, value in holes.items():
        text = text.replace(f"@{name}@", value)
    tile = f"{form.first}x{form.second}" + ("" if part == "total" else f"r{t.slab}w{t.warps}s{t.stages}")
    return make_source("cuda", f"thin{part}", form.dtype, tile, t.target.arch, mma_prelude(), text)


def _constants(t: ThinTile, part: str) -> str:
    form = t.form
    first, second = ("M", "N") if t.weights else ("K", "N")
    pad = "PAD_B" if t.weights else "PAD_OUT"
    numbers = {first: form.first, second: form.second, "PAD_A": t.pads[0], pad: t.pads[1]}
    flags: dict[str, bool] = {}
    if t.weights:
        numbers |= {"TILES_M": t.tile[0], "TILES_N": t.tile[1], "PARTS_M": t.parts[0], "PARTS": t.team}
    if part != "total":
        numbers |= {"SLAB": t.slab, "WARPS": t.warps, "STAGES": t.stages, "MIN_BLOCKS": t.value["blocks_per_sm"]}
    if part == "weights":
        numbers |= {"ROW_STEP": t.steps[0], "LANE_STEP": t.steps[1]}
    else:
        flags |= {"BIAS": form.bias, "SCALED": form.alpha != 1.0}
    if part == "rows":
        flags["HELD"] = t.held
    lines = [f"constexpr int {name} = {value};" for name, value in numbers.items()]
    lines += [f"constexpr bool {name} = {str(value).lower()};" for name, value in flags.items()]
    lines += [f"typedef {form.dtype} Element;", f"typedef {_TYPES.get(form.out_dtype, form.out_dtype)} Out;"]
    return "\n".join(lines)
