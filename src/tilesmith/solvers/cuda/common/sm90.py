"""The common part of the drafts of the sm_90a families: tensor maps, arguments and device code."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tilesmith.codegen.cuda.unit import Argument, template
from tilesmith.plan.records import Im2col, Integer, Pointer, Space, TensorMap
from tilesmith.problems.dtypes import acc_dtype
from tilesmith.problems.epilogue import Epilogue
from tilesmith.solvers.cuda.common.form import Mapped, Sm90Form, Tiled, Window

FOLDER = Path(__file__).parent
TYPES = {
    "bf16": "ts_bf16", "fp16": "ts_fp16", "fp32": "float", "tf32": "float", "fp8e4m3": "ts_e4m3", "fp8e5m2": "ts_e5m2",
    "int8": "ts_int8", "int32": "int",
}  # fmt: skip
_LOADS = 8  # of partial sums that a thread has under way
_MOST_SHARES = 16


def sum_groups(slices: int) -> int:
    """Threads that share the slices of a quad: enough that each has all its loads under way at once."""
    groups = 1
    while groups < _MOST_SHARES and groups * _LOADS < slices:
        groups *= 2
    return groups


def shared_text(name: str) -> str:
    """Device code of several families, which stands behind a kernel's header."""
    return template(FOLDER, name)


def rescaling(epilogue: Epilogue) -> str:
    """The device function ``rescale`` of two neighbours: ``channel`` is that of the first one."""
    first, second = {
        "none": ("", ""),
        "tensor": ("a *= run.scale[0];", "b *= run.scale[0];"),
        "channel": ("a *= run.scale[channel];", "b *= run.scale[TRANSPOSED ? channel : channel + 1];"),
    }[epilogue.scale]
    body = f"  {first}\n  if (both) {second}\n" if first else ""
    return f"TS_DEVICE void rescale(const Run &run, Value &a, Value &b, int channel, bool both) {{\n{body}}}\n"


def residual_map(staged: bool, other: str) -> str:
    """The macro that names the tensor map of the residual, or one that is never read through where none is staged."""
    return f"#undef TS_RESIDUAL_MAP\n#define TS_RESIDUAL_MAP {'map_residual' if staged else other}\n"


def touched(arguments: Iterable[Argument]) -> str:
    """The device function ``touch``, which reads one argument of each 64 bytes.

    A first read takes hundreds of cycles.
    """
    found = [a for a in arguments if a.parameter is not None][::8]
    pointers = [a for a in found if a.type.endswith("*")]
    plain = [a for a in found if a not in pointers]
    names = [f"(ts_u64)run.{a.name}" for a in pointers] + [f"run.{a.name}" for a in plain]
    lines = "".join(f"  ts_touch((ts_u32){name});\n" for name in names)
    return f"TS_DEVICE void touch(const Run &run) {{\n{lines}}}\n"


def reciprocal(divisor: int) -> int:
    """A divisor in the form that ``ts_quotient`` takes: a multiplier in the low half, a shift in the high half."""
    shift = 31 + (divisor - 1).bit_length()
    return shift << 32 | -(-(1 << shift) // divisor)


def divisors(**values: int) -> tuple[Argument, ...]:
    """For each of ``values`` the argument ``by_<name>``, which ``ts_quotient`` divides by."""
    return tuple(Argument(f"by_{name}", "ts_u64", Integer(reciprocal(value))) for name, value in values.items())


def along(axes: str, **values: Iterable[int]) -> dict[str, int]:
    """``<name>_<axis>`` for each value of each name."""
    return {f"{name}_{axis}": v for name, each in values.items() for axis, v in zip(axes, each, strict=True)}


def beyond_argument(found: bool) -> Argument:
    """The argument with the findings of the kernel of ``planes.look``; a null pointer where none looks."""
    return Argument("beyond", "const float *", Pointer(Space.WORKSPACE) if found else None)


def edge_pointers(form: Sm90Form) -> tuple[Argument, Argument]:
    """dy and the filter as they lie, for products at the edge."""
    pixels, filter_ = (form.a.pointer, form.b.pointer) if form.halo else (form.out, form.out)
    element = f"const {TYPES[form.dtype]} *"
    return Argument("pixels", element, pixels), Argument("filter", element, filter_)


def edge_strides(form: Sm90Form) -> dict[str, int]:
    """Strides of dy and the filter, for products at the edge."""
    names = ("in_n", "in_d", "in_h", "in_w", "filter_row", "filter_tap")
    if not form.halo:
        return dict.fromkeys(names, 0)
    assert isinstance(form.a, Window)
    assert isinstance(form.b, Tiled)
    w, h, *d, n = form.a.strides
    filter_ = form.b.strides if form.b.across == 1 else form.b.strides[::-1]  # rows, then taps
    return dict(zip(names, (n, d[0] if d else 0, h, w, *filter_), strict=True))


def three(values: tuple[int, ...], fill: int) -> tuple[int, ...]:
    """``values`` of W and H, with D filled in if it is missing."""
    return (*values, *(fill,) * (3 - len(values)))


def box_map(
    operand: Mapped, dtype: str, box: tuple[int, ...], swizzle: int = 0, steps: tuple[int, ...] = ()
) -> TensorMap:
    """Loads or stores ``box`` elements of each axis, swizzled by the box's contiguous bytes if not by ``swizzle``.

    With ``steps``, of each axis the first of as many elements alone.
    """
    swizzle = swizzle or acc_dtype(dtype).nbytes * box[0]
    steps = steps or (1,) * len(operand.dims)
    return TensorMap(operand.pointer, dtype, operand.dims, _bytes(operand, dtype), box, steps, swizzle)


def window_map(window: Window, dtype: str, channels: int, pixels: int) -> TensorMap:
    """Loads ``channels`` of ``pixels`` neighbouring base pixels, moved by the offset of a tap."""
    im2col = Im2col(window.corner, tuple(upper for _, upper in window.corners), channels, pixels)
    steps = (1, *window.step, 1)
    swizzle = channels * acc_dtype(dtype).nbytes
    return TensorMap(window.pointer, dtype, window.dims, _bytes(window, dtype), (), steps, swizzle, im2col)


def _bytes(operand: Mapped, dtype: str) -> tuple[int, ...]:
    return tuple(acc_dtype(dtype).nbytes * stride for stride in operand.strides)
