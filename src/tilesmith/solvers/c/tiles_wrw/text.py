"""C text: two kernels that lay dy and x out for the tiles, and the kernel that multiplies them."""

from __future__ import annotations

from tilesmith.codegen.symbols import MARK
from tilesmith.solvers.c.common.text import C_TYPES, ENTRY, braced
from tilesmith.solvers.c.common.tile_registers import DEEP, REGISTER, WIDE
from tilesmith.solvers.c.common.turn_text import LOOK, NOTE, TURNED
from tilesmith.solvers.c.tiles_wrw.tile import WrwTiles


def dy_text(t: WrwTiles) -> str:
    """Pointers: dy, note, lines. An item is 32 pixels of an image's plane of depth, all channels."""
    g, (_, cols) = t.problem, t.plane_size
    n, _, d, h, w = g.y.strides
    return f"""{LOOK}{TURNED}{ENTRY}
  ts_vi bad = {{0}};
  (void)s, (void)scratch;
  for (ts_i64 item = begin; item < end; item++) {{
    const ts_i64 l = item % {t.steps} * {DEEP}, place = item / {t.steps};
    const ts_u16 *dy = (const ts_u16 *)p[0] + place / {g.output[0]} * {n}LL + place % {g.output[0]} * {d}LL;
    ts_u16 *lines = (ts_u16 *)p[2] + place * {t.dy_channels * t.line}LL + l;
    for (int k = 0; k < {t.dy_channels}; k += {WIDE}) {{
      const int lanes = {g.k} - k < {WIDE} ? {g.k} - k : {WIDE};
      ts_vi m[{WIDE}];
      for (int i = 0; i < {WIDE}; i++) {{
        const ts_i64 y = (l + 2 * i) / {cols}, x = (l + 2 * i) % {cols};
        const ts_u16 *a = dy + y * {h}LL + x * {w}LL + k;
        const int row = lanes > 0 && y < {g.output[1]};
        const ts_vh low = row && x < {g.output[2]} ? ts_load_n_half(a, lanes) : (ts_vh){{0}};
        const ts_vh high = row && x + 1 < {g.output[2]} ? ts_load_n_half(a + {w}LL, lanes) : (ts_vh){{0}};
        const ts_vu v = __builtin_convertvector(low, ts_vu) | __builtin_convertvector(high, ts_vu) << 16;
        {MARK}_look(v, &bad);
        m[i] = (ts_vi)v;
      }}
      {MARK}_turned(m);
      for (int j = 0; j < {WIDE} && k + j < {t.dy_channels}; j++)
        *(ts_vi_at *)(lines + (k + j) * {t.line}LL) = m[j];
    }}
  }}
{NOTE}}}
"""


