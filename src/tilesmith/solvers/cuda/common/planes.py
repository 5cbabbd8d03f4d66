"""Planes of a 3-D filter that lie beyond the first or last plane of the pixels: their products are left out.

A filter of 3 planes over 9 of pixels meets zeros alone in 2 of 27. Backward data has no such products. Forward
multiplies the zeros of the padding, so an Inf or NaN in a plane that is left out must make its channel's results NaN:
a small kernel before the convolution looks for them (``beyond.cu``), and the convolution adds what it has written.
"""

from __future__ import annotations

from tilesmith.codegen.cuda.mma import mma_prelude
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, unit
from tilesmith.plan.records import Launch, Pointer, Source, Space
from tilesmith.solvers.cuda.common.dense import HALVES
from tilesmith.solvers.cuda.common.form import Sm90Form, Tiled, Window
from tilesmith.solvers.cuda.common.sm90 import shared_text
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

_LEAST_SHARE = 1 / 64
_EXPONENTS = {"bf16": 0x7F80, "fp16": 0x7C00}
_THREADS = 128


def planes(form: Sm90Form) -> int:
    """Planes of the filter."""
    return len({offset >> 16 for offset in form.taps.offset})


def share_beyond(form: Sm90Form) -> float:
    """The share of all products whose pixels lie beyond the first or last plane."""
    if form.kind != "conv" or form.rank != 5 or form.layers != form.groups:
        return 0.0
    assert isinstance(form.a, Window)
    size, corner, base, step = form.a.dims[3], form.a.corner[2], form.a.base[2], form.a.step[2]
    offsets = sorted({offset >> 16 for offset in form.taps.offset})
    meets = (sum(0 <= depth * step + corner + offset < size for offset in offsets) for depth in range(base))
    lost = sum(len(offsets) - max(1, count) for count in meets)
    return lost / (base * len(offsets))


def multiplies_padding(form: Sm90Form) -> bool:
    """Whether the definition multiplies the zeros of the padding: an Inf or NaN that meets them alone counts."""
    return not form.halo


def look_seconds(target: CudaTarget) -> float:
    """The launch that reads the filter once."""
    return fit_of(target).tile.look


def leaves_out(form: Sm90Form, target: CudaTarget) -> float:
    """The share of products that is left out: none where that is not worth it."""
    share = share_beyond(form)
    if share < _LEAST_SHARE or form.dtype not in HALVES or form.b_type != form.dtype:
        return 0.0
    if not multiplies_padding(form):
        return share
    saved = 2 * form.products * share / target.bf16_flops
    return share if form.groups == 1 and form.channels % 8 == 0 and saved > 2 * look_seconds(target) else 0.0


def look_bytes(form: Sm90Form) -> int:
    """Bytes of what the kernel before the convolution writes: a number for each plane of each channel."""
    return 4 * planes(form) * form.cols


def look(form: Sm90Form, target: CudaTarget, number: int) -> tuple[Source, Launch]:
    """The kernel that looks for Inf and NaN in the filter's planes, and its launch as ``number`` of the sources."""
    assert isinstance(form.b, Tiled)
    tap, row = form.b.strides
    arguments = (
        Argument("filter", "const u16 *", form.b.pointer), Argument("beyond", "float *", Pointer(Space.WORKSPACE)),
        *integers("int", rows=form.cols, channels=form.channels), *integers("i64", filter_tap=tap, filter_row=row),
    )  # fmt: skip
    count = planes(form)
    header = Header(
        numbers={"PLANE": len(form.taps.offset) // count, "EXPONENT": _EXPONENTS[form.dtype], "THREADS": _THREADS},
        tables={"tap_filter": form.taps.index}, arguments=arguments,
    )  # fmt: skip
    source = unit("beyond", form.dtype, f"p{count}", target.arch, mma_prelude(), shared_text("beyond"), header)
    return source, Launch(number, source.symbol, (count * form.cols, 1, 1), passed(arguments), (_THREADS, 1, 1),
                          programmatic=True)  # fmt: skip
