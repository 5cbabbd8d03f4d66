"""The micro-kernel: the sums of up to four tiles in registers, and what is done to them on their way to the result."""

from __future__ import annotations

from tilesmith.codegen.symbols import MARK
from tilesmith.solvers.c.common.text import C_TYPES, load, store
from tilesmith.solvers.c.common.tile_registers import DEEP, PIXELS, REGISTERS, WIDE
from tilesmith.solvers.c.tiles.tile import MatrixTile


def tile_name(tiles_m: int, tail: bool) -> str:
    return f"{MARK}_t{tiles_m}{'t' if tail else ''}"


def tile_text(t: MatrixTile, tiles_m: int, tail: bool) -> str:
    """Sums of ``tiles_m`` times 16 pixels and a block of channels, written to ``c``: of each tile of pixels its rows of
    all channels. ``tail``: the narrower last block."""
    tiles_n = t.tiles_n(tail)
    sums = [[m * tiles_n + n for n in range(tiles_n)] for m in range(tiles_m)]
    pixels, filters = t.first_registers
    own, theirs = min(tiles_m, filters - pixels), min(tiles_n, REGISTERS - filters)
    starts = ", ".join(f"const ts_u16 *x{m}" for m in range(tiles_m))
    lines = [
        f"TS_NOINLINE void {tile_name(tiles_m, tail)}({starts}, const ts_u16 *w, const int *seg, int nseg,"
        f" ts_tiles *tiles, ts_f32 *c{', int far' * t.far}) {{",
        *(f"  TS_TILE_ZERO({number});" for row in sums for number in row),
        "  for (int q = 0; q < nseg; q++) {",
        *(f"    const ts_u16 *a{m} = x{m} + seg[q];" for m in range(tiles_m)),
        f"    for (int k = {t.steps}; k > 0; k--) {{",
    ]
    step = 2 * t.tile_step[1]

    def pixel_load(m: int) -> str:
        return f"      TS_TILE_LOAD({pixels + m % own}, a{m}, {step});"

    def filter_load(n: int) -> str:
        return f"      TS_TILE_LOAD({filters + n % theirs}, w + {n * DEEP * WIDE}, {4 * WIDE});"

    def dot(m: int, n: int) -> str:
        return f"      TS_TILE_DOT({sums[m][n]}, {pixels + m % own}, {filters + n % theirs});"

    if own == tiles_m:
        lines += [pixel_load(m) for m in range(tiles_m)]
        lines += [line for n in range(tiles_n) for line in (filter_load(n), *(dot(m, n) for m in range(tiles_m)))]
    else:
        lines += [filter_load(n) for n in range(tiles_n)]
        lines += [line for m in range(tiles_m) for line in (pixel_load(m), *(dot(m, n) for n in range(tiles_n)))]
    if t.far:  # on the first walk of an item; all others find their pixels near
        rows = t.value["tile_rows"]
        next_ = f"(const char *)a0 + {tiles_m * rows * step}"
        lines.append(f"      if (far) for (int r = 0; r < {tiles_m * rows}; r++) TS_PREFETCH({next_} + r * {step}LL);")
    lines += [
        f"      w += {tiles_n * DEEP * WIDE};",
        *(f"      a{m} += {DEEP};" for m in range(tiles_m)),
        "    }",
        "  }",
    ]
    pitch = tiles_n * WIDE
    lines += [
        f"  TS_TILE_STORE({sums[m][n]}, c + {m * PIXELS * pitch + n * WIDE}, {4 * pitch});"
        for m in range(tiles_m)
        for n in range(tiles_n)
    ]
    return "\n".join([*lines, "}"]) + "\n"


def out_text(t: MatrixTile, tail: bool) -> str:
    """``@SYM@_out(c, rows, y, [bias], [z], j, nc)``: the epilogue of a tile's pixels, and their results. Of a line with
    gaps, ``j`` is the column of the first pixel, and pixels from ``nc`` on are none."""
    form, epilogue, dtype = t.form, t.form.epilogue, t.form.y_dtype
    y, tiles_n = C_TYPES[dtype], t.tiles_n(tail)
    (down, right), pitch = t.result_step, t.tiles_n(tail) * WIDE

    def lanes(n: int) -> int:
        return t.tail_lanes if tail and n == tiles_n - 1 else WIDE

    def read(base: str, n: int) -> str:
        return load(dtype, f"{base} + {n * WIDE}", lanes(n), WIDE)

    more = [f"const {y} *bias"] * epilogue.bias + [f"const {y} *z"] * epilogue.residual
    more += ["int j", "int nc"] * t.gaps
    lines = [
        f"TS_NOINLINE void {MARK}_out{'t' if tail else ''}("
        f"{', '.join(['const ts_f32 *c', 'int rows', f'{y} *y', *more])}) {{"
    ]
    if epilogue.bias:
        lines += [f"  const ts_vf bias{n} = {read('bias', n)};" for n in range(tiles_n)]
    lines.append(f"  for (int r = 0; r < rows; r++, c += {pitch}) {{")
    if t.gaps:
        lines.append("    if (j < nc) {")
    for n in range(tiles_n):
        value = f"*(const ts_vf_at *)(c + {n * WIDE})"
        if form.alpha != 1.0:
            value += f" * (float){form.alpha.hex()}"
        if form.beta != 0.0:
            value += f" + (float){form.beta.hex()} * {read('y', n)}"
        if epilogue.bias:
            value += f" + bias{n}"
        if epilogue.residual:
            value += f" + {read('z', n)}"
        if epilogue.activation != "none":
            value = f"{MARK}_act({value})"
        lines.append(f"    ts_vf v{n} = {value};")
    lines += [f"    {store(dtype, f'y + {n * WIDE}', f'v{n}', lanes(n), WIDE)}" for n in range(tiles_n)]
    walks = ["y"] + ["z"] * epilogue.residual
    if t.gaps:
        lines.append("    }")
    lines += [f"    {name} += {right};" for name in walks]
    if t.gaps:
        back = "; ".join(f"{name} += {down - t.line * right}LL" for name in walks)
        lines.append(f"    if (++j == {t.line}) {{ j = 0; {back}; }}")
    return "\n".join([*lines, "  }", "}"]) + "\n"
