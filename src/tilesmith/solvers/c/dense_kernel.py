"""The kernel around the tiles: items, channel blocks, phases, and the walk over an item's pixels."""

from __future__ import annotations

from tilesmith.codegen.c.epilogue import vector_activation
from tilesmith.codegen.symbols import MARK
from tilesmith.solvers.c.dense_form import DenseForm
from tilesmith.solvers.c.dense_pack import strip_text
from tilesmith.solvers.c.dense_tile import tile_name, tile_text
from tilesmith.solvers.c.dense_tiling import DIRECT, NOTE_BYTES, Tiling

ELEMENT = {"fp32": "ts_f32", "bf16": "ts_u16", "fp16": "ts_u16"}


def kernel_text(t: Tiling, guarded: bool) -> str:
    """The text of the run kernel.

    Pointers: x, packed, [bias], [residual], y; integers: images, columns, column blocks.
    """
    form = t.form
    parts = [_declarations(t)]
    if form.epilogue.activation != "none":
        parts.append(vector_activation(form.epilogue))
    if t.pack != DIRECT:
        parts.append(strip_text(t))
    for tail in _tails(t):
        parts += [tile_text(t, mh, mw, tail) for mh in t.heights for mw in t.widths]
        parts.append(_walk_text(t, tail))
    parts.append(_main_text(t, guarded))
    return "".join(parts)


def _tails(t: Tiling) -> list[bool]:
    return [False] * (t.full_blocks > 0) + [True] * (t.tail_vectors > 0)


def _declarations(t: Tiling) -> str:
    form = t.form
    y = ELEMENT[form.y_dtype]
    arguments = [f"const {MARK}_ct *x", f"const {MARK}_ct *w", f"const {MARK}_phase *f", "const int *seg", f"{y} *y"]
    arguments += [f"const {y} *bias"] * form.epilogue.bias + [f"const {y} *z"] * form.epilogue.residual
    arguments += ["int first", "int last"] * (t.c_blocks > 1)
    segments: list[int] = []
    rows: list[str] = []
    for phase, start in zip(form.phases, t.phase_starts, strict=False):
        found = t.segments(phase)
        run = t.run(phase)
        # Pairs are counted when they are multiplied in pairs and none is left over.
        odd = t.dot and any(t.run(p) % 2 for p in form.phases)
        steps = run if odd or not t.dot else run // 2
        # How long a flat form is, is said at run time: one text serves every length.
        count = (*phase.count[:2], 0) if form.flat else phase.count
        values = (*phase.first, *count, len(segments), len(found), steps, start, t.reduction(phase))
        rows.append("{" + ", ".join(map(str, values)) + "}")
        segments += [segment.offset for segment in found]
    return f"""typedef {ELEMENT["bf16" if t.dot else "fp32"]} {MARK}_ct;
typedef struct {{
  int oz, oy, ox, od, oh, ow, seg, nseg, run;
  ts_i64 w, depth;
}} {MARK}_phase;
static const {MARK}_phase {MARK}_phases[{len(rows)}] = {{{", ".join(rows)}}};
static const int {MARK}_segments[{max(len(segments), 1)}] = {{{", ".join(map(str, segments)) or "0"}}};
#define {MARK}_args {", ".join(arguments)}
"""


def _passed(form: DenseForm, partial: bool) -> str:
    names = ["bias"] * form.epilogue.bias + ["{z}"] * form.epilogue.residual + ["first", "last"] * partial
    return "".join(f", {name}" for name in names)


def _walk_text(t: Tiling, tail: bool) -> str:
    """All tiles of one item, phase and channel block."""
    form = t.form
    down, right = t.tile_step
    y_down, y_right = form.y_strides[4] * form.out_step[1], form.y_strides[5] * form.out_step[2]
    lines = [f"TS_NOINLINE void {MARK}_walk{'t' if tail else ''}({MARK}_args, int nr, int nc) {{", "  int i = 0;"]
    for mh in t.heights:
        lines += [f"  while (nr - i >= {mh}) {{", "    int j = 0;"]
        for mw in t.widths:
            at = f"(ts_i64)i * {y_down} + (ts_i64)j * {y_right}"
            more = _passed(form, t.c_blocks > 1).format(z=f"z + ({at})")
            start = f"x + ((ts_i64)i * {down} + (ts_i64)j * {right})"
            call = f"{tile_name(mh, mw, tail)}({start}, w, f, seg, y + ({at}){more});"
            lines += [f"    for (; nc - j >= {mw}; j += {mw})", f"      {call}"]
        lines += [f"    i += {mh};", "  }"]
    return "\n".join([*lines, "}"]) + "\n"


