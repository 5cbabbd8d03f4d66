"""The innermost text of a direct grouped convolution: one tile of rows x columns x vectors, held in registers.

All positions inside a tile are constants. Columns whose taps leave the image have functions of their own; input rows
outside it arrive as a row of zeros (``fwd``, where padding takes part in products) or as a null pointer (``bwd``).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.codegen.symbols import MARK
from tilesmith.problems.epilogue import Epilogue
from tilesmith.solvers.c.grouped.axis import AxisPhase, Columns
from tilesmith.solvers.c.grouped.lanes import LaneMap

# Statements above which the rows of a tile become a loop.
UNROLLED = 400


@dataclass(frozen=True)
class Row:
    """An input row that a tile reads: its place relative to the tile, and the (result row, filter row) it meets."""

    depth: int
    height: int
    users: tuple[tuple[int, int], ...]  # filter row = t * R + r


@dataclass(frozen=True)
class TileFacts:
    """What all tiles of one kernel share. Steps are in elements; ``x`` is what is read, ``y`` the result."""

    lanes: LaneMap
    x_dtype: str
    y_dtype: str
    x_step: int  # from one input column to the next
    x_row: int  # from one input row to the next
    y_row: int  # from one result row of a tile to the next
    y_step: int  # from one result column of a tile to the next
    taps: tuple[int, int, int]
    zero_products: bool
    epilogue: Epilogue
    stream: bool
    ahead: bool


def tile_rows(depth: AxisPhase, height: AxisPhase, count: int, filter_height: int) -> tuple[Row, ...]:
    """The input rows of a tile of ``count`` result rows, each once."""
    rows = []
    for t in depth.taps:
        for position in height.positions(count):
            users = tuple(
                (i, t.index * filter_height + r.index)
                for i in range(count)
                for r in height.taps
                if i * height.in_step + r.offset == position
            )
            rows.append(Row(t.offset, position, users))
    return tuple(rows)


def tile_function(
    name: str,
    facts: TileFacts,
    rows: tuple[Row, ...],
    height: int,
    height_step: int,
    width: AxisPhase,
    columns: Columns,
    tail: bool,
) -> str:
    """``static void name(q, xo, w, y, z, bias)`` for ``height`` x ``columns.width`` results of one block.

    ``q`` holds the input rows, ``xo`` the offset of the tile's first column and channel in them; ``height_step`` input
    rows lie between the first inputs of neighbouring result rows.
    """
    lanes, count = facts.lanes, len(facts.lanes.lanes(tail))
    cells = [(i, j) for i in range(height) for j in range(columns.width)]
    o = [
        f"TS_NOINLINE void {name}(const {MARK}_x *const *q, ts_i64 xo, const ts_vf *w, {MARK}_y *y, const {MARK}_y *z,"
        f" const {MARK}_y *bias) {{",
        "  (void)q, (void)xo, (void)w, (void)z, (void)bias;",
    ]
    if facts.ahead and rows and not lanes.splat:
        o += _fetch_next(facts, rows, height, height_step, columns.width * width.in_step)
    o += [f"  ts_vf a{i}_{j}_{v} = {{0}};" for i, j in cells for v in range(count)]
    spots = [
        (p, [(j, tap.index) for tap in width.taps for j in range(columns.width) if j * width.in_step + tap.offset == p])
        for p in width.positions(columns.width)
    ]
    known = [(p, users, columns.inside or 0 <= columns.start * width.in_step + p < width.in_size) for p, users in spots]
    body = _splat_row if lanes.splat else _twin_row if lanes.twin_in(tail) else _lanes_row
    loop = height == 1 and len(rows) * sum(len(u) for _, u in spots) * lanes.steps * count > UNROLLED
    if loop:
        firsts = ", ".join(str(row.users[0][1]) for row in rows)
        o.append(f"  static const int line[{len(rows)}] = {{{firsts}}};")
        o.append(f"  for (int i = 0; i < {len(rows)}; i++) {{")
        o += _row_open(facts, "i") + body(facts, [(0, f"line[i] * {facts.taps[2]}")], known, tail) + ["  }", "  }"]
    else:
        for at, row in enumerate(rows):
            users = [(i, str(r * facts.taps[2])) for i, r in row.users]
            o += ["  {", *_row_open(facts, str(at)), *body(facts, users, known, tail), "  }", "  }"]
    return "\n".join([*o, *(_finish_twins if lanes.twin_in(tail) else _finish)(facts, cells, tail), "}"]) + "\n"


def _fetch_next(facts: TileFacts, rows: tuple[Row, ...], height: int, step: int, columns: int) -> list[str]:
    """Ask for the inputs that the strip below this one reads first: a strip's time is what memory needs.

    NOTE: the hardware does not see these streams, which jump a row at the end of each tile. On a Zen 5, 3x3 depthwise
    with 144 channels, 56x56 and batch 8 from memory takes 0.71 ms with this and 1.17 ms without; it costs 5 % in cache.
    """
    new = height * step
    last = max(row.depth for row in rows)
    lowest = max(row.height for row in rows) - new
    return [
        f"  TS_PREFETCH(q[{at}] + xo + {j * facts.x_step + new * facts.x_row});"
        for at, row in enumerate(rows)
        if row.depth == last and row.height > lowest
        for j in range(columns)
    ]


def _row_open(facts: TileFacts, at: str) -> list[str]:
    """A row outside the image has no products in ``bwd``."""
    test = "" if facts.zero_products else f"if (q[{at}]) "
    return [f"  {test}{{", f"  const {MARK}_x *x = q[{at}] + xo; (void)x;"]


Users = list[tuple[int, str]]
Spots = list[tuple[int, list[tuple[int, int]], bool]]


def _multiply(facts: TileFacts, acc: str, x: str, w: str) -> str:
    if facts.lanes.pairs:
        return f"  {acc} = ts_dot_bf16({acc}, {x}, (ts_vi){w});"
    return f"  {acc} += {x} * {w};"


def _lanes_row(facts: TileFacts, users: Users, spots: Spots, tail: bool) -> list[str]:
    """Narrow groups: load the pixel's channels once, shuffle them for each step."""
    m, o = facts.lanes, []
    vector = "ts_vi" if m.pairs else "ts_vf"
    units = m.units(tail)
    for p, meets, inside in spots:
        if not inside and not facts.zero_products:
            continue
        o.append("  {")
        # Outside the image every step multiplies the same zeros.
        for k in range(-(-units // m.width) if inside else 1):
            at, n = p * facts.x_step + k * m.width * (2 if m.pairs else 1), min(m.width, units - k * m.width)
            o.append(f"  {vector} x{k} = {_load(facts, at, n) if inside else f'({vector}){{0}}'};")
        sources = "x0, x0" if units <= m.width else "x0, x1"
        for step in range(m.steps):
            picks = [m.source(lane, step, tail) for lane in range(m.width)]
            plain = units <= m.width and all(pick == lane for lane, pick in enumerate(picks[: m.lanes(tail)[0]]))
            v = "x0" if plain or not inside else f"{MARK}_PICK({sources}, {', '.join(map(str, picks))})"
            o.append(f"  {{ {vector} v = {v};")
            for i, line in users:
                for j, s in meets:
                    o.append(
                        _multiply(facts, f"a{i}_{j}_0", "v", f"w[(({line} + {s}) * {m.steps} + {step}) * {m.vectors}]")
                    )
            o.append("  }")
        o.append("  }")
    return o


def _twin_row(facts: TileFacts, users: Users, spots: Spots, tail: bool) -> list[str]:
    """Depthwise bf16: a 32-bit lane holds two channels; a shift widens the even one, a mask the odd one."""
    m, o = facts.lanes, []
    for p, meets, inside in spots:
        if not inside and not facts.zero_products:
            continue
        u = _twins(f"x + ({p * facts.x_step})", m.lanes(tail)[0], m.width) if inside else "(ts_vu){0}"
        o.append(f"  {{ ts_vu u = {u}; ts_vf v0 = (ts_vf)(u << 16), v1 = (ts_vf)(u & 0xffff0000u);")
        for i, line in users:
            for j, s in meets:
                o += [f"  a{i}_{j}_{v} += v{v} * w[({line} + {s}) * 2 + {v}];" for v in range(2)]
        o.append("  }")
    return o


def _twins(at: str, n: int, width: int) -> str:
    return f"(ts_vu){_read('fp32', at, n, width)}"


def _finish_twins(facts: TileFacts, cells: list[tuple[int, int]], tail: bool) -> list[str]:
    """Epilogue and stores of two vectors whose channels take turns."""
    m, o = facts.lanes, []
    n = m.lanes(tail)[0]
    if facts.epilogue.bias:
        o.append(f"  ts_vu b = {_twins('bias', n, m.width)};")
    for i, j in cells:
        at, values = f"{i * facts.y_row + j * facts.y_step}", [f"a{i}_{j}_0", f"a{i}_{j}_1"]
        o.append("  {")
        if facts.epilogue.residual:
            o.append(f"  ts_vu r = {_twins(f'z + {at}', n, m.width)};")
        for name, there in (("b", facts.epilogue.bias), ("r", facts.epilogue.residual)):
            if there:
                values = [f"{values[0]} + (ts_vf)({name} << 16)", f"{values[1]} + (ts_vf)({name} & 0xffff0000u)"]
        if facts.epilogue.activation != "none":
            values = [f"{MARK}_act({value})" for value in values]
        o.append(f"  ts_vu even = __builtin_convertvector(ts_narrow_bf16({values[0]}), ts_vu);")
        o.append(f"  ts_vu odd = __builtin_convertvector(ts_narrow_bf16({values[1]}), ts_vu);")
        both = "(ts_vf)(even | odd << 16)"
        if n < m.width:
            o.append(f"  ts_store_n_fp32(y + {at}, {both}, {n}); }}")
        else:
            o.append(f"  {f'{MARK}_STREAM' if facts.stream else 'ts_store_fp32'}(y + {at}, {both}); }}")
    return o


def _splat_row(facts: TileFacts, users: Users, spots: Spots, tail: bool) -> list[str]:
    """Wide groups: for each tap and input channel, spread the inputs of all columns and share the weights."""
    m, o = facts.lanes, []
    count = len(m.lanes(tail))
    taps = sorted({s for _, meets, _ in spots for _, s in meets})
    whole = m.inner // 2 if m.pairs else m.inner
    for i, line in users:
        for s in taps:
            cells = [(j, p, inside) for p, meets, inside in spots for j, tap in meets if tap == s]
            cells = [cell for cell in cells if cell[2] or facts.zero_products]
            if not cells:
                continue
            o.append(f"  {{ const ts_vf *u = w + ({line} + {s}) * {m.steps * m.vectors};")
            o.append(f"  for (int c = 0; c < {whole}; c++, u += {m.vectors}) {{")
            o += [*_splat_step(facts, i, cells, count, "c", last=False), "  }"]
            if whole < m.steps:
                o += _splat_step(facts, i, cells, count, str(whole), last=True)
            o.append("  }")
    return o


def _splat_step(
    facts: TileFacts, i: int, cells: list[tuple[int, int, bool]], count: int, c: str, last: bool
) -> list[str]:
    o = [f"  ts_vf w{v} = u[{v}];" for v in range(count)]
    for j, p, inside in cells:
        at = f"x + ({p * facts.x_step} + {c}{' * 2' if facts.lanes.pairs else ''})"
        if facts.lanes.pairs:
            v = f"ts_{'last' if last else 'pair'}_bf16({at})" if inside else "(ts_vi){0}"
        else:
            v = f"ts_splat(ts_get_{facts.x_dtype}({at}))" if inside else "(ts_vf){0}"
        o.append(f"  {{ {'ts_vi' if facts.lanes.pairs else 'ts_vf'} v = {v};")
        o += [_multiply(facts, f"a{i}_{j}_{k}", "v", f"w{k}") for k in range(count)] + ["  }"]
    return ["  {", *o, "  }"]


def _load(facts: TileFacts, at: int, n: int) -> str:
    if facts.lanes.pairs:
        return f"(ts_vi){_read('fp32', f'x + ({at})', n, facts.lanes.width)}"
    return _read(facts.x_dtype, f"x + ({at})", n, facts.lanes.width)


def _read(dtype: str, at: str, n: int, width: int) -> str:
    return f"ts_load_{dtype}({at})" if n == width else f"ts_load_n_{dtype}({at}, {n})"


def _finish(facts: TileFacts, cells: list[tuple[int, int]], tail: bool) -> list[str]:
    """Epilogue and stores."""
    m, o = facts.lanes, []
    for v, n in enumerate(m.lanes(tail)):
        full = n == m.width
        if facts.epilogue.bias:
            o.append(f"  ts_vf b{v} = {_read(facts.y_dtype, f'bias + {v * m.width}', n, m.width)};")
        for i, j in cells:
            at = f"{i * facts.y_row + j * facts.y_step + v * m.width}"
            value = f"a{i}_{j}_{v}"
            if facts.epilogue.bias:
                value += f" + b{v}"
            if facts.epilogue.residual:
                load = _read(facts.y_dtype, f"z + {at}", n, m.width)
                value += f" + {load}"
            if facts.epilogue.activation != "none":
                value = f"{MARK}_act({value})"
            if facts.stream and full and not m.twin:
                store = f"{MARK}_STREAM(y + {at}, {value});"
            elif full:
                store = f"ts_store_{facts.y_dtype}(y + {at}, {value});"
            else:
                store = f"ts_store_n_{facts.y_dtype}(y + {at}, {value}, {n});"
            o.append(f"  {store}")
    return o
