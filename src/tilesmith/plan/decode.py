"""Reads the serialised form of a plan (``plan.serial`` describes it)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import TypeVar

from tilesmith.errors import PlanError
from tilesmith.plan.check import check_plan
from tilesmith.plan.check_map import MAX_MAP_RANK
from tilesmith.plan.records import (
    Extent,
    Im2col,
    Integer,
    Launch,
    Memset,
    Parameter,
    Plan,
    Pointer,
    Real,
    Slot,
    Space,
    Step,
    TensorMap,
)

MAGIC = b"TSPLAN\r\n"
VERSION = 2
MOST_BYTES = 1 << 20  # of a serialised plan: decoding takes many times as many
HEADER = struct.Struct("<8sIIQ")
_SEALED_FROM = 16  # the CRC covers the length and the body
LAUNCH, MEMSET = 1, 2
POINTER, INTEGER, REAL, TENSOR_MAP = 1, 2, 3, 4
READ, WRITTEN, IN_PLACE = range(3)  # uses of a slot
FAMILIES = ("cpu", "cuda")

T = TypeVar("T")


def decode(data: bytes) -> Plan:
    """The plan that ``data`` holds; ``PlanError`` if any byte is not as ``encode`` wrote it."""
    try:
        return _decode(data)
    except PlanError as error:  # one line, whatever a damaged plan calls its parts
        raise PlanError("".join(c if c.isprintable() else "?" for c in str(error))) from None


def check_header(data: bytes) -> None:
    """``PlanError`` unless these are all the bytes of a plan of this version."""
    if len(data) < HEADER.size or data[:8] != MAGIC:
        raise PlanError(f"these {len(data)} bytes are no plan")
    _, version, crc, length = HEADER.unpack_from(data)
    if version != VERSION:
        raise PlanError(f"plan of version {version}, this is version {VERSION}")
    if length != len(data):
        raise PlanError(f"plan of {length} bytes, got {len(data)}")
    if length > MOST_BYTES:
        raise PlanError(f"plan of {length} bytes; a plan has at most {MOST_BYTES}")
    if crc != zlib.crc32(data[_SEALED_FROM:]):
        raise PlanError("plan is damaged: its checksum is wrong")


def _decode(data: bytes) -> Plan:
    check_header(data)
    read = _Reader(data, HEADER.size)
    problem, target, solver, config, provenance = (read.text() for _ in range(5))
    packed, workspace, scratch_offset, scratch_stride, threads, alignment, family = read.unpack("qqqqIIB")
    if family >= len(FAMILIES):
        raise PlanError(f"plan of unknown family {family}")
    plan = Plan(
        problem=problem, target=target, solver=solver, config=config, slots=read.many(read.slot),
        artifacts=read.many(lambda: read.take(32).hex()), prepare=read.many(read.step), run=read.many(read.step),
        packed_bytes=packed, workspace_bytes=workspace, scratch_offset=scratch_offset, scratch_stride=scratch_stride,
        threads=threads, alignment=alignment, provenance=provenance, family=FAMILIES[family],
    )  # fmt: skip
    if read.at != len(data):
        raise PlanError(f"plan ends at byte {read.at} of {len(data)}")
    check_plan(plan)
    return plan


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise PlanError(f"plan ends inside a field at byte {self.at}")
        self.at += count
        return self.data[self.at - count : self.at]

    def unpack(self, layout: str) -> tuple[int, ...]:
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)))

    def text(self) -> str:
        (count,) = self.unpack("I")
        try:
            return self.take(count).decode()
        except UnicodeDecodeError:
            raise PlanError(f"plan holds text that is not UTF-8 before byte {self.at}") from None

    def many(self, one: Callable[[], T]) -> tuple[T, ...]:
        (count,) = self.unpack("I")
        if count > len(self.data) - self.at:  # each takes a byte at least
            raise PlanError(f"plan counts {count} entries at byte {self.at}, more than it has bytes")
        return tuple(one() for _ in range(count))

    def slot(self) -> Slot:
        name, dtype = self.text(), self.text()
        (axes,) = self.unpack("I")
        if axes > len(self.data) - self.at:
            raise PlanError(f"slot {name} has {axes} axes")
        numbers = self.unpack(f"{2 * axes}q")
        nbytes, use = self.unpack("qB")
        if use > IN_PLACE:
            raise PlanError(f"slot {name}: use {use} is not 0, 1 or 2")
        return Slot(name, dtype, numbers[:axes], numbers[axes:], nbytes, use == WRITTEN, use == IN_PLACE)

    def step(self) -> Step:
        (kind,) = self.unpack("B")
        if kind == MEMSET:
            pointer = self.pointer()
            return Memset(pointer, *self.unpack("qB"))
        if kind != LAUNCH:
            raise PlanError(f"step of unknown kind {kind}")
        (artifact,) = self.unpack("I")
        symbol = self.text()
        *numbers, programmatic = self.unpack("10qB")
        if programmatic > 1:
            raise PlanError(f"{symbol}: programmatic {programmatic} is not 0 or 1")
        grid, block, cluster = (_extent(tuple(numbers[i : i + 3])) for i in (0, 3, 6))
        parameters = self.many(self.parameter)
        return Launch(artifact, symbol, grid, parameters, block, cluster, numbers[9], bool(programmatic))

    def parameter(self) -> Parameter:
        (kind,) = self.unpack("B")
        if kind == POINTER:
            return self.pointer()
        if kind == INTEGER:
            return Integer(*self.unpack("q"))
        if kind == TENSOR_MAP:
            return self.tensor_map()
        if kind != REAL:
            raise PlanError(f"parameter of unknown kind {kind}")
        return Real(*self.unpack("d"))

    def tensor_map(self) -> TensorMap:
        pointer, dtype = self.pointer(), self.text()
        (rank,) = self.unpack("I")
        if not 1 <= rank <= MAX_MAP_RANK:
            raise PlanError(f"tensor map of rank {rank}; ranks are 1 to {MAX_MAP_RANK}")
        dims, strides, steps = self.unpack(f"{rank}q"), self.unpack(f"{rank - 1}q"), self.unpack(f"{rank}q")
        swizzle, promotion, has_window = self.unpack("qqB")
        if has_window > 1 or (has_window and rank < 3):
            raise PlanError(f"tensor map of rank {rank}: is_im2col {has_window}")
        box: tuple[int, ...] = ()
        window = None
        if has_window:
            lower, upper = self.unpack(f"{rank - 2}q"), self.unpack(f"{rank - 2}q")
            window = Im2col(lower, upper, *self.unpack("qq"))
        else:
            box = self.unpack(f"{rank}q")
        return TensorMap(pointer, dtype, dims, strides, box, steps, swizzle, window, promotion)

    def pointer(self) -> Pointer:
        space, index, offset = self.unpack("BIq")
        if space not in list(Space):
            raise PlanError(f"pointer into unknown space {space}")
        return Pointer(Space(space), index, offset)


def _extent(values: tuple[int, ...]) -> Extent:
    return (values[0], values[1], values[2])
