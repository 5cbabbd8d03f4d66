"""The text of the sm_90a kernel: constants, arguments and the template."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from tilesmith.codegen.cuda.activation import activation_body
from tilesmith.codegen.cuda.hopper import hopper_prelude, product_text
from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Integer, Parameter, Pointer, Real, Source, Space
from tilesmith.solvers.cuda.common.form import Sm90Form, Taps, Tiled, Window
from tilesmith.solvers.cuda.wgmma.tile import APART_BYTES, Sm90Tile

SUM_THREADS = 128
_AT_ONCE = 8  # loads of partial sums that a thread has under way
TYPES = {"bf16": "ts_bf16", "fp16": "ts_fp16", "fp32": "float"}


# What a GEMM reads. The rest are zeros in the text: each line of arguments is a read before the first copy.
_OF_GEMM = frozenset(
    "out partial bias residual alpha beta total rows cols layers tiles_m tiles_n slices steps group all_m block_m "
    "block_n a_layer b_layer by_tiles by_layers by_width by_group by_left by_parts out_layer out_row out_col".split()
)


@dataclass(frozen=True)
class Argument:
    """A value that the kernel takes at run time, under the name that its text has for it; ``None``: it is not read."""

    name: str
    field: str  # its type in the kernel
    parameter: Parameter | None

    @property
    def declared(self) -> str:
        kind = {Integer: "ts_i64 ", Real: "double "}.get(type(self.parameter), self.field)
        return f"{kind}{self.name}"

    @property
    def cast(self) -> str:
        return f"({self.field.strip()}){self.name if self.parameter is not None else 0}"


def passed(arguments: tuple[Argument, ...]) -> tuple[Parameter, ...]:
    """The values of a launch, in the order of ``declarations``."""
    return tuple(a.parameter for a in arguments if a.parameter is not None)


def declarations(arguments: tuple[Argument, ...]) -> list[str]:
    return [a.declared for a in arguments if a.parameter is not None]


@lru_cache(maxsize=3)
def _template(name: str) -> str:
    return Path(__file__).with_name(f"{name}.cu").read_text()


def _filled(text: str, holes: dict[str, str]) -> str:
    for name, value in holes.items():
        text = text.replace(f"@{name}@", value)
    return text


def tile_source(t: Sm90Tile, arguments: tuple[Argument, ...]) -> Source:
    """The kernel of ``t``. Sizes are arguments: problems that share a tile and a filter share the text."""
    form, v = t.form, t.value
    maps = [f"const __grid_constant__ ts_map {name}" for name in ("map_a", "map_b", "map_c", "map_tail")]
    holes = {
        "PLACE": _place(t, arguments, _numbers(t)),
        "TABLES": _tables(t),
        "PRODUCT": product_text("product", t.block_n, form.dtype, form.a_columns, form.b_columns),
        "PARAMETERS": ", ".join([*maps, *declarations(arguments)]),
        "VALUES": ", ".join(a.cast for a in arguments),
        "TOUCH": touched(arguments),
    }
    groups = "pp" if t.pingpong else f"w{v['warpgroups']}"
    tile = f"m{t.block_m}n{t.block_n}k{t.block_k}s{t.stages}{groups}x{v['blocks_per_sm']}"
    text = _filled(_template("kernel"), holes)
    return make_source("cuda", f"wgmma{form.kind}", _dtypes(t), tile, t.target.arch, hopper_prelude(), text)


def sum_groups(t: Sm90Tile) -> int:
    """Threads that share the slices of a quad: enough that each has all its loads under way at once."""
    groups = 1
    while groups < 16 and groups * _AT_ONCE < t.value["split_k"]:
        groups *= 2
    return groups


def sum_source(t: Sm90Tile, arguments: tuple[Argument, ...]) -> Source:
    """The kernel that adds up the slices of ``t``."""
    slices, form = t.value["split_k"], t.form
    holes = {
        "PLACE": _place(t, arguments, {"SLICES": slices, "GROUPS": sum_groups(t)}),
        "PARAMETERS": ", ".join(declarations(arguments)),
        "VALUES": ", ".join(a.cast for a in arguments),
    }
    text = _filled(_template("sum"), holes)
    return make_source("cuda", f"sum{form.kind}", _dtypes(t), f"s{slices}", t.target.arch, hopper_prelude(), text)


def _dtypes(t: Sm90Tile) -> str:
    form = t.form
    return form.dtype if form.dtype == form.out_dtype else form.dtype + form.out_dtype


def _place(t: Sm90Tile, arguments: tuple[Argument, ...], more: dict[str, int | str]) -> str:
    """What the kernel and the sum of its slices share."""
    form, v = t.form, t.value
    numbers = more | {
        "KIND": form.kind.upper(), "RANK": form.rank, "SLAB_COLS": v["slab_n"], "TAPS": len(form.taps.offset),
    }  # fmt: skip
    flags = {
        "OUT_LINEAR": form.placed.pixels is None, "TRANSPOSED": form.transposed, "EVEN": t.even,
        "BIAS": form.bias is not None, "RESIDUAL": form.residual is not None, "SCALED": form.alpha != 1.0,
        "BETA": form.beta != 0.0,
    }  # fmt: skip
    lines = [f"constexpr int {name} = {value};" for name, value in numbers.items()]
    lines += [f"constexpr bool {name} = {str(value).lower()};" for name, value in flags.items()]
    lines += [f"typedef {TYPES[form.dtype]} Element;", f"typedef {TYPES[form.out_dtype]} Out;"]
    lines += [f"typedef {TYPES[form.out_dtype]} Given; // bias and residual"]
    holes = {
        "CONSTANTS": "\n".join(lines),
        "FIELDS": "".join(f"  {a.field}{a.name};\n" for a in arguments),
        "ACTIVATION": activation_body(form.epilogue),
    }
    return _filled(_template("place"), holes)


def _numbers(t: Sm90Tile) -> dict[str, int | str]:
    form, v = t.form, t.value
    product, copy = t.registers
    flags = {
        "PINGPONG": t.pingpong, "A_BY_COLUMNS": form.a_columns, "B_BY_COLUMNS": form.b_columns,
        "TAPS_INNER": bool(v["taps_inner"]), "REPAIR": form.halo, "SLICED": v["split_k"] > 1,
        "MIXED": bool(v["mix_layers"]),
        "LAYERED": form.layers > 1, "RESIDENT": bool(v["resident"]), "A_ONCE": t.read_once[0],
        "B_ONCE": t.read_once[1],
    }  # fmt: skip
    numbers: dict[str, int | str] = {
        "STORE": t.store, "BLOCK_M": t.block_m, "BLOCK_N": t.block_n, "BLOCK_K": t.block_k, "CAST": v["cluster_m"],
        "A_ROWS": t.a_rows, "A_READ": t.a_read, "B_READ": t.b_read, "BEYOND_RING": t.beyond_ring,
        "MI": v["products_m"], "WARPGROUPS": v["warpgroups"], "STAGES": t.stages,
        "SPLIT": v["cluster_k"], "PER_SM": v["blocks_per_sm"], "BUFFERS": v["store_buffers"],
        "APART_BYTES": APART_BYTES, "PRODUCT_REGISTERS": product, "COPY_REGISTERS": copy,
    }  # fmt: skip
    return numbers | {name: int(value) for name, value in flags.items()}


def _tables(t: Sm90Tile) -> str:
    # A GEMM has no taps: problems of all batch sizes share one text.
    taps = t.form.taps if t.form.kind != "gemm" else Taps()
    # The longest sums first: what is left for the end is short.
    counts = [b - a for a, b in zip(taps.first, taps.first[1:], strict=False)]
    order = sorted(range(len(counts)), key=lambda layer: -counts[layer])
    tables = (
        ("layer_order", order),
        ("phase_first", taps.first),
        ("tap_offset", taps.offset),
        ("tap_filter", taps.index),
    )
    return "\n".join(
        f"static __constant__ ts_u32 {name}[] = {{{', '.join(map(str, values))}}};" for name, values in tables
    )


def tile_arguments(t: Sm90Tile) -> tuple[Argument, ...]:
    """Everything that the kernel takes beside its maps; the sum of its slices takes the same."""
    form, placed = t.form, t.form.placed
    given = f"const {TYPES[form.out_dtype]} *"
    element = f"const {TYPES[form.dtype]} *"
    window = form.a if isinstance(form.a, Window) else form.b if isinstance(form.b, Window) else None
    found = [
        Argument("out", f"{TYPES[form.out_dtype]} *", form.out),
        Argument("partial", "float *", Pointer(Space.WORKSPACE) if t.value["split_k"] > 1 else form.out),
        Argument("bias", given, form.bias or form.out),
        Argument("residual", given, form.residual or form.out),
    ]
    # dy and the filter as they lie, for products at the edge.
    if form.halo:
        found += [Argument("pixels", element, form.a.pointer), Argument("filter", element, form.b.pointer)]
    else:
        found += [Argument("pixels", element, form.out), Argument("filter", element, form.out)]
    found += [Argument("alpha", "float ", Real(form.alpha)), Argument("beta", "float ", Real(form.beta))]
    wide = {
        "out_layer": placed.layer, "out_row": placed.row, "out_col": placed.column, "out_tap": placed.tap,
    }  # fmt: skip
    pixels = placed.pixels or (0, 0, 0, 0)
    wide |= dict(zip(("out_n", "out_d", "out_h", "out_w"), pixels, strict=True))
    wide |= edge_strides(form)
    group, slices = t.value["group_m"], t.value["split_k"]
    divisors = {
        "tiles": t.tiles_m * t.tiles_n, "layers": form.layers, "width": group * t.tiles_n, "group": group,
        "left": t.tiles_m % group or group, "parts": slices * t.value["cluster_k"], "blocks": t.blocks,
    }  # fmt: skip
    narrow = {
        "total": t.tiles, "rows": form.rows, "cols": form.cols, "layers": form.layers, "tiles_m": t.tiles_m,
        "tiles_n": t.tiles_n, "slices": slices, "steps": t.layer_steps[0], "group": group, "blocks": t.blocks,
        "channels": form.channels, "all_m": t.tiles_m * t.value["cluster_m"], "block_m": t.block_m,
        "block_n": t.block_n, "a_layer": int(form.kind == "gemm" and isinstance(form.a, Tiled) and form.a.dims[2] > 1),
        "b_layer": int(form.kind == "gemm" and isinstance(form.b, Tiled) and form.b.dims[2] > 1),
    }  # fmt: skip
    for name, values in _window_numbers(window).items():
        narrow |= {f"{name}_{axis}": value for axis, value in zip("whd", values, strict=True)}
    for name, triple in (("out_size", placed.sizes), ("phases", placed.phases)):
        narrow |= {f"{name}_{axis}": value for axis, value in zip("whd", triple, strict=True)}
    divisors |= {f"{name}_{axis}": narrow[f"{name}_{axis}"] for name in ("base", "phases") for axis in "whd"}
    found += [Argument(name, "int ", Integer(value)) for name, value in narrow.items()]
    found += [Argument(f"by_{name}", "ts_u64 ", Integer(reciprocal(max(value, 1)))) for name, value in divisors.items()]
    found += [Argument(name, "ts_i64 ", Integer(value)) for name, value in wide.items()]
    if form.kind == "gemm":
        found = [a if a.name in _OF_GEMM else replace(a, parameter=None) for a in found]
    return tuple(found)


def touched(arguments: tuple[Argument, ...]) -> str:
    """Text that reads one argument of each 64 bytes of them: a first read takes hundreds of cycles."""
    found = [a for a in arguments if a.parameter is not None][::8]
    pointers = [a for a in found if a.field.rstrip().endswith("*")]
    plain = [a for a in found if a not in pointers]
    names = [f"(ts_u64)run.{a.name}" for a in pointers] + [f"run.{a.name}" for a in plain]
    return " ".join(f"ts_touch((ts_u32){name});" for name in names)


def reciprocal(divisor: int) -> int:
    """What ``ts_quotient`` divides by: a multiplier in the low half, a shift in the high one."""
    shift = 31 + (divisor - 1).bit_length()
    return shift << 32 | -(-(1 << shift) // divisor)


def edge_strides(form: Sm90Form) -> dict[str, int]:
    """Strides of dy and the filter, for products at the edge."""
    names = ("in_n", "in_d", "in_h", "in_w", "filter_row", "filter_tap")
    if not form.halo:
        return dict.fromkeys(names, 0)
    assert isinstance(form.a, Window)
    assert isinstance(form.b, Tiled)
    w, h, *d, n = form.a.strides
    return dict(zip(names, (n, d[0] if d else 0, h, w, form.b.strides[1], form.b.strides[0]), strict=True))


def _window_numbers(window: Window | None) -> dict[str, tuple[int, ...]]:
    if window is None:
        return {"corner": (0, 0, 0), "base": (1, 1, 1), "step": (1, 1, 1), "in_size": (1, 1, 1)}
    return {
        "corner": three(window.corner, 0), "base": three(window.base, 1), "step": three(window.step, 1),
        "in_size": three(window.dims[1:-1], 1),
    }  # fmt: skip


def three(values: tuple[int, ...], fill: int) -> tuple[int, ...]:
    """``values`` of W and H, with D filled in if it is missing."""
    return (*values, *(fill,) * (3 - len(values)))
