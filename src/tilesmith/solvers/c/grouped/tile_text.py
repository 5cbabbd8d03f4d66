"""The innermost text of a direct grouped convolution: one tile of rows x columns x vectors, held in registers.

All positions inside a tile are constants. Columns whose taps leave the image have functions of their own, in compact
texts one that asks for each position; input rows outside the image arrive as a row of zeros (``fwd``, where padding
takes part in products) or as a null pointer (``bwd``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilesmith.codegen.symbols import MARK
from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.c.common.axis import AxisPhase, Columns, Spot, spots
from tilesmith.solvers.c.common.lanes import LaneMap
from tilesmith.solvers.c.common.text import CACHE_LINE, channels_of_a_pixel, load, operand, store
from tilesmith.solvers.c.grouped.tile import GroupedTile, Row, Strips
from tilesmith.solvers.solver import cached_property

Users = tuple[tuple[int, int], ...]  # result rows, and the filter row that each meets

# gcc would keep the weights that the next row meets too: in memory, as there are more than registers.
_OPAQUE = '__asm__("" : "+r"(f));'


@dataclass(frozen=True)
class TileText:
    """``static void name(q, xo, u, w, y, z, bias)`` for ``kind.rows`` x ``columns[0].width`` results of one block.

    ``q`` holds the input rows, ``xo`` the offset of the tile's first column and channel in them, ``u`` that column.
    """

    t: GroupedTile
    kind: Strips
    width: AxisPhase
    columns: tuple[Columns, ...]  # whose text this is
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
        return spots(self.width, *self.columns)

    @cached_property
    def multiplied(self) -> tuple[Spot, ...]:
        """Input columns that take part in products."""
        return tuple(spot for spot in self.spots if spot.inside or self.t.zero_products)

    def lines(self, name: str, rows: tuple[Row, ...]) -> str:
        """The whole function."""
        t, m, count = self.t, self.m, len(self.m.lanes(self.tail))
        o = [
            f"TS_NOINLINE void {name}(const {MARK}_x *const *q, ts_i64 xo, ts_i64 u, const ts_vf *w, {MARK}_y *y,"
            f" const {MARK}_y *z, const {MARK}_y *bias) {{",
            "  (void)q, (void)xo, (void)u, (void)w, (void)z, (void)bias;",
        ]
        if t.problem.epilogue.residual:
            o += self._fetch_residual()
        if t.ahead and rows and not m.splat:
            o += self._fetch_next(rows)
        o += [
            f"  ts_vf a{i}_{j}_{v} = {{0}};"
            for i in range(self.kind.rows) for j in range(self.columns[0].width) for v in range(count)
        ]  # fmt: skip
        o += self._rows(rows)
        return "\n".join([*o, *self._finish(), "}"]) + "\n"

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
            for j in range(self.columns[0].width * self.width.in_step)
        ]

    def _rows(self, rows: tuple[Row, ...]) -> list[str]:
        """The products of all input rows; in a compact text depths, and rows that meet alike, are loops."""
        kind, (_, height, width) = self.kind, self.t.problem.filter
        if not self.t.compact:
            unrolled = (line for at, row in enumerate(rows) for line in self._row(str(at), row.users))
            return ["  const ts_vf *f = w;", *unrolled]
        depths, tap = len(kind.depth.taps), self.m.steps * self.m.vectors
        o = [f"  for (int d = 0; d < {depths}; d++) {{"]
        for run in kind.runs(height):
            first = f"w + (i * {run.step} + d * {kind.depth_step(height)}) * {width * tap}"
            o += [
                f"  for (int i = 0; i < {run.count}; i++) {{",
                f"  const ts_vf *f = {first}; {_OPAQUE}",
                *self._row(f"d * {len(rows) // depths} + {run.first} + i", run.users),
                "  }",
            ]
        return [*o, "  }"]

    def _row(self, at: str, users: Users) -> list[str]:
        """The products of one input row; a row outside the image has none in ``bwd``."""
        test = "" if self.t.zero_products else f"if (q[{at}]) "
        body = self._splat_row if self.m.splat else self._twin_row if self.twin else self._lanes_row
        return [f"  {test}{{", f"  const {MARK}_x *x = q[{at}] + xo; (void)x;", *body(users), "  }"]

    def _begin(self, spot: Spot) -> str:
        """How the block of a position's products begins: padding takes part in products, or there are none."""
        return "  {" if self._zeros_unless(spot) or not spot.tested else f"  if ({self._there(spot)}) {{"

    def _zeros_unless(self, spot: Spot) -> str:
        """C: where a position that takes part in products in any case has an input; empty: known."""
        return self._there(spot) if spot.tested and self.t.zero_products else ""

    def _there(self, spot: Spot) -> str:
        """C: whether a position lies in the input."""
        return f"((ts_u64)(u * {self.width.in_step} + ({spot.at})) < {self.width.in_size})"

    def _multiply(self, acc: str, x: str, w: str) -> str:
        if self.m.pairs:
            return f"  {acc} = ts_dot_bf16({acc}, {x}, (ts_vi){w});"
        return f"  {acc} += {x} * {w};"

    def _lanes_row(self, users: Users) -> list[str]:
        """Narrow groups: load the pixel's channels once, shuffle them for each step."""
        m, o, width = self.m, [], self.t.problem.filter[2]
        vector = "ts_vi" if m.pairs else "ts_vf"
        for spot in self.multiplied:
            place, there = spot.at * self.x_step, self._zeros_unless(spot)
            pixel = channels_of_a_pixel(m, self.t.x.dtype, "x", "x", place, self.tail, spot.inside, there)
            o += [self._begin(spot), *(f"  {line}" for line in pixel)]
            for step in range(m.steps):
                o.append(f"  {{ {vector} v = {operand(m, 'x', step, self.tail, spot.inside)};")
                for i, r in users:
                    for j, s in spot.meets:
                        weight = f"f[{((r * width + s) * m.steps + step) * m.vectors}]"
                        o.append(self._multiply(f"a{i}_{j}_0", "v", weight))
                o.append("  }")
            o.append("  }")
        return o

    def _twin_row(self, users: Users) -> list[str]:
        """Depthwise bf16: a 32-bit lane holds two channels; a shift widens the even one, a mask the odd one."""
        o, width = [], self.t.problem.filter[2]
        for spot in self.multiplied:
            u, there = self._twins(f"x + ({spot.at * self.x_step})"), self._zeros_unless(spot)
            u = "(ts_vu){0}" if not spot.inside else f"{there} ? {u} : (ts_vu){{0}}" if there else u
            o.append(f"{self._begin(spot)} ts_vu b = {u}; ts_vf v0 = (ts_vf)(b << 16), v1 = (ts_vf)(b & 0xffff0000u);")
            for i, r in users:
                for j, s in spot.meets:
                    o += [f"  a{i}_{j}_{v} += v{v} * f[{(r * width + s) * 2 + v}];" for v in range(2)]
            o.append("  }")
        return o

    def _splat_row(self, users: Users) -> list[str]:
        """Wide groups: for each tap and input channel, spread the inputs of all columns and share the weights."""
        m, o, width = self.m, [], self.t.problem.filter[2]
        whole = m.inner // 2 if m.pairs else m.inner
        for i, r in users:
            for s in sorted({s for spot in self.spots for _, s in spot.meets}):
                cells = [(j, spot) for spot in self.multiplied for j, tap in spot.meets if tap == s]
                if not cells:
                    continue
                o.append(f"  {{ const ts_vf *g = f + {(r * width + s) * m.steps * m.vectors};")
                o += [
                    f"  const {MARK}_x *e{j} = {self._there(spot)} ? x + ({spot.at * self.x_step}) : {MARK}_zeros;"
                    for j, spot in cells
                    if spot.tested and self.t.zero_products
                ]
                o.append(f"  for (int c = 0; c < {whole}; c++, g += {m.vectors}) {{")
                o += [*self._splat_step(i, cells, "c"), "  }"]
                if whole < m.steps:
                    o += self._splat_step(i, cells, str(whole), last=True)
                o.append("  }")
        return o

    def _splat_step(self, i: int, cells: Iterable[tuple[int, Spot]], c: str, last: bool = False) -> list[str]:
        pairs, count = self.m.pairs, len(self.m.lanes(self.tail))
        kind = "ts_vi" if pairs else "ts_vf"
        o = [f"  ts_vf w{v} = g[{v}];" for v in range(count)]
        for j, spot in cells:
            first = f"e{j} + (" if spot.tested and self.t.zero_products else f"x + ({spot.at * self.x_step} + "
            at = f"{first}{c}{' * 2' if pairs else ''})"
            spread = f"ts_{'last' if last else 'pair'}_bf16({at})" if pairs else (
                f"ts_splat(ts_get_{self.t.x.dtype}({at}))"
            )  # fmt: skip
            skipped = f"if ({self._there(spot)}) " if spot.tested and not self.t.zero_products else ""
            o.append(f"  {skipped}{{ {kind} v = {spread if spot.inside else f'({kind}){{0}}'};")
            o += [self._multiply(f"a{i}_{j}_{k}", "v", f"w{k}") for k in range(count)] + ["  }"]
        return ["  {", *o, "  }"]

    def _places(self) -> list[tuple[int, int, int]]:
        """Result rows and columns of the tile, and where each lies in the result."""
        y = self.t.y.strides
        down, right = self.kind.height.out_step * y[3], self.width.out_step * y[4]
        return [(i, j, i * down + j * right) for i in range(self.kind.rows) for j in range(self.columns[0].width)]

    def _act(self, value: str) -> str:
        return value if self.t.problem.epilogue.activation == "none" else f"{MARK}_act({value})"

    def _finish(self) -> list[str]:
        """Epilogue and stores of all results."""
        m, end = self.m, self._end_twin if self.twin else self._end
        o, vectors = [], range(len(m.lanes(self.tail)))
        if self.t.problem.epilogue.bias:
            o += [f"  ts_vu b = {self._twins('bias')};"] if self.twin else [
                f"  ts_vf b{v} = {load(self.t.y.dtype, f'bias + {v * m.width}', m.lanes(self.tail)[v], m.width)};"
                for v in vectors
            ]  # fmt: skip
        results = [([f"a{i}_{j}_{v}" for v in vectors], place) for i, j, place in self._places()]
        if not self.t.results_looped:
            return o + [line for sums, place in results for line in end(sums, str(place))]
        rows = ", ".join(f"{{{', '.join(sums)}}}" for sums, _ in results)
        places = ", ".join(str(place) for _, place in results)
        return [
            *o,
            f"  ts_vf sums[{len(results)}][{len(vectors)}] = {{{rows}}};",
            f"  static const ts_i64 places[{len(results)}] = {{{places}}};",
            f"  for (int i = 0; i < {len(results)}; i++) {{",
            *end([f"sums[i][{v}]" for v in vectors], "places[i]"),
            "  }",
        ]

    def _end(self, sums: list[str], place: str) -> list[str]:
        """Epilogue and store of one result's vectors."""
        m, kind, epilogue, o = self.m, self.t.y.dtype, self.t.problem.epilogue, []
        for v, n in enumerate(m.lanes(self.tail)):
            at, value = f"{place} + {v * m.width}", sums[v]
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

    def _end_twin(self, sums: list[str], place: str) -> list[str]:
        """Epilogue and store of two vectors whose channels take turns."""
        m, epilogue, n = self.m, self.t.problem.epilogue, self.m.lanes(self.tail)[0]
        o, values = ["  {"], list(sums)
        if epilogue.residual:
            o.append(f"  ts_vu r = {self._twins(f'z + {place}')};")
        for name, there in (("b", epilogue.bias), ("r", epilogue.residual)):
            if there:
                values = [f"{values[0]} + (ts_vf)({name} << 16)", f"{values[1]} + (ts_vf)({name} & 0xffff0000u)"]
        for name, value in zip(("even", "odd"), values, strict=True):
            narrow = f"ts_narrow_bf16({self._act(value)})"
            o.append(f"  ts_vu {name} = __builtin_convertvector({narrow}, ts_vu);")
        both, at = "(ts_vf)(even | odd << 16)", f"y + {place}"
        streamed = self.t.stream and n == m.width
        stored = f"{MARK}_STREAM({at}, {both});" if streamed else store("fp32", at, both, n, m.width)
        return [*o, f"  {stored} }}"]
