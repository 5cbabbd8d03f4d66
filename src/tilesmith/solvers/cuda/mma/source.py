"""The text of the portable kernel, and of the sum of its parts: constants, arguments, templates."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

from tilesmith.codegen.cuda.activation import activation_body
from tilesmith.codegen.cuda.mma import divisor, mma_prelude
from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Draft, Integer, Launch, Parameter, Pointer, Real, Source, Space
from tilesmith.solvers.cuda.common.dense import BYTES
from tilesmith.solvers.cuda.mma.tile import MmaTile

_TYPES = {"fp32": "float", "int32": "int"}  # the others' are called as they are
_AXES = ("d", "h", "w")
_SUM_THREADS = 256


@lru_cache(maxsize=16)
def _text(name: str) -> str:
    return Path(__file__).with_name(f"{name}.cu").read_text()


def mma_draft(t: MmaTile) -> Draft:
    """The kernel, and after it the sum of its parts when k is split."""
    parameters = _parameters(t)
    values = tuple(value for _, _, value in parameters)
    tile = "x".join(str(v) for n, v in t.config.values if n not in ("split_k", "group_m"))
    dtypes = "".join(dict.fromkeys((t.form.dtype, t.form.b_dtype, t.form.out_dtype)))
    op = ("ffma" if t.exact else "mma") + t.form.kind
    source = _source(t, op, dtypes, tile, _tile_text(t), parameters)
    launch = Launch(0, source.symbol, (t.grid, 1, 1), values, (t.threads, 1, 1), shared_bytes=t.shared_bytes,
                    programmatic=t.target.has_cluster)  # fmt: skip
    if t.split == 1:
        return Draft((source,), (launch,))
    total = _source(t, op + "sum", dtypes, "s1", _text("sum"), parameters)
    blocks = -(-t.form.layers * t.form.rows * t.pitch // 4 // _SUM_THREADS)
    step = Launch(1, total.symbol, (blocks, 1, 1), values, (_SUM_THREADS, 1, 1), programmatic=t.target.has_cluster)
    return Draft((source, total), (launch, step), workspace_bytes=t.partial_bytes)


def _tile_text(t: MmaTile) -> str:
    kind = "float" if t.exact else "tensor"
    text = _text("kernel")
    for part in ("sums", "loop", "store"):
        text = text.replace(f"@{part.upper()}@", _text(f"{part}_{kind}"))
    products = "products_widened" if t.form.dtype in BYTES else "products_direct"
    return text.replace("@PRODUCTS@", _text(products))


def _source(
    t: MmaTile, op: str, dtypes: str, tile: str, text: str, parameters: list[tuple[str, str, Parameter]]
) -> Source:
    holes = {
        "CONSTANTS": _constants(t, is_sum=op.endswith("sum")),
        "FINISH": _text("finish").replace("@ACTIVATION@", _activation(t)),
        "PLACE": _text("place"),
        "PARAMETERS": ", ".join(_declared(name, kind, value) for name, kind, value in parameters),
        "UNPACK": "\n".join(_unpacked(parameters)),
    }
    for name, value in holes.items():
        text = text.replace(f"@{name}@", value)
    return make_source("cuda", op, dtypes, tile, t.target.arch, mma_prelude(), text)


def _declared(name: str, kind: str, value: Parameter) -> str:
    if isinstance(value, Pointer):
        return f"{kind} *{name}"
    return f"{'double' if isinstance(value, Real) else 'i64'} p_{name}"


def _unpacked(parameters: list[tuple[str, str, Parameter]]) -> list[str]:
    """Numbers under their own names and types."""
    lines = []
    for name, kind, value in parameters:
        if isinstance(value, Pointer) or kind == "u32":  # a divisor's
            continue
        if kind == "Divisor":
            lines.append(f"  const Divisor {name} = {{(int)p_{name}, (u32)p_{name}_m, (u32)p_{name}_s}};")
        else:
            lines.append(f"  const {kind} {name} = ({kind})p_{name};")
    # Not every kind of problem reads every number.
    names = [name for name, kind, value in parameters if not isinstance(value, Pointer) and kind != "u32"]
    return [*lines, "  " + " ".join(f"(void){name};" for name in names)]


def _constants(t: MmaTile, is_sum: bool) -> str:
    form, v = t.form, t.value
    numbers = {"GEMM": 0, "FWD": 1, "BWD": 2, "WRW": 3}
    numbers |= {"KIND": numbers[form.kind.upper()], "OUT_VECTOR": form.out_vector}
    flags = {
        "WHOLE": form.whole, "DEEP": form.deep, "BIAS": form.bias is not None, "RESIDUAL": form.residual is not None,
        "SCALED": form.alpha != 1.0, "BETA": form.beta != 0.0,
    }  # fmt: skip
    if not is_sum:
        numbers |= {
            "BLOCK_M": t.block_m, "BLOCK_N": t.block_n, "BLOCK_K": t.block_k, "WARPS_M": v["warps_m"],
            "WARPS_N": v["warps_n"],
            "STAGES": v["stages"], "MIN_BLOCKS": t.min_blocks, "A_VECTOR": form.a.vector, "B_VECTOR": form.b.vector,
            "TABLE_OFFSET": t.table_offset,
        }  # fmt: skip
        flags |= {
            "A_BY_K": form.a.by_k, "B_BY_K": form.b.by_k, "COMPARE": t.compares, "INSIDE": form.inside,
            "LINEAR": form.linear, "PARTIAL": t.split > 1, "EXACT": t.exact,
        }  # fmt: skip
    lines = [f"constexpr int {name} = {value};" for name, value in numbers.items()]
    lines += [f"constexpr bool {name} = {str(value).lower()};" for name, value in flags.items()]
    types = {"Element": form.dtype, "ElementB": form.b_dtype, "Out": form.out_dtype}
    lines += [f"typedef {_TYPES.get(value, value)} {name};" for name, value in types.items()]
    # What is summed, and what an epilogue computes in.
    lines += [f"typedef {'int' if form.whole else 'float'} Sum;", f"typedef {'i64' if form.whole else 'float'} Value;"]
    return "\n".join(lines)


def _activation(t: MmaTile) -> str:
    """The function ``activate`` of one value; integers pass through doubles, which hold them."""
    e = t.form.epilogue
    if not t.form.whole:
        return f"TS_MMA_DEVICE float activate(float v) {{\n{activation_body(e)}}}"
    low, high = (
        f"{'-' if v < 0 else ''}__longlong_as_double(0x7ff0000000000000)" if math.isinf(v) else v.hex()
        for v in (e.low, e.high)
    )
    body = {"none": "v", "relu": "v < 0 ? 0 : v", "clamp": f"(i64)(v < {low} ? {low} : v > {high} ? {high} : v)"}
    return f"TS_MMA_DEVICE i64 activate(i64 v) {{ return {body[e.activation]}; }}"


def _parameters(t: MmaTile) -> list[tuple[str, str, Parameter]]:
    """Everything that the kernels take: name, type in the kernel, value."""
    form = t.form
    pointers = {
        "a_base": ("const Element", form.a.pointer), "b_base": ("const ElementB", form.b.pointer),
        "out_base": ("Out", form.out.pointer), "bias_base": ("const Out", form.bias or form.out.pointer),
        "residual_base": ("const Out", form.residual or form.out.pointer),
        "partial": ("Sum", Pointer(Space.WORKSPACE) if t.split > 1 else form.out.pointer),
    }  # fmt: skip
    found: list[tuple[str, str, Parameter]] = [(name, kind, pointer) for name, (kind, pointer) in pointers.items()]
    found += [("alpha", "Value", Real(form.alpha)), ("beta", "Value", Real(form.beta))]
    wide = {"a_group": form.a.group, "b_group": form.b.group, "out_group": form.out.group}
    found += [(name, "i64", Integer(value)) for name, value in wide.items()]
    window = form.b if form.kind == "wrw" else form.a
    numbers = {
        "rows": form.rows, "cols": form.cols, "groups": form.groups, "tiles_m": t.tiles_m, "tiles_n": t.tiles_n,
        "walk": t.value["group_m"], "parts": t.split, "channels": form.channels, "pitch": t.pitch,
        "length": form.pixels if form.kind == "wrw" else form.channels, "taps_most": form.taps,
        "a_line": form.a.line, "a_channel": form.a.channel, "b_line": form.b.line, "b_channel": form.b.channel,
        "out_line": form.out.line, "out_channel": form.out.channel,
        "bias_group": form.cols if form.kind != "gemm" else 0,
    }  # fmt: skip
    for name, steps in (("in", window.pixel), ("dy", form.a.pixel), ("out", form.out.pixel)):
        numbers |= {f"{name}_{axis}": value for axis, value in zip("ndhw", steps, strict=True)}
    for name, triple in (
        ("filter_step", form.b.tap), ("out_tap", form.out.tap), ("filter", form.filter), ("stride", form.stride),
        ("pad", form.padding), ("dilation", form.dilation), ("size", form.size), ("out_size", form.out_size),
        ("phase", form.phases),
    ):  # fmt: skip
        numbers |= {f"{name}_{axis}": value for axis, value in zip(_AXES, triple, strict=True)}
    found += [(name, "int", Integer(value)) for name, value in numbers.items()]
    divisors = {"padded": form.padded} | {f"base_{a}": n for a, n in zip(_AXES, form.base, strict=True)}
    for name, value in divisors.items():
        m, s = divisor(value)
        found += [(name, "Divisor", Integer(value)), (f"{name}_m", "u32", Integer(m)), (f"{name}_s", "u32", Integer(s))]
    return found
