"""C text that several families share: types, the kernel's head, loads and stores of part of a vector, shuffles."""

from __future__ import annotations

from collections.abc import Iterable

from tilesmith.codegen.symbols import MARK
from tilesmith.solvers.c.common.lanes import LaneMap

CACHE_LINE = 64
C_TYPES = {"fp32": "ts_f32", "bf16": "ts_u16", "fp16": "ts_u16"}
ENTRY = f"void {MARK}(void *const *p, const ts_i64 *s, void *scratch, ts_i64 begin, ts_i64 end) {{"

# gcc and clang name the same shuffle differently.
PICK = f"""#ifdef __clang__
#define {MARK}_PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define {MARK}_PICK(a, b, ...) __builtin_shuffle(a, b, (ts_vi){{__VA_ARGS__}})
#endif
"""


def pick(a: str, b: str, lanes: list[int]) -> str:
    """The shuffle that takes ``lanes`` of ``a`` and, counted on, of ``b``."""
    return f"{MARK}_PICK({a}, {b}, {', '.join(map(str, lanes))})"


def element_types(x: str, y: str) -> str:
    """The types of what is read, and of the result or its gradient, by dtype."""
    return f"typedef {C_TYPES[x]} {MARK}_x;\ntypedef {C_TYPES[y]} {MARK}_y;\n"


def row_of_zeros(elements: int) -> str:
    """The C declaration of the row of zeros that is read in place of rows outside the image; empty for 0 elements."""
    return f"static {MARK}_x {MARK}_zeros[{elements}] __attribute__((aligned(64)));\n" if elements else ""


def braced(values: Iterable[int]) -> str:
    """One row of a table in C."""
    return "{" + ", ".join(map(str, values)) + "}"


def load(dtype: str, at: str, n: int, width: int) -> str:
    """The vector of ``width`` lanes at ``at``, of which ``n`` are in use."""
    return f"ts_load_{dtype}({at})" if n == width else f"ts_load_n_{dtype}({at}, {n})"


def store(dtype: str, at: str, value: str, n: int, width: int) -> str:
    return f"ts_store_{dtype}({at}, {value});" if n == width else f"ts_store_n_{dtype}({at}, {value}, {n});"


def channels_of_a_pixel(
    m: LaneMap, dtype: str, name: str, at: str, offset: int, tail: bool, inside: bool, there: str = ""
) -> list[str]:
    """Declares ``name0`` and on: the vectors that a block reads of one pixel. Outside the image one of zeros does;
    ``there``: C for whether it lies inside, where that is not known."""
    units, kind = m.units(tail), "ts_vi" if m.pairs else "ts_vf"
    if not inside:
        return [f"{kind} {name}0 = ({kind}){{0}};"]
    lines = []
    for k in range(-(-units // m.width)):
        place, n = f"{at} + ({offset + k * m.width * (2 if m.pairs else 1)})", min(m.width, units - k * m.width)
        value = f"(ts_vi){load('fp32', place, n, m.width)}" if m.pairs else load(dtype, place, n, m.width)
        lines.append(f"{kind} {name}{k} = {f'{there} ? {value} : ({kind}){{0}}' if there else value};")
    return lines


def operand(m: LaneMap, name: str, step: int, tail: bool, inside: bool) -> str:
    """The channels of a pixel in the lanes that multiply them in ``step``; outside the image always zeros."""
    one = m.units(tail) <= m.width
    picks = [m.source(lane, step, tail) for lane in range(m.width)]
    used = m.lanes(tail)[0]
    if not inside or (one and picks[:used] == list(range(used))):
        return f"{name}0"
    return pick(f"{name}0", f"{name}0" if one else f"{name}1", picks)
