"""The kernel around the tiles: items, channel blocks, phases, and the walk over an item's pixels."""

from __future__ import annotations

from tilesmith.codegen.c.epilogue import vector_activation
from tilesmith.codegen.symbols import MARK
from tilesmith.solvers.c.common.dense_form import DenseForm, tap_lines
from tilesmith.solvers.c.common.dense_items import NOTE_BYTES, item_text
from tilesmith.solvers.c.common.text import C_TYPES, CACHE_LINE, ENTRY, braced
from tilesmith.solvers.c.dense.pack_text import compute_type, strip_text
from tilesmith.solvers.c.dense.tile import DIRECT, DenseTile
from tilesmith.solvers.c.dense.tile_text import tile_name, tile_text


def kernel_text(t: DenseTile, guarded: bool) -> str:
    """The text of the run kernel.

    Pointers: x, packed, [bias], [residual], y; integers: images, columns, column blocks.
    """
    form = t.form
    skip = (_list_text(t) if t.listed else _skip_text(t)) if t.skips else ""
    parts = [
        _declarations(t),
        vector_activation(form.epilogue) if form.epilogue.activation != "none" else "",
        strip_text(t) if t.pack != DIRECT else "",
        skip,
    ]
    for tail in t.tails:
        parts += [tile_text(t, mh, mw, tail) for mh in t.heights for mw in t.widths]
        parts.append(_walk_text(t, tail))
    parts.append(_main_text(t, guarded))
    return "".join(parts)


def _declarations(t: DenseTile) -> str:
    form = t.form
    y = C_TYPES[form.y_dtype]
    arguments = [f"const {MARK}_ct *x", f"const {MARK}_ct *w", "const int *seg", "int nseg", "int run", f"{y} *y"]
    arguments += ["const int *list"] * t.listed
    arguments += [f"const {y} *bias"] * form.epilogue.bias + [f"const {y} *z"] * form.epilogue.residual
    arguments += ["int first", "int last"] * (t.c_blocks > 1)
    segments: list[int] = []
    rows: list[str] = []
    for phase, start in zip(form.phases, t.phase_starts, strict=False):
        found = t.segments(phase)
        run = t.run(phase)
        # Pairs are counted when they are multiplied in pairs and none is left over.
        steps = run // 2 if t.dot and not t.odd else run
        # How long a flat form is, is said at run time: one text serves every length.
        count = (*phase.count[:2], 0) if form.flat else phase.count
        z, line = tap_lines(phase)
        values = (*phase.first, *count, len(segments), len(found), steps, *z, *line, start, t.reduction(phase))
        rows.append(braced(values))
        segments += [segment.offset for segment in found]
    return f"""{compute_type(t)}typedef struct {{
  int oz, oy, ox, od, oh, ow, seg, nseg, run, planes, z, dz, lines, y, dy;
  ts_i64 w, depth;
}} {MARK}_phase;
static const {MARK}_phase {MARK}_phases[{len(rows)}] = {{{", ".join(rows)}}};
static const int {MARK}_segments[{max(len(segments), 1)}] = {{{", ".join(map(str, segments)) or "0"}}};
#define {MARK}_args {", ".join(arguments)}
"""


def _passed(form: DenseForm, partial: bool) -> str:
    names = ["bias"] * form.epilogue.bias + ["{z}"] * form.epilogue.residual + ["first", "last"] * partial
    return "".join(f", {name}" for name in names)


def _walk_text(t: DenseTile, tail: bool) -> str:
    """All tiles of one item, phase and channel block."""
    form = t.form
    (down, right), (y_down, y_right) = t.tile_step, t.result_step
    nr = t.lanes * t.vectors(tail)
    extra = f", const {MARK}_phase *f, int whole, ts_i64 z0, ts_i64 y0" if t.skips else ""
    extra += ", const char *ahead" if t.lines_ahead else ""
    lines = [
        f"TS_NOINLINE void {MARK}_walk{'t' if tail else ''}({MARK}_args, int nr, int nc{extra}) {{",
        "  int i = 0;",
    ]
    if t.skips:
        lines.append("  const int line = f->lines * f->planes ? nseg / (f->lines * f->planes) : 0, all = nseg;")
        lines += [f"  int left[{most_segments(t)}];"] * t.listed
    for mh in t.heights:
        lines += [f"  while (nr - i >= {mh}) {{", "    int j = 0;"]
        weights, segments = "w", "seg"
        if t.skips:
            top = f"y0 + f->y + (ts_i64)i * {form.step[1]}"
            seen = f"f, z0 + f->z, top, top + {(mh - 1) * form.step[1]}, line, "
            lines += [f"    list = {MARK}_whole;" if t.listed else "    int skip = 0;", "    nseg = all;"]
            lines += ["    if (!whole) {", f"      ts_i64 top = {top};"]
            if t.listed:
                lines += [f"      list = {MARK}_left({seen}left, &nseg);", "    }"]
            else:
                lines += [f"      {MARK}_skip({seen}&skip, &nseg);", "    }"]
                lines.append(f"    const {MARK}_ct *wi = w + (ts_i64)skip * {MARK}_deep(run) * {nr};")
                weights, segments = "wi", "seg + skip"
        for mw in t.widths:
            at = f"(ts_i64)i * {y_down} + (ts_i64)j * {y_right}"
            more = _passed(form, t.c_blocks > 1).format(z=f"z + ({at})")
            start = f"x + ((ts_i64)i * {down} + (ts_i64)j * {right})"
            more = ", list" * t.listed + more
            call = f"{tile_name(mh, mw, tail)}({start}, {weights}, {segments}, nseg, run, y + ({at}){more});"
            fetch = f"for (int l = 0; l < {t.lines_ahead}; l++, ahead += {CACHE_LINE}) TS_PREFETCH(ahead);"
            lines += [f"    for (; nc - j >= {mw}; j += {mw}) {{", *([f"      {fetch}"] if t.lines_ahead else [])]
            lines += [f"      {call}", "    }"]
        lines += [f"    i += {mh};", "  }"]
    return "\n".join([*lines, "}"]) + "\n"