def _main_text(t: Tiling, guarded: bool) -> str:
    form = t.form
    y = ELEMENT[form.y_dtype]
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
    more = ""
    if form.epilogue.bias:
        more += f", bias0 + g * {form.bias_group}LL + kb * {t.nr}"
    if form.epilogue.residual:
        more += f", z0 + (yb - y0) + {offset}"
    if t.c_blocks > 1:
        more += f", cb == 0, cb == {t.c_blocks - 1}"
    call = f"(xb, w + (ts_i64)kb * f->depth * {t.nr}, f, {MARK}_segments + f->seg, yb + {offset}{more}, nr, nc);"
    calls = {False: f"{MARK}_walk{call}", True: f"{MARK}_walkt{call}"}
    tails = _tails(t)
    chosen = (
        calls[tails[0]] if len(tails) == 1 else f"if (kb < {t.full_blocks}) {calls[False]}\n        else {calls[True]}"
    )
    columns = "s[1]" if form.flat else str(form.count[2])
    col_blocks = "s[2]" if form.flat else str(t.col_blocks)
    split = (
        "ts_i64 kg = item / places, nb = item % places;"
        if t.value["kout"]
        else f"ts_i64 kg = item % {t.block_groups}, nb = item / {t.block_groups};"
    )
    guard = "  if (*(const int *)p[1]) return; /* a filter element is not finite: the reference kernel does it */\n"
    return f"""void {MARK}(void *const *p, const ts_i64 *s, void *scratch, ts_i64 begin, ts_i64 end) {{
{guard if guarded else ""}  const {ELEMENT[form.x_dtype]} *x0 = (const {ELEMENT[form.x_dtype]} *)p[0];
  const {MARK}_ct *w0 = (const {MARK}_ct *)((const char *)p[1] + {NOTE_BYTES});
{bias}{residual}  {y} *y0 = ({y} *)p[{form.slots - 1}];
  const ts_i64 columns = {columns}, col_blocks = {col_blocks};
  const ts_i64 places = s[0] * {form.groups * form.count[0] * t.row_blocks} * col_blocks;
  ts_i64 held = -1;
  (void)scratch; (void)held; (void)places;
  for (ts_i64 item = begin; item < end; item++) {{
    {split}
    ts_i64 ox = nb % col_blocks * {t.cols}, rest = nb / col_blocks;
    ts_i64 oy = rest % {t.row_blocks} * {t.rows};
    rest /= {t.row_blocks};
    ts_i64 oz = rest % {form.count[0]}, g = rest / {form.count[0]} % {form.groups};
    ts_i64 n = rest / {form.count[0] * form.groups};
    ts_i64 rows = {form.count[1]} - oy < {t.rows} ? {form.count[1]} - oy : {t.rows};
    ts_i64 cols = columns - ox < {t.cols} ? columns - ox : {t.cols};
    {y} *yb = y0 + n * {ys[0]}LL + g * {ys[1]}LL;
    (void)rows;
    for (int cb = 0; cb < {t.c_blocks}; cb++) {{
{read}    for (int ph = 0; ph < {len(form.phases)}; ph++) {{
      const {MARK}_phase *f = {MARK}_phases + ph;
      int nr = f->oh - oy < rows ? (int)(f->oh - oy) : (int)rows;
      int nc = {"(int)cols" if form.flat else "f->ow - ox < cols ? (int)(f->ow - ox) : (int)cols"};
      if (oz >= f->od || nr <= 0 || nc <= 0) continue;
      ts_i64 oz0 = oz * {form.out_step[0]} + f->oz, oy0 = oy * {form.out_step[1]} + f->oy;
      ts_i64 ox0 = ox * {form.out_step[2]} + f->ox;
      const {MARK}_ct *w = w0 + (g * {t.c_blocks} + cb) * {t.phase_starts[-1]}LL + f->w;
      for (ts_i64 kb = kg * {t.blocks} / {t.block_groups}; kb < (kg + 1) * {t.blocks} / {t.block_groups}; kb++) {{
        {chosen}
      }}
    }}
    }}
  }}
}}
"""