def x_text(t: WrwTiles) -> str:
    """Pointers: x, note, pairs. An item is a row of one plane of a set of pairs; the last one has the rest."""
    g, (rows, cols) = t.problem, t.plane_size
    n, _, d, h, w = g.x.strides
    (down, across), sets = t.planes, [braced((plane, odd)) for plane, odd in t.sets]
    pixel = f"""const ts_u16 *{MARK}_pixel(const ts_u16 *x, ts_i64 a, int ry, int rx) {{
  const ts_i64 y = a / {cols} * {down} + ry - {g.padding[1]}, z = a % {cols} * {across} + rx - {g.padding[2]};
  const int inside = y >= 0 && y < {g.input[1]} && z >= 0 && z < {g.input[2]};
  return inside && a / {cols} < {rows} ? x + y * {h}LL + z * {w}LL : 0;
}}
"""
    return f"""static const int {MARK}_sets[{len(sets)}][2] = {{{", ".join(sets)}}};
{LOOK}TS_INLINE {pixel}{ENTRY}
  ts_vi bad = {{0}};
  (void)s, (void)scratch;
  for (ts_i64 item = begin; item < end; item++) {{
    const ts_i64 row = item % {rows}, rest = item / {rows}, set = rest % {len(sets)}, place = rest / {len(sets)};
    const ts_u16 *x = (const ts_u16 *)p[0] + place / {g.input[0]} * {n}LL + place % {g.input[0]} * {d}LL;
    const int ry = {MARK}_sets[set][0] / {across}, rx = {MARK}_sets[set][0] % {across}, odd = {MARK}_sets[set][1];
    const ts_i64 last = row == {rows - 1} ? {t.pairs} : (row + 1) * {cols // 2};
    ts_u16 *to = (ts_u16 *)p[2] + (place * {len(sets)} + set) * {2 * t.pairs * t.x_channels}LL;
    for (ts_i64 q = row * {cols // 2}; q < last; q++) {{
      const ts_u16 *a = {MARK}_pixel(x, 2 * q + odd, ry, rx), *b = {MARK}_pixel(x, 2 * q + odd + 1, ry, rx);
      ts_u16 *pair = to + q * {2 * t.x_channels}LL;
      for (int c = 0; c < {g.c}; c += {WIDE}) {{
        const int lanes = {g.c} - c < {WIDE} ? {g.c} - c : {WIDE};
        const ts_vh low = a ? ts_load_n_half(a + c, lanes) : (ts_vh){{0}};
        const ts_vh high = b ? ts_load_n_half(b + c, lanes) : (ts_vh){{0}};
        const ts_vu v = __builtin_convertvector(low, ts_vu) | __builtin_convertvector(high, ts_vu) << 16;
        {MARK}_look(v, &bad);
        *(ts_vi_at *)(pair + 2 * c) = (ts_vi)v;
      }}
    }}
  }}
{NOTE}}}
"""


