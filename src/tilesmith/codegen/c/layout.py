"""A kernel that copies a tensor from one layout to another: any strides, any channel vectors, sizes at run time.

Two axes are walked inside: ``p``, which items divide, and ``q``. When one of them is contiguous on the one side and the
other on the other (``NCHW`` to ``NHWC``), square tiles are transposed in registers; when ``q`` is contiguous on both
sides, rows are copied.
"""

from __future__ import annotations

from math import prod

from tilesmith.codegen.axes import Axis, common_axes
from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Integer, Launch, Pointer, Source
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import TensorView
from tilesmith.targets.target import CpuTarget

_OUTER = 6  # axes around p and q; more cannot be: N, D, H, W and the parts of C
_ITEM_ELEMENTS = 8192
_TILES = 4  # side by side in one item, at least

_TEXT = """\
typedef @RAW@ @SYM@_raw __attribute__((may_alias));
typedef @RAW@ @SYM@_vec __attribute__((vector_size(@VB@)));
typedef @RAW@ @SYM@_any __attribute__((vector_size(@VB@), aligned(1), may_alias));
#if defined(__clang__) || __GNUC__ >= 12
#define @SYM@_pick(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef @SIGNED@ @SYM@_index __attribute__((vector_size(@VB@)));
#define @SYM@_pick(a, b, ...) __builtin_shuffle(a, b, (@SYM@_index){__VA_ARGS__})
#endif

/* @LANES@ rows of @LANES@ elements: log2 steps, each exchanges the blocks off the diagonal. */
static inline void @SYM@_tile(const @SYM@_raw *from, __INT64_TYPE__ row, @SYM@_raw *to, __INT64_TYPE__ column) {
@TILE@
}

void @SYM@(void *const *p, const __INT64_TYPE__ *s, void *scratch, __INT64_TYPE__ begin, __INT64_TYPE__ end) {
  typedef __INT64_TYPE__ i64;
  const i64 *size = s, *from_step = s + @OUTER@, *to_step = s + 2 * @OUTER@, *g = s + 3 * @OUTER@;
  const i64 np = g[0], fp = g[1], tp = g[2], nq = g[3], fq = g[4], tq = g[5];
  const i64 chunk = g[6], chunks = (np + chunk - 1) / chunk;
  (void)scratch;
  for (i64 item = begin; item < end; item++) {
    const i64 p0 = item % chunks * chunk, p1 = p0 + chunk < np ? p0 + chunk : np;
    const @SYM@_raw *from = p[0];
    @SYM@_raw *to = p[1];
    for (i64 axis = 0, rest = item / chunks; axis < @OUTER@; rest /= size[axis], axis++) {
      from += rest % size[axis] * from_step[axis];
      to += rest % size[axis] * to_step[axis];
    }
    i64 i = p0;
    if (fq == 1 && tq == 1) {
      for (; i < p1; i++) {
        i64 j = 0;
        for (; j + @LANES@ <= nq; j += @LANES@)
          *(@SYM@_any *)(to + i * tp + j) = *(const @SYM@_any *)(from + i * fp + j);
        for (; j < nq; j++)
          to[i * tp + j] = from[i * fp + j];
      }
      continue;
    }
    const int across = fp == 1 && tq == 1, along = fq == 1 && tp == 1;
    if (across || along) {
      const i64 whole = p0 + (p1 - p0) / @LANES@ * @LANES@;
      i64 j = 0;
      for (; j + @LANES@ <= nq; j += @LANES@)
        for (i = p0; i < whole; i += @LANES@)
          if (across)
            @SYM@_tile(from + i + j * fq, fq, to + i * tp + j, tp);
          else
            @SYM@_tile(from + i * fp + j, fp, to + i + j * tq, tq);
      for (; j < nq; j++)
        for (i = p0; i < whole; i++)
          to[i * tp + j * tq] = from[i * fp + j * fq];
      i = whole;
    }
    for (; i < p1; i++)
      for (i64 j = 0; j < nq; j++)
        to[i * tp + j * tq] = from[i * fp + j * fq];
  }
}
"""

