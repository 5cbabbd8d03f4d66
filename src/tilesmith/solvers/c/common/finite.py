"""The step that notes whether a filter is finite, for fast kernels that are exact only when it is.

Add ``finite_check`` to a plan's ``prepare`` and ``guarded_reference`` to its ``run``:

    source, steps = finite_check(problem.w, Pointer(Space.SLOT, 1), Pointer(Space.PACKED), target)

The note is one int32: 0 when every element is finite. A packing kernel that sees every element can write it itself.
"""

from __future__ import annotations

from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Integer, Launch, Memset, Pointer, Source, Step
from tilesmith.problems.geometry import MatrixView, TensorView
from tilesmith.solvers.c.common.scalar_text import TYPES
from tilesmith.targets.target import CpuTarget

# The raw type, and the bits that are all ones in an Inf or NaN and in nothing else.
_PATTERNS = {
    "fp64": ("uint64_t", "0x7ff0000000000000u"),
    "fp32": ("uint32_t", "0x7f800000u"),
    "fp16": ("uint16_t", "0x7c00u"),
    "bf16": ("uint16_t", "0x7f80u"),
    "fp8e4m3": ("uint8_t", "0x7fu"),
    "fp8e5m2": ("uint8_t", "0x7cu"),
}

NOTE_BYTES = 64
_AXES = 6

_TEXT = """\
void @SYM@(void *const *p, const int64_t *s, void *scratch, int64_t begin, int64_t end) {
  typedef @RAW@ raw __attribute__((may_alias));
  const raw *w = p[0];
  const int64_t *size = s, *step = s + 6;
  int found = 0;
  (void)scratch;
  for (int64_t item = begin; item < end; item++) {
    const raw *at = w + item / size[1] * step[0] + item % size[1] * step[1];
    for (int64_t i = 0; i < size[2]; i++)
      for (int64_t j = 0; j < size[3]; j++)
        for (int64_t k = 0; k < size[4]; k++) {
          const raw *row = at + i * step[2] + j * step[3] + k * step[4];
          if (step[5] == 1) {
            for (int64_t l = 0; l < size[5]; l++)
              found |= (row[l] & @MASK@) == @MASK@;
          } else {
            for (int64_t l = 0; l < size[5]; l++)
              found |= (row[l * step[5]] & @MASK@) == @MASK@;
          }
        }
  }
  if (found) /* items on other threads only ever write the same 1 */
    __atomic_store_n((int32_t *)p[1], 1, __ATOMIC_RELAXED);
}
"""


def finite_check(
    view: TensorView | MatrixView, tensor: Pointer, flag: Pointer, target: CpuTarget
) -> tuple[Source, tuple[Step, ...]]:
    """Steps that write to the int32 at ``flag`` whether ``tensor``, which lies as ``view`` says, holds an Inf or NaN.

    ``Launch.artifact`` is 0: the caller puts the source where it belongs and renumbers. Integers are always finite:
    ``ValueError``, for nothing needs the step there.
    """
    if view.dtype not in _PATTERNS:
        raise ValueError(f"{view.dtype} has no Inf and no NaN")
    raw, mask = _PATTERNS[view.dtype]
    text = _TEXT.replace("@RAW@", raw).replace("@MASK@", mask)
    source = make_source("c", "finite", view.dtype, "s1", target.arch, TYPES, text)
    axes = memory_axes(view)
    sizes, steps = [size for size, _ in axes], [step for _, step in axes]
    numbers = tuple(Integer(value) for value in (*sizes, *steps))
    launch = Launch(0, source.symbol, (sizes[0] * sizes[1], 1, 1), (tensor, flag, *numbers))
    return source, (Memset(flag, NOTE_BYTES), launch)


def memory_axes(view: TensorView | MatrixView) -> list[tuple[int, int]]:
    """The view's axes as six ``(size, stride)``, the widest stride first; unit axes fill the front."""
    if isinstance(view, MatrixView):
        found = list(zip((view.batch, view.rows, view.columns), view.strides, strict=True))
    else:
        n, c, *rest = zip(view.shape, view.strides, strict=True)
        found = [n, (c[0] // view.vector, c[1]), *rest, (view.vector, 1)]
    real = sorted((axis for axis in found if axis[0] > 1), key=lambda axis: -axis[1])
    return [(1, 0)] * (_AXES - len(real)) + real
