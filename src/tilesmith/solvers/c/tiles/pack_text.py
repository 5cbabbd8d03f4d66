"""Packing: the strip of x that an item reads (each call), and the filter (once)."""

from __future__ import annotations

from tilesmith.codegen.symbols import MARK
from tilesmith.solvers.c.common.dense_items import NOTE_BYTES
from tilesmith.solvers.c.common.text import ENTRY, braced
from tilesmith.solvers.c.common.tile_registers import DEEP, WIDE
from tilesmith.solvers.c.common.turn_text import LOOK, NOTE, TURNED
from tilesmith.solvers.c.tiles.tile import ROWS, MatrixTile


def strip_text(t: MatrixTile) -> str:
    """Text of ``@SYM@_strip(x, d, z, y, x, rows, cols)``: positions outside the input become zeros, and so do the
    elements of a pixel behind its last product."""
    form = t.form
    gz, gy, gx = form.spacing
    _, _, sc, sd, sh, sw = form.x_strides
    zd, zh, zw = form.x_size
    down, across = t.planes
    step_x = form.step[2] // gx
    prows, pcols = t.plane_size
    depth, height, width = t.strip_size
    rest = t.steps * DEEP - t.run
    clear = f"__builtin_memset(b + {t.run}, 0, {2 * rest});" if rest else ""
    row_end = f"x0 + (cols - 1) * {form.step[2]} + 1" if form.flat else str(zw)
    if t.pack == ROWS:
        taps, gap = t.taps_in_run, max(form.phases[0].tap_spacing, 1)
        whole = gap * sw == form.c and sc == 1
        inside = f"at >= 0 && at + {(taps - 1) * gap} < size"
        one = f"""for (int s = 0; s < {taps}; s++) {{
          ts_i64 u = at + s * {gap};
          {_pixel(t, f'b + s * {form.c}', f'line + u * {sw}LL', 'u >= 0 && u < size')}
        }}"""
        copy = f"if ({inside}) __builtin_memcpy(b, line + at * {sw}LL, {2 * taps * form.c});\n        else {one}"
        body = f"""for (ts_i64 j = 0; j < cols; j++) {{
        const ts_i64 at = x0 + j * {form.step[2]};
        ts_u16 *b = d + j * {t.pixel};
        {copy if whole else one}
        {clear}
      }}"""
    elif sc != 1 and form.c != 1:
        # Channels lie apart: read along the row, write one channel of each pixel.
        body = f"""for (ts_i64 c = 0; c < {t.steps * DEEP}; c++) {{
        for (ts_i64 j = 0; j < width; j++) {{
          const ts_i64 at = x0 + j * {gx};
          d[{_place(across, prows, pcols, t.pixel)} + c]
            = c < {form.c} && at >= 0 && at < size ? line[at * {sw}LL + c * {sc}LL] : 0;
        }}
      }}"""
    else:
        body = f"""for (ts_i64 j = 0; j < width; j++) {{
        const ts_i64 at = x0 + j * {gx};
        ts_u16 *b = d + {_place(across, prows, pcols, t.pixel)};
        {_pixel(t, 'b', f'line + at * {sw}LL', 'at >= 0 && at < size')}
        {clear}
      }}"""
    plane = prows * pcols * t.pixel
    row = f"((k * {down} + i % {down}) * {across} * {prows} + i / {down}) * {pcols * t.pixel}LL"
    nothing = f"for (int u = 0; u < {across}; u++) __builtin_memset(d + u * {plane}LL, 0, {2 * pcols * t.pixel});"
    return f"""TS_NOINLINE void {MARK}_strip(
  const ts_u16 *x, ts_u16 *strip, ts_i64 z0, ts_i64 y0, ts_i64 x0, ts_i64 rows, ts_i64 cols) {{
  const ts_i64 h = (rows - 1) * {form.step[1] // gy} + {height - (t.rows - 1) * (form.step[1] // gy)};
  const ts_i64 width = (cols - 1) * {step_x} + {1 if t.pack == ROWS else width - (t.cols - 1) * step_x};
  const ts_i64 size = {row_end};
  (void)width;
  for (ts_i64 k = 0; k < {depth}; k++) {{
    const ts_i64 z = z0 + k * {gz};
    for (ts_i64 i = 0; i < h; i++) {{
      const ts_i64 y = y0 + i * {gy};
      ts_u16 *d = strip + {row};
      if (z < 0 || z >= {zd} || y < 0 || y >= {zh}) {{
        {nothing}
        continue;
      }}
      const ts_u16 *line = x + z * {sd}LL + y * {sh}LL;
      {body}
    }}
  }}
}}
"""


def _place(across: int, prows: int, pcols: int, pixel: int) -> str:
    """Where column ``j`` of a row of the strip lies."""
    if across == 1:
        return f"j * {pixel}"
    return f"j % {across} * {prows * pcols * pixel}LL + j / {across} * {pixel}"


def _pixel(t: MatrixTile, to: str, source: str, inside: str) -> str:
    """One pixel of contiguous channels."""
    nbytes = 2 * t.form.c
    return f"if ({inside}) __builtin_memcpy({to}, {source}, {nbytes}); else __builtin_memset({to}, 0, {nbytes});"