def most_segments(t: DenseTile) -> int:
    """The most of any phase."""
    return max(1, *(t.segment_count(phase) for phase, _ in t.form.kinds))


def _seen_text(t: DenseTile) -> str:
    """The planes (``z0`` to ``z1``) and lines (``y0`` to ``y1``) of taps that some output of a tile sees inside x."""
    depth, height, _ = t.form.x_size
    return f"""  int z0 = {MARK}_clamp(z < 0 ? (-z + f->dz - 1) / f->dz : 0, f->planes);
  int z1 = {MARK}_clamp(z < {depth} ? ({depth} - z + f->dz - 1) / f->dz : 0, f->planes);
  int y0 = {MARK}_clamp(end < 0 ? (-end + f->dy - 1) / f->dy : 0, f->lines);
  int y1 = {MARK}_clamp(top < {height} ? ({height} - top + f->dy - 1) / f->dy : 0, f->lines);
"""


def _deep_text(t: DenseTile) -> str:
    deep = "run" if not t.dot else "((run + 1) & ~1)" if t.odd else "2 * run"
    return f"""#define {MARK}_deep(run) ({deep})
TS_INLINE int {MARK}_clamp(ts_i64 v, int most) {{ return v < 0 ? 0 : v > most ? most : (int)v; }}
"""


def _skip_text(t: DenseTile) -> str:
    """Segments are ordered by depth, then height: planes of taps that lie outside are left out at both ends, then lines
    if one plane is left."""
    return f"""{_deep_text(t)}TS_NOINLINE void {MARK}_skip(
  const {MARK}_phase *f, ts_i64 z, ts_i64 top, ts_i64 end, int line, int *skip, int *nseg) {{
{_seen_text(t)}  if (z1 <= z0 || y1 <= y0) {{
    *nseg = 0;
  }} else if (z1 - z0 == 1) {{
    *skip = (z0 * f->lines + y0) * line;
    *nseg = (y1 - y0) * line;
  }} else {{
    *skip = z0 * f->lines * line;
    *nseg = (z1 - z0) * f->lines * line;
  }}
}}
"""


def _list_text(t: DenseTile) -> str:
    """The list of the segments that are left, which is all of them inside the input."""
    numbers = ", ".join(map(str, range(most_segments(t))))
    return f"""{_deep_text(t)}static const int {MARK}_whole[{most_segments(t)}] = {{{numbers}}};
TS_NOINLINE const int *{MARK}_left(
  const {MARK}_phase *f, ts_i64 z, ts_i64 top, ts_i64 end, int line, int *left, int *nseg) {{
{_seen_text(t)}  if (z1 - z0 == f->planes && y1 - y0 == f->lines) return {MARK}_whole;
  int n = 0;
  for (int i = z0; i < z1; i++)
    for (int j = y0 * line; j < y1 * line; j++) left[n++] = i * f->lines * line + j;
  *nseg = n;
  return left;
}}
"""


