"""The one serialised form of a plan: the same bytes in a database, a package and the C library.

Little-endian. A header of 24 bytes, then the body::

    magic "TSPLAN\\r\\n", version u32, CRC-32 of all that follows it u32, length of the whole u64
    text problem, target, solver, config, provenance
    i64 packed_bytes, workspace_bytes, scratch_offset, scratch_stride; u32 threads, alignment; u8 family (0 cpu, 1 cuda)
    u32 n, n slots: text name, dtype; u32 axes, i64 shape[axes], strides[axes]; i64 nbytes; u8 is_output
    u32 n, n artifacts: 32 bytes of sha256
    u32 n, n steps of prepare; u32 n, n steps of run
      u8 1: launch: u32 artifact, text symbol, i64 grid[3], block[3], cluster[3], shared_bytes, u8 programmatic,
            u32 n, n parameters
        u8 1: u8 space, u32 index, i64 offset;  u8 2: i64;  u8 3: f64
        u8 4: tensor map: u8 space, u32 index, i64 offset, text dtype, u32 rank, i64 dims[rank], strides[rank-1],
              element_strides[rank], swizzle, l2_promotion, u8 is_im2col
              (tiled: i64 box[rank]; im2col: i64 lower[rank-2], upper[rank-2], channels, pixels)
      u8 2: memset: u8 space, u32 index, i64 offset, nbytes, u8 value

``text`` is its length in bytes (u32), then UTF-8. ``runtime/csrc`` decodes the same form.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
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
_HEADER = struct.Struct("<8sIIQ")
_SEALED_FROM = 16  # the CRC covers the length and the body
_LAUNCH, _MEMSET = 1, 2
_POINTER, _INTEGER, _REAL, _TENSOR_MAP = 1, 2, 3, 4
_FAMILIES = ("cpu", "cuda")
_COUNT, _SIZES = struct.Struct("<I"), struct.Struct("<4q2IB")

T = TypeVar("T")


@dataclass(frozen=True)
class Serial:
    """A serialised plan, of which no more than its head was read: the runtime decodes the whole, and checks it."""

    data: bytes
    problem: str
    target: str
    solver: str
    config: str
    family: str
    artifacts: tuple[str, ...]

    @cached_property
    def plan(self) -> Plan:
        """The whole plan, decoded when it is first asked for."""
        return decode(self.data)


def encode(plan: Plan) -> bytes:
    """The bytes of ``plan``; ``PlanError`` if it breaks a rule of ``plan.check``."""
    check_plan(plan)
    out = _Writer()
    for text in (plan.problem, plan.target, plan.solver, plan.config, plan.provenance):
        out.text(text)
    out.pack("qqqqIIB", plan.packed_bytes, plan.workspace_bytes, plan.scratch_offset, plan.scratch_stride,
             plan.threads, plan.alignment, _FAMILIES.index(plan.family))  # fmt: skip
    out.pack("I", len(plan.slots))
    for slot in plan.slots:
        out.text(slot.name)
        out.text(slot.dtype)
        axes = len(slot.shape)
        out.pack(f"I{2 * axes}qq?", axes, *slot.shape, *slot.strides, slot.nbytes, slot.is_output)
    out.pack("I", len(plan.artifacts))
    for digest in plan.artifacts:
        out.parts.append(bytes.fromhex(digest))
    for steps in (plan.prepare, plan.run):
        out.pack("I", len(steps))
        for step in steps:
            out.step(step)
    body = b"".join(out.parts)
    _check_length(_HEADER.size + len(body))
    length = struct.pack("<Q", _HEADER.size + len(body))
    return MAGIC + struct.pack("<II", VERSION, zlib.crc32(length + body)) + length + body


def decode(data: bytes) -> Plan:
    """The plan that ``data`` holds; ``PlanError`` if any byte is not as ``encode`` wrote it."""
    try:
        return _decode(data)
    except PlanError as error:  # one line, whatever a damaged plan calls its parts
        raise PlanError("".join(c if c.isprintable() else "?" for c in str(error))) from None


def read_head(data: bytes) -> Serial:
    """The fields of a plan before its steps, enough to find its artifacts.

    Raises ``PlanError`` if the head breaks its form; the reader of the bytes has checked that they are whole.
    """
    number = _COUNT.unpack_from
    try:
        texts = []
        at = _HEADER.size
        for _ in range(5):
            begin = at + 4
            at = begin + number(data, at)[0]
            texts.append(data[begin:at])
        family = _FAMILIES[data[at + _SIZES.size - 1]]
        at += _SIZES.size
        slots = number(data, at)[0]
        at += 4
        for _ in range(slots):
            at += 4 + number(data, at)[0]  # the name
            at += 4 + number(data, at)[0]  # the dtype
            at += 4 + 16 * number(data, at)[0] + 9
        count = number(data, at)[0]
        digests = data[at + 4 : at + 4 + 32 * count].hex()
        problem, target, solver, config = [text.decode() for text in texts[:4]]
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise PlanError(f"plan has a broken head: {error}") from None
    if len(digests) != 64 * count:
        raise PlanError(f"plan counts {count} artifacts at byte {at}, more than it has bytes")
    artifacts = tuple([digests[i : i + 64] for i in range(0, len(digests), 64)])
    return Serial(data, problem, target, solver, config, family, artifacts)


def check_header(data: bytes) -> None:
    """``PlanError`` unless these are all the bytes of a plan of this version."""
    if len(data) < _HEADER.size or data[:8] != MAGIC:
        raise PlanError(f"these {len(data)} bytes are no plan")
    _, version, crc, length = _HEADER.unpack_from(data)
    if version != VERSION:
        raise PlanError(f"plan of version {version}, this is version {VERSION}")
    if length != len(data):
        raise PlanError(f"plan of {length} bytes, got {len(data)}")
    _check_length(length)
    if crc != zlib.crc32(data[_SEALED_FROM:]):
        raise PlanError("plan is damaged: its checksum is wrong")


def _check_length(length: int) -> None:
    if length > MOST_BYTES:
        raise PlanError(f"plan of {length} bytes; a plan has at most {MOST_BYTES}")


def _decode(data: bytes) -> Plan:
    check_header(data)
    read = _Reader(data, _HEADER.size)
    problem, target, solver, config, provenance = (read.text() for _ in range(5))
    packed, workspace, scratch_offset, scratch_stride, threads, alignment, family = read.unpack("qqqqIIB")
    if family >= len(_FAMILIES):
        raise PlanError(f"plan of unknown family {family}")
    plan = Plan(
        problem=problem, target=target, solver=solver, config=config, slots=read.many(read.slot),
        artifacts=read.many(lambda: read.take(32).hex()), prepare=read.many(read.step), run=read.many(read.step),
        packed_bytes=packed, workspace_bytes=workspace, scratch_offset=scratch_offset, scratch_stride=scratch_stride,
        threads=threads, alignment=alignment, provenance=provenance, family=_FAMILIES[family],
    )  # fmt: skip
    if read.at != len(data):
        raise PlanError(f"plan ends at byte {read.at} of {len(data)}")
    check_plan(plan)
    return plan


class _Writer:
    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def pack(self, layout: str, *values: float) -> None:
        try:
            self.parts.append(struct.pack("<" + layout, *values))
        except struct.error as error:
            raise PlanError(f"plan holds a value out of range: {error}") from None

    def text(self, text: str) -> None:
        data = text.encode()
        self.pack("I", len(data))
        self.parts.append(data)

    def step(self, step: Step) -> None:
        if isinstance(step, Memset):
            p = step.pointer
            self.pack("BBIqqB", _MEMSET, p.space, p.index, p.offset, step.nbytes, step.value)
            return
        self.pack("BI", _LAUNCH, step.artifact)
        self.text(step.symbol)
        self.pack("10q?I", *step.grid, *step.block, *step.cluster, step.shared_bytes, step.programmatic,
                  len(step.parameters))  # fmt: skip
        for parameter in step.parameters:
            if isinstance(parameter, Pointer):
                self.pack("BBIq", _POINTER, parameter.space, parameter.index, parameter.offset)
            elif isinstance(parameter, Integer):
                self.pack("Bq", _INTEGER, parameter.value)
            elif isinstance(parameter, Real):
                self.pack("Bd", _REAL, parameter.value)
            else:
                self.tensor_map(parameter)

    def tensor_map(self, made: TensorMap) -> None:
        p, rank = made.pointer, len(made.dims)
        self.pack("BBIq", _TENSOR_MAP, p.space, p.index, p.offset)
        self.text(made.dtype)
        self.pack(f"I{3 * rank - 1}qqqB", rank, *made.dims, *made.strides, *made.element_strides, made.swizzle,
                  made.l2_promotion, made.im2col is not None)  # fmt: skip
        if made.im2col is None:
            self.pack(f"{rank}q", *made.box)
        else:
            window = made.im2col
            self.pack(f"{2 * rank - 2}q", *window.lower, *window.upper, window.channels, window.pixels)


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
        nbytes, is_output = self.unpack("qB")
        if is_output > 1:
            raise PlanError(f"slot {name}: is_output {is_output} is not 0 or 1")
        return Slot(name, dtype, numbers[:axes], numbers[axes:], nbytes, bool(is_output))

    def step(self) -> Step:
        (kind,) = self.unpack("B")
        if kind == _MEMSET:
            pointer = self.pointer()
            return Memset(pointer, *self.unpack("qB"))
        if kind != _LAUNCH:
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
        if kind == _POINTER:
            return self.pointer()
        if kind == _INTEGER:
            return Integer(*self.unpack("q"))
        if kind == _TENSOR_MAP:
            return self.tensor_map()
        if kind != _REAL:
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