def filter_text(t: MatrixTile, noted: bool) -> str:
    """The text of the prepare kernel. Pointers: w, packed; integers: the filter's strides (group, k, c, d, h, w).

    An item is one segment of one block of output channels (of one phase and group): for each step and tile 16 rows of
    16 channels' pairs. Pairs of neighbours in memory are turned 16 x 16 at a time, and output channels that are
    neighbours are joined row by row. ``noted``: the note is written.
    """
    form = t.form
    taps: list[str] = []
    rows: list[str] = []
    for phase, start in zip(form.phases, t.phase_starts, strict=False):
        for number, first in enumerate(t.segments(phase)):
            rows.append(braced((len(taps), start, number, t.reduction(phase))))
            taps += [braced(tap.index) for tap in phase.taps[first : first + t.taps_in_run]]
    count, run, paired = max(len(rows), 1), t.steps * DEEP, t.taps_in_run == 1 or form.c % 2 == 0
    return f"""typedef struct {{
  int tap;
  ts_i64 w;
  int number;
  ts_i64 depth;
}} {MARK}_piece;
static const short {MARK}_taps[{max(len(taps), 1)}][3] = {{{", ".join(taps) or "{0}"}}};
static const {MARK}_piece {MARK}_pieces[{count}] = {{{", ".join(rows) or "{0}"}}};
{LOOK if noted else ""}{_pairs_text(t, noted) if paired else ""}{ENTRY}
{f"  ts_vi bad = {{0}};{chr(10)}" if noted else ""}  (void)scratch;
  for (ts_i64 item = begin; item < end; item++) {{
    const {MARK}_piece *e = {MARK}_pieces + item % {count};
    ts_i64 rest = item / {count}, kb = rest % {t.blocks}, g = rest / {t.blocks};
    int nr = kb < {t.full_blocks} ? {t.nr} : {max(t.tail_tiles, 1) * WIDE};
    int lanes = {form.k} - kb * {t.nr} < nr ? (int)({form.k} - kb * {t.nr}) : nr;
    ts_u16 *d = (ts_u16 *)((char *)p[1] + {NOTE_BYTES}) + g * {t.phase_starts[-1]}LL + e->w
      + kb * e->depth * {t.nr} + e->number * {run}LL * nr;
    __builtin_memset(d, 0, (ts_u64)({2 * run}LL * nr));
    for (int i = 0; i < {t.taps_in_run}; i++) {{
      const short *tap = {MARK}_taps[e->tap + i];
      for (int lane = 0; lane < lanes; lane += {WIDE}) {{
        const ts_u16 *from = (const ts_u16 *)p[0] + g * s[0] + (kb * {t.nr} + lane) * s[1]
          + tap[0] * s[3] + tap[1] * s[4] + tap[2] * s[5];
        ts_u16 *to = d + lane * {DEEP};
        const int n = lanes - lane < {WIDE} ? lanes - lane : {WIDE}, first = i * {form.c};
        {_fast_text(noted) if paired else ""}for (int c = 0; c < {form.c}; c++) {{
          const int row = first + c;
          ts_u16 *b = to + row / {DEEP} * (ts_i64)({DEEP} * nr) + row % {DEEP} / 2 * {2 * WIDE} + row % 2;
          for (int j = 0; j < n; j++) {{
            b[2 * j] = from[j * s[1] + c * s[2]];
            {"bad[0] |= (b[2 * j] & 0x7f80) == 0x7f80;" if noted else ""}
          }}
        }}
      }}
    }}
  }}
{NOTE if noted else ""}}}
"""


def _fast_text(noted: bool) -> str:
    more = ", nr" + ", &bad" * noted
    return f"""if (s[1] == 1) {{
          {MARK}_join(from, s[2], to, first, n{more});
          continue;
        }}
        if (s[2] == 1 && n == {WIDE}) {{
          {MARK}_turn(from, s[1], to, first{more});
          continue;
        }}
        """


def _pairs_text(t: MatrixTile, noted: bool) -> str:
    """``join``: output channels are neighbours in memory; ``turn``: input channels are, of 16 output channels."""
    c, more = t.form.c, ", ts_vi *bad" * noted
    look = f"{MARK}_look(v, bad); " if noted else ""
    place = f"to + row / {DEEP} * (ts_i64)({DEEP} * nr) + row % {DEEP} * {WIDE}"
    return f"""{TURNED}TS_NOINLINE void {MARK}_join(
  const ts_u16 *from, ts_i64 step, ts_u16 *to, int first, int n, int nr{more}) {{
  for (int c = 0; c < {c}; c += 2) {{
    const int row = first + c;
    const ts_vh low = ts_load_n_half(from + c * step, n);
    const ts_vh high = c + 1 < {c} ? ts_load_n_half(from + (c + 1) * step, n) : (ts_vh){{0}};
    ts_vu v = __builtin_convertvector(low, ts_vu) | __builtin_convertvector(high, ts_vu) << 16;
    {look}*(ts_vi_at *)({place}) = (ts_vi)v;
  }}
}}
TS_NOINLINE void {MARK}_turn(const ts_u16 *from, ts_i64 step, ts_u16 *to, int first, int nr{more}) {{
  for (int c = 0; c < {c}; c += {DEEP}) {{
    const int left = {c} - c < {DEEP} ? {c} - c : {DEEP};
    ts_vi m[{WIDE}];
    for (int j = 0; j < {WIDE}; j++) {{
      m[j] = (ts_vi){{0}};
      __builtin_memcpy(m + j, from + j * step + c, (unsigned)left * 2u);
    }}
    {MARK}_turned(m);
    for (int j = 0; j < (left + 1) / 2; j++) {{
      const int row = first + c + 2 * j;
      const ts_vu v = (ts_vu)m[j];
      {look}*(ts_vi_at *)({place}) = (ts_vi)v;
    }}
  }}
}}
"""
