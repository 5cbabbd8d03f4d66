"""The rules of tensor maps: those of ``cuTensorMapEncodeTiled`` and ``cuTensorMapEncodeIm2col`` in the CUDA driver API.

Source: CUDA driver API reference, "Tensor Map Object Management".
"""

from __future__ import annotations

from tilesmith.errors import PlanError
from tilesmith.plan.records import Im2col, TensorMap

MAX_MAP_RANK = 5
MAX_BOX = 256
MAX_PIXELS = 1024
_NBYTES = {
    "fp64": 8, "fp32": 4, "tf32": 4, "int32": 4, "fp16": 2, "bf16": 2, "fp8e4m3": 1, "fp8e5m2": 1, "int8": 1,
}  # fmt: skip
_SWIZZLES = (0, 32, 64, 128)
_PROMOTIONS = (0, 64, 128, 256)
_ALIGNMENT = 16
# Corners of an im2col window are signed numbers of 16, 8 or 5 bits, by the number of spatial axes.
_CORNERS = {3: 2**15, 4: 2**7, 5: 2**4}


def check_map(where: str, made: TensorMap) -> None:
    """``PlanError`` names the first rule that a tensor map breaks; ``where`` is the kernel that takes it."""
    rank = len(made.dims)
    if made.dtype not in _NBYTES:
        raise PlanError(f"{where}: a tensor map cannot hold dtype {made.dtype!r}")
    if not 1 <= rank <= MAX_MAP_RANK or len(made.strides) != rank - 1 or len(made.element_strides) != rank:
        raise PlanError(f"{where}: tensor map of dims {made.dims}, strides {made.strides}: ranks are 1 to 5 and agree")
    if made.swizzle not in _SWIZZLES or made.l2_promotion not in _PROMOTIONS:
        raise PlanError(f"{where}: tensor map with swizzle {made.swizzle}, L2 promotion {made.l2_promotion}")
    if made.pointer.offset % _ALIGNMENT:
        raise PlanError(f"{where}: tensor map at byte {made.pointer.offset}, no multiple of {_ALIGNMENT}")
    for value in made.dims:
        _check(where, "size", value, 1, 2**32)
    for value in made.strides:
        _check(where, "stride", value, _ALIGNMENT, 2**40 - 1)
        if value % _ALIGNMENT:
            raise PlanError(f"{where}: tensor map stride {value} is no multiple of {_ALIGNMENT} bytes")
    for value in made.element_strides:
        _check(where, "element stride", value, 1, 8)
    if made.im2col is None:
        if len(made.box) != rank:
            raise PlanError(f"{where}: tensor map box {made.box} has not {rank} axes")
        for value in made.box:
            _check(where, "box", value, 1, MAX_BOX)
        inner = made.box[0]
    else:
        _check_window(where, made, made.im2col)
        inner = made.im2col.channels
    inner *= _NBYTES[made.dtype]
    if inner % _ALIGNMENT or (made.swizzle and inner > made.swizzle):
        raise PlanError(
            f"{where}: the innermost {inner} bytes of a tensor map's load must be a multiple of {_ALIGNMENT}, "
            f"and at most the swizzle of {made.swizzle}"
        )


def map_span(made: TensorMap) -> int:
    """Bytes from the first to the last element that the map can reach; its rules hold."""
    rows = sum((n - 1) * s for n, s in zip(made.dims[1:], made.strides, strict=True))
    return rows + made.dims[0] * _NBYTES[made.dtype]


def _check_window(where: str, made: TensorMap, window: Im2col) -> None:
    rank = len(made.dims)
    if rank not in _CORNERS or len(window.lower) != rank - 2 or len(window.upper) != rank - 2 or made.box:
        raise PlanError(f"{where}: im2col of rank {rank} with corners {window.lower}, {window.upper}, box {made.box}")
    limit = _CORNERS[rank]
    for value in (*window.lower, *window.upper):
        _check(where, "corner", value, -limit, limit - 1)
    _check(where, "channels", window.channels, 1, MAX_BOX)
    _check(where, "pixels", window.pixels, 1, MAX_PIXELS)


def _check(where: str, name: str, value: int, least: int, most: int) -> None:
    if not isinstance(value, int) or not least <= value <= most:
        raise PlanError(f"{where}: tensor map {name} {value!r} is not an integer from {least} to {most}")