def run_text(t: WrwTiles) -> str:
    """Pointers: lines, note, pairs, dw; integers: images. An item is a tile of one tap, or of all taps: then they go
    through a part of a line, which stays near the core, before the next, and sums wait in memory meanwhile."""
    g, (kb, cb), (k, c) = t.problem, t.blocks, t.channels
    wk, wc, wd, wh, ww = g.w.strides
    per_plane, taps = g.filter[1] * g.filter[2], t.taps
    shifts = [braced((t.sets.index((each.plane, each.odd)), (each.pixels - each.odd) // 2)) for each in t.shifts]
    sums, pitch = t.tiles_m * t.tiles_n, WIDE * t.tiles_n
    place = f"dw + i * {wk}LL + j * {wc}LL"
    if wc == 1:
        out = f"""for (int j = 0, n = across; j < across; j += {WIDE}, n -= {WIDE})
          ts_store_n_{g.w.dtype}({place}, *(const ts_vf_at *)(c + i * {pitch} + j), n < {WIDE} ? n : {WIDE});"""
    else:
        out = f"for (int j = 0; j < across; j++) ts_put_{g.w.dtype}({place}, c[i * {pitch} + j]);"
    block = "item" if t.line_steps else f"item / {taps}"
    begin, end = ("0", str(taps)) if t.line_steps else ("tap0", "tap0 + 1")
    part = t.line_steps or t.steps
    clear = f"    __builtin_memset(sums, 0, {taps * sums * REGISTER});\n" if t.line_steps else ""
    return f"""static const int {MARK}_shifts[{per_plane}][2] = {{{", ".join(shifts)}}};
{_product_text(t)}{ENTRY}
  if (*(const int *)p[1]) return; /* an element is not finite: the reference kernel does it */
  ts_tiles *tiles = (ts_tiles *)(((ts_uptr)scratch + 63) / 64 * 64);
  ts_f32 *sums = (ts_f32 *)((char *)tiles + {8 * REGISTER});
  TS_TILE_BEGIN({WIDE}, 8);
  for (ts_i64 item = begin; item < end; item++) {{
    const int tap0 = {"0" if t.line_steps else f"(int)(item % {taps})"};
    const ts_i64 block = {block}, g = block / {kb * cb};
    const int k0 = (int)(block / {cb} % {kb}) * {WIDE * t.tiles_m}, c0 = (int)(block % {cb}) * {pitch};
{clear}    {"" if t.line_steps else " ".join(f"TS_TILE_ZERO({number});" for number in range(sums))}
    for (ts_i64 place = 0; place < s[0] * {g.output[0]}; place++)
      for (int first = 0; first < {t.steps}; first += {part})
        for (int tap = {begin}; tap < {end}; tap++) {{
          const int *shift = {MARK}_shifts[tap % {per_plane}];
          const ts_i64 depth
            = place % {g.output[0]} * {g.stride[0]} + tap / {per_plane} * {g.dilation[0]} - {g.padding[0]};
          if (depth < 0 || depth >= {g.input[0]}) continue;
          const ts_u16 *a
            = (const ts_u16 *)p[0] + (place * {t.dy_channels} + g * {k} + k0) * {t.line}LL + first * {DEEP};
          const ts_u16 *b = (const ts_u16 *)p[2] + 2 * (g * {c} + c0)
            + (((place / {g.output[0]} * {g.input[0]} + depth) * {len(t.sets)} + shift[0]) * {t.pairs}LL + shift[1]
            + first * {DEEP // 2}) * {2 * t.x_channels}LL;
          const int steps = {t.steps} - first < {part} ? {t.steps} - first : {part};
          {MARK}_product(a, b, steps, tiles, sums + (tap - tap0) * {sums * REGISTER // 4});
        }}
    {"" if t.line_steps else _moved(t, "STORE", "sums")}
    for (int tap = {begin}; tap < {end}; tap++) {{
      const ts_f32 *c = sums + (tap - tap0) * {sums * REGISTER // 4};
      const int rows = {k} - k0 < {WIDE * t.tiles_m} ? {k} - k0 : {WIDE * t.tiles_m};
      const int across = {c} - c0 < {pitch} ? {c} - c0 : {pitch};
      {C_TYPES[g.w.dtype]} *dw = ({C_TYPES[g.w.dtype]} *)p[3] + (g * {k} + k0) * {wk}LL + c0 * {wc}LL
        + tap / {per_plane} * {wd}LL + tap % {per_plane} / {g.filter[2]} * {wh}LL + tap % {g.filter[2]} * {ww}LL;
      for (int i = 0; i < rows; i++) {{
      {out}
      }}
    }}
  }}
  TS_TILE_END();
}}
"""


def _product_text(t: WrwTiles) -> str:
    """Adds products of part of a line to the sums: in registers, or where they wait in memory."""
    m_side, n_side, first_a = range(t.tiles_m), range(t.tiles_n), t.tiles_m * t.tiles_n
    first_b = first_a + t.tiles_m
    load = [f"    TS_TILE_LOAD({first_a + m}, a + {m * WIDE * t.line}LL, {2 * t.line});" for m in m_side]
    for n in n_side:
        load.append(f"    TS_TILE_LOAD({first_b + n}, b + {n * 2 * WIDE}, {4 * t.x_channels});")
        load += [f"    TS_TILE_DOT({m * t.tiles_n + n}, {first_a + m}, {first_b + n});" for m in m_side]
    steps = "\n".join(load)
    before, after = (_moved(t, how, "c") if t.line_steps else "" for how in ("LOAD", "STORE"))
    return f"""TS_NOINLINE void {MARK}_product(
  const ts_u16 *a, const ts_u16 *b, int steps, ts_tiles *tiles, ts_f32 *c) {{
  (void)tiles, (void)c;
  {before}
  for (int i = 0; i < steps; i++, a += {DEEP}, b += {DEEP * t.x_channels}LL) {{
{steps}
  }}
  {after}
}}
"""


def _moved(t: WrwTiles, how: str, place: str) -> str:
    """Moves the registers of sums from or to memory: rows of all channels of x, for 16 channels of dy and the next."""
    pitch = WIDE * t.tiles_n
    return " ".join(
        f"TS_TILE_{how}({m * t.tiles_n + n}, {place} + {m * WIDE * pitch + n * WIDE}, {4 * pitch});"
        for m in range(t.tiles_m)
        for n in range(t.tiles_n)
    )
