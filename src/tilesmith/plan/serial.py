"""The one serialised form of a plan: the same bytes in a database, a package and the C library.

Little-endian. A header of 24 bytes, then the body::

    magic "TSPLAN\\r\\n", version u32, CRC-32 of all that follows it u32, length of the whole u64
    text problem, target, solver, config, provenance
    i64 packed_bytes, workspace_bytes, scratch_offset, scratch_stride; u32 threads, alignment; u8 family (0 cpu, 1 cuda)
    u32 n, n slots: text name, dtype; u32 axes, i64 shape[axes], strides[axes]; i64 nbytes; u8 use (0 read,
      1 written, 2 read and the result may lie there)
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
from dataclasses import dataclass
from functools import cached_property

from tilesmith.errors import PlanError
from tilesmith.plan.check import check_plan
from tilesmith.plan.decode import (
    FAMILIES,
    HEADER,
    IN_PLACE,
    INTEGER,
    LAUNCH,
    MAGIC,
    MEMSET,
    MOST_BYTES,
    POINTER,
    READ,
    REAL,
    TENSOR_MAP,
    VERSION,
    WRITTEN,
    check_header,
    decode,
)
from tilesmith.plan.records import Integer, Memset, Plan, Pointer, Real, Step, TensorMap

__all__ = ["MOST_BYTES", "Serial", "check_header", "decode", "encode", "read_head"]
_COUNT, _SIZES = struct.Struct("<I"), struct.Struct("<4q2IB")


@dataclass(frozen=True)
class Serial:
    """A serialised plan, of which no more than its head was read: the runtime decodes the whole, and checks it."""

    data: bytes
    problem: str
    target: str
    solver: str
    config: str
    provenance: str
    family: str
    artifacts: tuple[str, ...]

    @cached_property
    def plan(self) -> Plan:
        """The whole plan, decoded when it is first asked for."""
        return decode(self.data)

    @property
    def withdrawn(self) -> str:
        """What is wrong with its kernels, so that it is not launched (``plan.withdrawn``); empty if nothing is."""
        from tilesmith.plan.withdrawn import why_withdrawn  # of a hit's plan nobody asks

        return why_withdrawn(self.solver, self.problem, self.config, self.provenance)

    @classmethod
    def of(cls, plan: Plan) -> Serial:
        """``plan`` serialised; it need not be decoded."""
        made = cls(
            encode(plan), plan.problem, plan.target, plan.solver, plan.config, plan.provenance, plan.family,
            plan.artifacts,
        )  # fmt: skip
        made.__dict__["plan"] = plan
        return made


def encode(plan: Plan) -> bytes:
    """The bytes of ``plan``; ``PlanError`` if it breaks a rule of ``plan.check``."""
    check_plan(plan)
    out = _Writer()
    for text in (plan.problem, plan.target, plan.solver, plan.config, plan.provenance):
        out.text(text)
    out.pack("qqqqIIB", plan.packed_bytes, plan.workspace_bytes, plan.scratch_offset, plan.scratch_stride,
             plan.threads, plan.alignment, FAMILIES.index(plan.family))  # fmt: skip
    out.pack("I", len(plan.slots))
    for slot in plan.slots:
        out.text(slot.name)
        out.text(slot.dtype)
        axes = len(slot.shape)
        use = WRITTEN if slot.is_output else IN_PLACE if slot.in_place else READ
        out.pack(f"I{2 * axes}qqB", axes, *slot.shape, *slot.strides, slot.nbytes, use)
    out.pack("I", len(plan.artifacts))
    for digest in plan.artifacts:
        out.parts.append(bytes.fromhex(digest))
    for steps in (plan.prepare, plan.run):
        out.pack("I", len(steps))
        for step in steps:
            out.step(step)
    body = b"".join(out.parts)
    if HEADER.size + len(body) > MOST_BYTES:
        raise PlanError(f"plan of {HEADER.size + len(body)} bytes; a plan has at most {MOST_BYTES}")
    length = struct.pack("<Q", HEADER.size + len(body))
    return MAGIC + struct.pack("<II", VERSION, zlib.crc32(length + body)) + length + body


def read_head(data: bytes) -> Serial:
    """The fields of a plan before its steps, enough to find its artifacts.

    Raises ``PlanError`` if the head breaks its form; the reader of the bytes has checked that they are whole.
    """
    number = _COUNT.unpack_from
    try:
        texts = []
        at = HEADER.size
        for _ in range(5):
            begin = at + 4
            at = begin + number(data, at)[0]
            texts.append(data[begin:at])
        family = FAMILIES[data[at + _SIZES.size - 1]]
        at += _SIZES.size
        slots = number(data, at)[0]
        at += 4
        for _ in range(slots):
            at += 4 + number(data, at)[0]  # the name
            at += 4 + number(data, at)[0]  # the dtype
            at += 4 + 16 * number(data, at)[0] + 9
        count = number(data, at)[0]
        digests = data[at + 4 : at + 4 + 32 * count].hex()
        problem, target, solver, config, provenance = [text.decode() for text in texts]
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise PlanError(f"plan has a broken head: {error}") from None
    if len(digests) != 64 * count:
        raise PlanError(f"plan counts {count} artifacts at byte {at}, more than it has bytes")
    artifacts = tuple([digests[i : i + 64] for i in range(0, len(digests), 64)])
    return Serial(data, problem, target, solver, config, provenance, family, artifacts)


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
            self.pack("BBIqqB", MEMSET, p.space, p.index, p.offset, step.nbytes, step.value)
            return
        self.pack("BI", LAUNCH, step.artifact)
        self.text(step.symbol)
        self.pack("10q?I", *step.grid, *step.block, *step.cluster, step.shared_bytes, step.programmatic,
                  len(step.parameters))  # fmt: skip
        for parameter in step.parameters:
            if isinstance(parameter, Pointer):
                self.pack("BBIq", POINTER, parameter.space, parameter.index, parameter.offset)
            elif isinstance(parameter, Integer):
                self.pack("Bq", INTEGER, parameter.value)
            elif isinstance(parameter, Real):
                self.pack("Bd", REAL, parameter.value)
            else:
                self.tensor_map(parameter)

    def tensor_map(self, made: TensorMap) -> None:
        p, rank = made.pointer, len(made.dims)
        self.pack("BBIq", TENSOR_MAP, p.space, p.index, p.offset)
        self.text(made.dtype)
        self.pack(f"I{3 * rank - 1}qqqB", rank, *made.dims, *made.strides, *made.element_strides, made.swizzle,
                  made.l2_promotion, made.im2col is not None)  # fmt: skip
        if made.im2col is None:
            self.pack(f"{rank}q", *made.box)
        else:
            window = made.im2col
            self.pack(f"{2 * rank - 2}q", *window.lower, *window.upper, window.channels, window.pixels)
