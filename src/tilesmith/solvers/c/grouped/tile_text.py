"""The innermost text of a direct grouped convolution: one tile of rows x columns x vectors, held in registers.

All positions inside a tile are constants. Columns whose taps leave the image have functions of their own; input rows
outside it arrive as a row of zeros (``fwd``, where padding takes part in products) or as a null pointer (``bwd``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilesmith.codegen.symbols import MARK
from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.c.common.axis import AxisPhase, Columns, Spot, spots
from tilesmith.solvers.c.common.lanes import LaneMap
from tilesmith.solvers.c.common.text import CACHE_LINE, channels_of_a_pixel, load, operand, store
from tilesmith.solvers.c.grouped.tile import UNROLLED, GroupedTile, Row, Strips
from tilesmith.solvers.solver import cached_property

Users = list[tuple[int, str]]  # result rows, and C for the filter row that each meets


@dataclass(frozen=True)
class TileText:
    """``static void name(q, xo, w, y, z, bias)`` for ``kind.rows`` x ``columns.width`` results of one block.

    ``q`` holds the input rows, ``xo`` the offset of the tile's first column and channel in them.
    """

    t: GroupedTile
    kind: Strips
    width: AxisPhase
    columns: Columns
    tail: bool

    @cached_property
    def m(self) -> LaneMap:
        return self.t.lanes

    @cached_property
    def x_step(self) -> int:
        """From one input column to the next, in elements."""
        return self.t.x.strides[4]

    @cached_property
    def twin(self) -> bool:
        return self.m.twin_in(self.tail)

    @cached_property
    def spots(self) -> tuple[Spot, ...]:
        return spots(self.width, self.columns)

    @cached_property
    def multiplied(self) -> tuple[Spot, ...]:
        """Input columns that take part in products."""
        return tuple(spot for spot in self.spots if spot.inside or self.t.zero_products)

    def lines(self, name: str, rows: tuple[Row, ...]) -> str:
        """The whole function."""
        t, m, count = self.t, self.m, len(self.m.lanes(self.tail))
        o = [
            f"TS_NOINLINE void {name}(const {MARK}_x *const *q, ts_i64 xo, const ts_vf *w, {MARK}_y *y,"
            f" const {MARK}_y *z, const {MARK}_y *bias) {{",
            "  (void)q, (void)xo, (void)w, (void)z, (void)bias;",
        ]
        if t.problem.epilogue.residual:
            o += self._fetch_residual()
        if t.ahead and rows and not m.splat:
            o += self._fetch_next(rows)
        o += [
            f"  ts_vf a{i}_{j}_{v} = {{0}};"
            for i in range(self.kind.rows) for j in range(self.columns.width) for v in range(count)
        ]  # fmt: skip
        filter_width = t.problem.filter[2]
        meets = sum(len(spot.meets) for spot in self.spots)
        if self.kind.rows == 1 and len(rows) * meets * m.steps * count > UNROLLED:
            firsts = ", ".join(str(row.users[0][1]) for row in rows)
            o.append(f"  static const int line[{len(rows)}] = {{{firsts}}};")
            o.append(f"  for (int i = 0; i < {len(rows)}; i++) {{")
            o += [*self._row("i", [(0, f"line[i] * {filter_width}")]), "  }"]
        else:
            for at, row in enumerate(rows):
                o += ["  {", *self._row(str(at), [(i, str(r * filter_width)) for i, r in row.users]), "  }"]
        return "\n".join([*o, *(self._finish_twins() if self.twin else self._finish()), "}"]) + "\n"

    def _fetch_residual(self) -> list[str]:
        """Ask for the lines that the tile adds, into the second-level cache: see notes.md."""
        lanes = self.m.lanes(self.tail)
        nbytes = lanes[0] * 4 if self.twin else sum(lanes) * dtype(self.t.y.dtype).nbytes
        return [
            f"  __builtin_prefetch((const char *)(z + {place}) + {byte}, 0, 2);"
            for _, _, place in self._places()
            for byte in range(0, nbytes, CACHE_LINE)
        ]

    def _fetch_next(self, rows: tuple[Row, ...]) -> list[str]:
        """Ask for the inputs that the strip below this one reads first: a strip's time is what memory needs."""
        new = self.kind.rows * self.kind.height.in_step
        last, lowest = max(row.depth for row in rows), max(row.height for row in rows) - new
        return [
            f"  TS_PREFETCH(q[{at}] + xo + {j * self.x_step + new * self.t.x.strides[3]});"
            for at, row in enumerate(rows)
            if row.depth == last and row.height > lowest
            for j in range(self.columns.width * self.width.in_step)
        ]

    def _row(self, at: str, users: Users) -> list[str]:
        """The products of one input row; a row outside the image has none in ``bwd``."""
        test = "" if self.t.zero_products else f"if (q[{at}]) "
        body = self._splat_row if self.m.splat else self._twin_row if self.twin else self._lanes_row
        return [f"  {test}{{", f"  const {MARK}_x *x = q[{at}] + xo; (void)x;", *body(users), "  }"]

    def _multiply(self, acc: str, x: str, w: str) -> str:
        if self.m.pairs:
            return f"  {acc} = ts_dot_bf16({acc}, {x}, (ts_vi){w});"
        return f"  {acc} += {x} * {w};"

    def _lanes_row(self, users: Users) -> list[str]:
        """Narrow groups: load the pixel's channels once, shuffle them for each step."""
        m, o = self.m, []
        vector = "ts_vi" if m.pairs else "ts_vf"
        for spot in self.multiplied:
            o.append("  {")
            pixel = channels_of_a_pixel(m, self.t.x.dtype, "x", "x", spot.at * self.x_step, self.tail, spot.inside)
            o += [f"  {line}" for line in pixel]
            for step in range(m.steps):
                o.append(f"  {{ {vector} v = {operand(m, 'x', step, self.tail, spot.inside)};")
                for i, line in users:
                    for j, s in spot.meets:
                        weight = f"w[(({line} + {s}) * {m.steps} + {step}) * {m.vectors}]"
                        o.append(self._multiply(f"a{i}_{j}_0", "v", weight))
                o.append("  }")
            o.append("  }")
        return o

    def _twin_row(self, users: Users) -> list[str]:
        """Depthwise bf16: a 32-bit lane holds two channels; a shift widens the even one, a mask the odd one."""
        o = []
        for spot in self.multiplied:
            u = self._twins(f"x + ({spot.at * self.x_step})") if spot.inside else "(ts_vu){0}"
            o.append(f"  {{ ts_vu u = {u}; ts_vf v0 = (ts_vf)(u << 16), v1 = (ts_vf)(u & 0xffff0000u);")
            for i, line in users:
                for j, s in spot.meets:
                    o += [f"  a{i}_{j}_{v} += v{v} * w[({line} + {s}) * 2 + {v}];" for v in range(2)]
            o.append("  }")
        return o

    def _splat_row(self, users: Users) -> list[str]:
        """Wide groups: for each tap and input channel, spread the inputs of all columns and share the weights."""
        m, o = self.m, []
        whole = m.inner // 2 if m.pairs else m.inner
        for i, line in users:
            for s in sorted({s for spot in self.spots for _, s in spot.meets}):
                cells = [(j, spot) for spot in self.multiplied for j, tap in spot.meets if tap == s]
                if not cells:
                    continue
                o.append(f"  {{ const ts_vf *u = w + ({line} + {s}) * {m.steps * m.vectors};")
                o.append(f"  for (int c = 0; c < {whole}; c++, u += {m.vectors}) {{")
                o += [*self._splat_step(i, cells, "c"), "  }"]
                if whole < m.steps:
                    o += self._splat_step(i, cells, str(whole), last=True)
                o.append("  }")
        return o

    def _splat_step(self, i: int, cells: Iterable[tuple[int, Spot]], c: str, last: bool = False) -> list[str]:
        pairs, count = self.m.pairs, len(self.m.lanes(self.tail))
        kind = "ts_vi" if pairs else "ts_vf"
        o = [f"  ts_vf w{v} = u[{v}];" for v in range(count)]
        for j, spot in cells:
            at = f"x + ({spot.at * self.x_step} + {c}{' * 2' if pairs else ''})"
            spread = f"ts_{'last' if last else 'pair'}_bf16({at})" if pairs else (
                f"ts_splat(ts_get_{self.t.x.dtype}({at}))"
            )  # fmt: skip
            o.append(f"  {{ {kind} v = {spread if spot.inside else f'({kind}){{0}}'};")
            o += [self._multiply(f"a{i}_{j}_{k}", "v", f"w{k}") for k in range(count)] + ["  }"]
        return ["  {", *o, "  }"]

    def _places(self) -> list[tuple[int, int, int]]:
        """Result rows and columns of the tile, and where each lies in the result."""
        y = self.t.y.strides
        down, right = self.kind.height.out_step * y[3], self.width.out_step * y[4]
        return [(i, j, i * down + j * right) for i in range(self.kind.rows) for j in range(self.columns.width)]

    def _act(self, value: str) -> str:
        return value if self.t.problem.epilogue.activation == "none" else f"{MARK}_act({value})"

    def _finish(self) -> list[str]:
        """Epilogue and stores."""
        m, kind, epilogue, o = self.m, self.t.y.dtype, self.t.problem.epilogue, []
        for v, n in enumerate(m.lanes(self.tail)):
            if epilogue.bias:
                o.append(f"  ts_vf b{v} = {load(kind, f'bias + {v * m.width}', n, m.width)};")
            for i, j, place in self._places():
                at, value = place + v * m.width, f"a{i}_{j}_{v}"
                if epilogue.bias:
                    value += f" + b{v}"
                if epilogue.residual:
                    value += f" + {load(kind, f'z + {at}', n, m.width)}"
                value = self._act(value)
                if self.t.stream and n == m.width and not m.twin:
                    o.append(f"  {MARK}_STREAM(y + {at}, {value});")
                else:
                    o.append(f"  {store(kind, f'y + {at}', value, n, m.width)}")
        return o

    def _twins(self, at: str) -> str:
        return f"(ts_vu){load('fp32', at, self.m.lanes(self.tail)[0], self.m.width)}"

    def _finish_twins(self) -> list[str]:
        """Epilogue and stores of two vectors whose channels take turns."""
        m, epilogue, n = self.m, self.t.problem.epilogue, self.m.lanes(self.tail)[0]
        o = [f"  ts_vu b = {self._twins('bias')};"] if epilogue.bias else []
        for i, j, at in self._places():
            values = [f"a{i}_{j}_0", f"a{i}_{j}_1"]
            o.append("  {")
            if epilogue.residual:
                o.append(f"  ts_vu r = {self._twins(f'z + {at}')};")
            for name, there in (("b", epilogue.bias), ("r", epilogue.residual)):
                if there:
                    values = [f"{values[0]} + (ts_vf)({name} << 16)", f"{values[1]} + (ts_vf)({name} & 0xffff0000u)"]
            for name, value in zip(("even", "odd"), values, strict=True):
                narrow = f"ts_narrow_bf16({self._act(value)})"
                o.append(f"  ts_vu {name} = __builtin_convertvector({narrow}, ts_vu);")
            both, place = "(ts_vf)(even | odd << 16)", f"y + {at}"
            streamed = self.t.stream and n == m.width
            stored = f"{MARK}_STREAM({place}, {both});" if streamed else store("fp32", place, both, n, m.width)
            o.append(f"  {stored} }}")
        return o
