"""C text of the sum that ends the dense weight gradient: splits are added, tiles are written as a filter."""

from __future__ import annotations

from tilesmith.codegen.symbols import MARK
from tilesmith.solvers.c.grouped.kernel import C_TYPES, PICK
from tilesmith.solvers.c.wrw.tiling import WrwTiling


def sum_body(t: WrwTiling) -> str:
    """Sums the splits of one tile an item and writes it with the filter's strides. Pointers: partial sums, dw.

    Tiles have ``k`` in lanes, filters mostly ``c``: blocks of lanes x lanes are transposed in registers.
    """
    pr, w, n = t.problem, t.problem.w, t.lanes
    lines = ", ".join(str(e.t * w.strides[2] + e.r * w.strides[3] + e.s * w.strides[4]) for e in t.lines)
    whole = pr.groups * t.tiles * t.tile_elements
    in_order = w.strides[1] == 1 and (not t.merged or pr.filter[2] == 1 or w.strides[4] == t.fan_c)
    if in_order:
        write = [
            f"          {C_TYPES[w.dtype]} *at_k = to + (k + j) * {w.strides[0]} + m * {t.mr} + i;",
            f"          if (count == {n}) ts_store_{w.dtype}(at_k, v[j]); else ts_store_n_{w.dtype}(at_k, v[j],"
            f" count);",
        ]
    else:
        place = (
            f"e / {t.fan_c} * {w.strides[4]} + e % {t.fan_c} * {w.strides[1]}" if t.merged else f"e * {w.strides[1]}"
        )
        write = [
            f"          {C_TYPES[w.dtype]} *at_k = to + (k + j) * {w.strides[0]}, part[{n}];",
            f"          ts_store_{w.dtype}(part, v[j]);",
            f"          for (int l = 0; l < count; l++) {{ ts_i64 e = m * {t.mr} + i + l; at_k[{place}] = part[l]; }}",
        ]
    return "\n".join([
        PICK,
        _transpose(n),
        f"void {MARK}(void *const *p, const ts_i64 *s, void *scratch, ts_i64 begin, ts_i64 end) {{",
        "  (void)scratch;",
        f"  static const ts_i64 line[] = {{{lines}}};",
        "  for (ts_i64 item = begin; item < end; item++) {",
        f"    ts_i64 g = item / {t.tiles}, at = item % {t.tiles}, kb = at / {t.line_tiles};",
        f"    ts_i64 l = at % {t.line_tiles} / {t.m_blocks}, m = at % {t.m_blocks};",
        f"    int rows = (int)({t.run} - m * {t.mr} < {t.mr} ? {t.run} - m * {t.mr} : {t.mr});",
        f"    int cols = (int)({t.fan_k} - kb * {t.nr} < {t.nr} ? {t.fan_k} - kb * {t.nr} : {t.nr});",
        f"    const float *from = (const float *)p[0] + item * {t.tile_elements};",
        f"    {C_TYPES[w.dtype]} *to = ({C_TYPES[w.dtype]} *)p[1] + line[l] + (g * {t.fan_k} + kb * {t.nr}) *"
        f" {w.strides[0]};",
        f"    for (int k = 0; k < cols; k += {n})",
        f"      for (int i = 0; i < rows; i += {n}) {{",
        f"        int count = rows - i < {n} ? rows - i : {n}, wide = cols - k < {n} ? cols - k : {n};",
        f"        ts_vf v[{n}];",
        f"        for (int j = 0; j < {n}; j++) v[j] = (ts_vf){{0}};",
        "        for (ts_i64 q = 0; q < s[0]; q++)",
        f"          for (int j = 0; j < count; j++) v[j] += ts_load_fp32(from + q * {whole} + (i + j) * {t.nr} + k);",
        f"        {MARK}_transpose(v);",
        "        for (int j = 0; j < wide; j++) {",
        *write,
        "        }",
        "      }",
        "  }",
        "}",
        "",
    ])  # fmt: skip


def _transpose(n: int) -> str:
    """``v[i][j]`` becomes ``v[j][i]``: halves of pairs of vectors change places, at every distance once."""
    o = [f"TS_INLINE void {MARK}_transpose(ts_vf *v) {{", "  ts_vf a;"]
    distance = n // 2
    while distance:
        low = ", ".join(str(n + (i ^ distance) if i & distance else i) for i in range(n))
        high = ", ".join(str(n + i if i & distance else i ^ distance) for i in range(n))
        for i in range(n):
            if not i & distance:
                one, two = f"v[{i}]", f"v[{i + distance}]"
                o.append(f"  a = {MARK}_PICK({one}, {two}, {low});")
                o.append(f"  {two} = {MARK}_PICK({one}, {two}, {high}), {one} = a;")
        distance //= 2
    return "\n".join([*o, "}"])