def _main_text(t: DenseTile, guarded: bool) -> str:
    form = t.form
    y = C_TYPES[form.y_dtype]
    xs, ys = form.x_strides, form.y_strides
    first = form.first_tap
    names = iter(range(2, form.slots))
    bias = f"  const {y} *bias0 = (const {y} *)p[{next(names)}];\n" if form.epilogue.bias else ""
    residual = f"  const {y} *z0 = (const {y} *)p[{next(names)}];\n" if form.epilogue.residual else ""
    base = [oz_oy_ox * stride for oz_oy_ox, stride in zip(form.step, xs[3:], strict=True)]
    if t.pack == DIRECT:
        source = (
            f"x0 + n * {xs[0]}LL + g * {xs[1]}LL + cb * {t.cb}"
            f" + oz * {base[0]}LL + oy * {base[1]}LL + ox * {base[2]}LL"
        )
        read = f"    const {MARK}_ct *xb = {source};\n"
    else:
        read = f"""    const {MARK}_ct *xb = (const {MARK}_ct *)scratch;
    if (held != nb * {t.c_blocks} + cb) {{
      held = nb * {t.c_blocks} + cb;
      {MARK}_strip(x0 + n * {xs[0]}LL + g * {xs[1]}LL + cb * {t.cb * xs[2]}LL, scratch,
        oz * {form.step[0]} + {first[0]}, oy * {form.step[1]} + {first[1]}, ox * {form.step[2]} + {first[2]},
        rows, cols);
    }}
"""
    offset = f"kb * {t.nr} + oz0 * {ys[3]}LL + oy0 * {ys[4]}LL + ox0 * {ys[5]}LL"
    more = f", {MARK}_whole" * t.listed
    if form.epilogue.bias:
        more += f", bias0 + g * {form.bias_group}LL + kb * {t.nr}"
    if form.epilogue.residual:
        more += f", z0 + (yb - y0) + {offset}"
    if t.c_blocks > 1:
        more += f", cb == 0, cb == {t.c_blocks - 1}"
    z_first, y_first = f"oz * {form.step[0]}", f"oy * {form.step[1]}"
    outside = f", f, whole, {z_first}, {y_first}" if t.skips else ""
    reach = step = ""
    if t.lines_ahead:
        outside += ", ahead"
        row, pitch = (f"ox + {t.cols}", xs[5]) if form.flat else (f"oy + {first[1] + t.strip_size[1]}", xs[4])
        walk = t.lines_ahead * t.tiles_a_walk * CACHE_LINE
        reach = f"    const char *ahead = (const char *)(x0 + n * {xs[0]}LL + ({row}) * {pitch}LL);\n"
        if t.block_groups > 1 and not t.value["groups_outer"]:  # items that share a strip share what they ask for
            reach += f"    ahead += kg * {t.blocks} / {t.block_groups} * {walk * len(form.phases)}LL;\n"
        step = f"        ahead += {walk};\n"
    call = (
        f"(xb, w + (ts_i64)kb * f->depth * {t.nr}, {MARK}_segments + f->seg, f->nseg, f->run,"
        f" yb + {offset}{more}, {'1, nr * nc' if t.one_line else 'nr, nc'}{outside});"
    )
    calls = [f"{MARK}_walk{'t' if tail else ''}{call}" for tail in t.tails]
    chosen = calls[0] if len(calls) == 1 else f"if (kb < {t.full_blocks}) {calls[0]}\n        else {calls[1]}"
    columns = "s[1]" if form.flat else str(form.count[2])
    col_blocks = "s[2]" if form.flat else str(t.col_blocks)
    whole = "  const int whole = *(const int *)p[1]; /* a filter element is not finite: its product with 0 counts */\n"
    guard = "  if (*(const int *)p[1]) return; /* a filter element is not finite: the reference kernel does it */\n"
    if t.skips:
        guard += "  const int whole = 0;\n"
    note, xt = guard if guarded else whole if t.skips else "", C_TYPES[form.x_dtype]
    return f"""{ENTRY}
{note}  const {xt} *x0 = (const {xt} *)p[0];
  const {MARK}_ct *w0 = (const {MARK}_ct *)((const char *)p[1] + {NOTE_BYTES});
{bias}{residual}  {y} *y0 = ({y} *)p[{form.slots - 1}];
  const ts_i64 columns = {columns}, col_blocks = {col_blocks};
  const ts_i64 places = s[0] * {form.groups * form.count[0] * t.row_blocks} * col_blocks;
  ts_i64 held = -1;
  (void)scratch; (void)held; (void)places;
  for (ts_i64 item = begin; item < end; item++) {{
{item_text(t, y)}    for (int cb = 0; cb < {t.c_blocks}; cb++) {{
{read}{reach}    for (int ph = 0; ph < {len(form.phases)}; ph++) {{
      const {MARK}_phase *f = {MARK}_phases + ph;
      int nr = f->oh - oy < rows ? (int)(f->oh - oy) : (int)rows;
      int nc = {"(int)cols" if form.flat else "f->ow - ox < cols ? (int)(f->ow - ox) : (int)cols"};
      if (oz >= f->od || nr <= 0 || nc <= 0) continue;
      ts_i64 oz0 = oz * {form.out_step[0]} + f->oz, oy0 = oy * {form.out_step[1]} + f->oy;
      ts_i64 ox0 = ox * {form.out_step[2]} + f->ox;
      const {MARK}_ct *w = w0 + (g * {t.c_blocks} + cb) * {t.phase_starts[-1]}LL + f->w;
      for (ts_i64 kb = kg * {t.blocks} / {t.block_groups}; kb < (kg + 1) * {t.blocks} / {t.block_groups}; kb++) {{
        {chosen}
{step}      }}
    }}
    }}
  }}
}}
"""
