"""The micro-kernel: one tile of ``tile_h x tile_w`` pixels times ``vectors`` vectors of channels, kept in registers.

For each segment and each step of its run: load the vectors of the packed filter, splat one element of each pixel,
multiply-add. Every pixel's offset is a constant, so there is nothing else in the loop.
"""

from __future__ import annotations

from tilesmith.codegen.c.epilogue import LONG
from tilesmith.codegen.c.prelude import long_rounding
from tilesmith.codegen.symbols import MARK
from tilesmith.problems.dtypes import dtype
from tilesmith.solvers.c.common.text import CACHE_LINE, load, store
from tilesmith.solvers.c.dense.tile import DenseTile


def tile_name(mh: int, mw: int, tail: bool) -> str:
    return f"{MARK}_t{mh}x{mw}{'t' if tail else ''}"


def tile_text(t: DenseTile, mh: int, mw: int, tail: bool) -> str:
    """One tile function; ``tail`` is the narrower last block of channels."""
    down, right = t.result_step
    places = [i * down + j * right for i in range(mh) for j in range(mw)]
    vectors = t.vectors(tail)
    lines = [f"TS_NOINLINE void {tile_name(mh, mw, tail)}({MARK}_args) {{"]
    for p in range(len(places)):
        lines.append("  ts_vf " + ", ".join(f"a{p}_{v} = {{0}}" for v in range(vectors)) + ";")
    # Fetch the lines that the tile will write, and add, while it computes: see notes.md.
    touched = {"y": "1"} | ({"z": "0, 2"} if t.form.epilogue.residual else {})
    lines += [
        f"  __builtin_prefetch((const char *)({name} + {place}) + {byte}, {how});"
        for name, how in touched.items()
        for place in places
        for byte in range(0, vectors * t.lanes * dtype(t.form.y_dtype).nbytes, CACHE_LINE)
    ]
    if t.listed:
        deep = vectors * t.lanes
        lines += [f"  const {MARK}_ct *w0 = w;", "  for (int q = 0; q < nseg; q++) {"]
        lines += [
            f"    const {MARK}_ct *xr = x + seg[list[q]];",
            f"    w = w0 + (ts_i64)list[q] * {MARK}_deep(run) * {deep};",
        ]
    else:
        lines += ["  for (int q = 0; q < nseg; q++) {", f"    const {MARK}_ct *xr = x + seg[q];"]
    lines += [*_loop(t, mh, mw, vectors * t.lanes), "  }", *_stores(t, mh, mw, tail), "}"]
    return "\n".join(lines) + "\n"


def _loop(t: DenseTile, mh: int, mw: int, nr: int) -> list[str]:
    """The loop over one run, with its odd last element when pairs do not fill it."""
    down, right = t.tile_step
    offsets = [i * down + j * right for i in range(mh) for j in range(mw)]
    x_step, w_step = t.per_step, t.per_step * nr
    body = [line for u in range(t.unroll) for line in _step(t, offsets, nr, f"{u * x_step}", u * w_step, last=False)]
    count = "run / 2" if t.odd else "run"
    lines = [
        f"    for (int k = {count}; k > 0; k -= {t.unroll}) {{",
        "      TS_OPAQUE(xr);",
        *("  " + line for line in body),
        f"      w += {t.unroll * w_step};",
        f"      xr += {t.unroll * x_step};",
        "    }",
    ]
    if t.odd:
        lines += ["    if (run & 1) {", *("  " + line for line in _step(t, offsets, nr, "0", 0, last=True))]
        lines += [f"      w += {w_step};", "    }"]
    return lines