_RAW = {1: "char", 2: "short", 4: "int", 8: "long long"}


def layout_copy(
    source: TensorView, result: TensorView, read: Pointer, write: Pointer, target: CpuTarget
) -> tuple[Source, Launch]:
    """A launch that copies the tensor at ``read``, which lies as ``source`` says, to ``write``, as ``result`` says.

    Nothing between the elements is written. ``Launch.artifact`` is 0: the caller renumbers. ``ValueError`` if the two
    views differ in shape or dtype.
    """
    if source.shape != result.shape or source.dtype != result.dtype:
        raise ValueError(f"a layout copy keeps shape and dtype, got {source} to {result}")
    nbytes = dtype(source.dtype).nbytes
    # Registers for two tiles' rows at once are more than enough for 16 rows.
    lanes = min(target.vector_bytes // nbytes, 16)
    body = _TEXT.replace("@TILE@", _tile_text(lanes))
    signed = "signed char" if nbytes == 1 else _RAW[nbytes]
    for hole, filling in (
        ("@RAW@", f"unsigned {_RAW[nbytes]}"), ("@SIGNED@", signed), ("@VB@", str(lanes * nbytes)),
        ("@LANES@", str(lanes)), ("@OUTER@", str(_OUTER)),
    ):  # fmt: skip
        body = body.replace(hole, filling)
    made = make_source("c", "layout", f"b{8 * nbytes}", f"t{lanes}", target.arch, "", body)
    outer, p, q = _roles(common_axes(source, result))
    # Several tiles in a row: lines of memory are then written whole even when rows are a power of two apart.
    chunk = max(_TILES * lanes, _ITEM_ELEMENTS // q[0] // lanes * lanes)
    items = -(-p[0] // chunk) * prod(size for size, _, _ in outer)
    numbers = [axis[column] for column in range(3) for axis in outer]
    launch = Launch(
        0, made.symbol, (items, 1, 1), (read, write, *(Integer(v) for v in (*numbers, *p, *q, chunk)))
    )  # fmt: skip
    return made, launch


def _roles(axes: list[Axis]) -> tuple[list[Axis], Axis, Axis]:
    """The outer axes (padded with unit ones), and the two inside."""
    unit: Axis = (1, 0, 0)
    rest = list(axes) or [unit]
    both = next((a for a in rest if a[1] == a[2] == 1), None)
    reads, writes = (next((a for a in rest if a[side] == 1), None) for side in (1, 2))
    if both is None and reads and writes:
        # Items divide the longer axis; the shorter one's whole length then stays in a near cache.
        p, q = (reads, writes) if reads[0] >= writes[0] else (writes, reads)
        rest.remove(p)
        rest.remove(q)
    else:
        q = both or rest[-1]
        rest.remove(q)
        p = max(rest, key=lambda a: a[0], default=unit)
        if rest:
            rest.remove(p)
    return rest + [unit] * (_OUTER - len(rest)), p, q


def _tile_text(lanes: int) -> str:
    lines = [f"  @SYM@_vec a{i} = *(const @SYM@_any *)(from + {i} * row);" for i in range(lanes)]
    name, step = "a", 1
    while step < lanes:
        following = chr(ord(name) + 1)
        for i in range(lanes):
            if i & step:
                continue
            j = i + step
            low = [k if not k & step else lanes + k - step for k in range(lanes)]
            high = [k + step if not k & step else lanes + k for k in range(lanes)]
            for which, picked in ((i, low), (j, high)):
                text = ", ".join(map(str, picked))
                lines.append(f"  @SYM@_vec {following}{which} = @SYM@_pick({name}{i}, {name}{j}, {text});")
        name, step = following, 2 * step
    lines += [f"  *(@SYM@_any *)(to + {i} * column) = {name}{i};" for i in range(lanes)]
    return "\n".join(lines)