def _step(t: DenseTile, offsets: list[int], nr: int, at: str, w_at: int, last: bool) -> list[str]:
    vectors = range(nr // t.lanes)
    kind, width, ahead = "ts_vi" if t.dot else "ts_vf", t.lanes * t.per_step, t.value["prefetch"]
    lines = ["    {", *(f"      {kind} w{v} = *(const {kind}_at *)(w + {w_at + v * width});" for v in vectors)]
    if ahead:
        start = (w_at + ahead * nr * t.per_step) * t.element
        for byte in range(0, nr * t.per_step * t.element, CACHE_LINE):
            lines.append(f"      TS_PREFETCH((const char *)w + {start + byte});")
    for p, offset in enumerate(offsets):
        place = f"xr + {offset} + {at}"
        spread = f"ts_{'last' if last else 'pair'}_bf16({place})" if t.dot else f"ts_splat(*({place}))"
        lines.append(f"      {kind} b{p} = {spread};")
        for v in vectors:
            update = f"ts_dot_bf16(a{p}_{v}, w{v}, b{p})" if t.dot else f"a{p}_{v} + w{v} * b{p}"
            lines.append(f"      a{p}_{v} = {update};")
    return [*lines, "    }"]


def _stores(t: DenseTile, mh: int, mw: int, tail: bool) -> list[str]:
    """Epilogue and stores; blocks of reduced channels leave partial sums in ``y`` before it.

    Where rounding is long, a loop over the pixels does all of it: one copy of a long text, not one for each register.
    """
    form, epilogue, dtype_ = t.form, t.form.epilogue, t.form.y_dtype
    vectors, partial, costly = t.vectors(tail), t.c_blocks > 1, epilogue.activation in LONG
    down, right = t.result_step
    places = [i * down + j * right for i in range(mh) for j in range(mw)]
    rolled = len(places) > 1 and long_rounding(dtype_, t.target)
    pixel = "at + " if rolled else ""

    def lanes(v: int) -> int:
        return t.tail_lanes if tail and v == vectors - 1 else t.lanes

    def read(base: str, place: int, v: int) -> str:
        return load(dtype_, f"{base} + {pixel}{place + v * t.lanes}", lanes(v), t.lanes)

    def write(place: int, v: int, value: str) -> str:
        return "  " + store(dtype_, f"y + {pixel}{place + v * t.lanes}", value, lanes(v), t.lanes)

    lines: list[str] = []
    cells = [(f"a{p}_{v}", place, v) for p, place in enumerate(places) for v in range(vectors)]
    registers = ", ".join(name for name, _, _ in cells)
    if rolled:
        cells = [(f"c[{v}]", 0, v) for v in range(vectors)]
    if partial:
        lines += ["  if (!first) {", *(f"    {name} += {read('y', place, v)};" for name, place, v in cells)]
        lines += ["  }", "  if (last) {"]
    if epilogue.bias:
        lines += [
            f"  ts_vf bias{v} = {load(dtype_, f'bias + {v * t.lanes}', lanes(v), t.lanes)};" for v in range(vectors)
        ]
    after = []
    for number, (name, place, v) in enumerate(cells):
        value = name
        if form.alpha != 1.0:
            value = f"{value} * (float){form.alpha.hex()}"
        if form.beta != 0.0:
            value += f" + (float){form.beta.hex()} * {read('y', place, v)}"
        if epilogue.bias:
            value += f" + bias{v}"
        if epilogue.residual:
            value += f" + {read('z', place, v)}"
        if costly:
            lines.append(f"  t[{number}] = {value};")
            value = f"t[{number}]"
        elif epilogue.residual:  # loads first: they would wait for stores to addresses that end alike
            lines.append(f"  {name} = {value};")
            value = name
        if not costly and epilogue.activation != "none":
            value = f"{MARK}_act({value})"
        after.append(f"  {name} = {value};" if partial else write(place, v, value))
    if costly:  # one copy of a long text, not one for each register
        lines.append(f"  for (int i = 0; i < {len(cells)}; i++) t[i] = {MARK}_act(t[i]);")
        lines.insert(0, f"  ts_vf t[{len(cells)}];")
    if partial:
        after += ["  }", *(write(place, v, name) for name, place, v in cells)]
    if not rolled:
        return lines + after
    start = [
        "  c = s;",
        "  TS_OPAQUE(c);  /* the loop's first turn would have a copy of its own */",
        f"  for (int i = 0; i < {mh}; i++) for (int j = 0; j < {mw}; j++, c += {vectors}) {{",
        f"  const ts_i64 at = i * {down}LL + j * {right}LL;",
    ]
    all_loads_first = epilogue.residual and not partial and not costly
    between = ["  }", *start] if all_loads_first else []
    return [f"  ts_vf s[] = {{{registers}}}, *c;", *start, *lines, *between, *after, "  }"]
