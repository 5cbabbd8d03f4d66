"""Reads ELF files, little-endian: which machine they are for, and their sections."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tilesmith.targets.target import CpuTarget, Target

CUDA = 190  # the machine of cubins
# The class and the machine in an ELF header, by the first word of a target's name for zig.
_OF_CPUS = {"x86_64": (2, 62), "aarch64": (2, 183)}
_PROGBITS, _EXECUTABLE = 1, 4  # a section's type, and one of its flags
_SECTION = struct.Struct("<IIQQQQ")


@dataclass(frozen=True)
class Section:
    """``kind`` and ``flags`` are the section header's ``sh_type`` and ``sh_flags``."""

    name: str
    kind: int
    flags: int
    content: bytes

    @property
    def is_code(self) -> bool:
        return self.kind == _PROGBITS and bool(self.flags & _EXECUTABLE)


def machine_of(image: bytes) -> tuple[int, int] | None:
    """The class (1: 32 bits, 2: 64) and the machine of an ELF file, from its first 20 bytes; None for another file."""
    if image[:4] != b"\x7fELF" or len(image) < 20:
        return None
    return image[4], int.from_bytes(image[18:20], "little")


def sections_of(image: bytes) -> Iterator[Section]:
    """The sections of an ELF file of 64 bits, in its order; none of another file."""
    if (machine_of(image) or (0, 0))[0] != 2:
        return
    (table,) = struct.unpack_from("<Q", image, 40)
    size, count, of_names = struct.unpack_from("<HHH", image, 58)
    headers = [_SECTION.unpack_from(image, table + index * size) for index in range(count)]
    for begin, kind, flags, _, at, length in headers:
        first = headers[of_names][4] + begin
        yield Section(image[first : image.index(b"\0", first)].decode(), kind, flags, image[at : at + length])


def code_of(image: bytes) -> bytes:
    """All sections of machine code; empty for what is no ELF file."""
    return b"".join(section.content for section in sections_of(image) if section.is_code)


def why_it_cannot_run(binary: bytes, target: Target) -> str | None:
    """Why an ELF file (its first 20 bytes are enough) is not for this CPU target; None if it may be."""
    expected = _OF_CPUS.get(target.zig_target.partition("-")[0]) if isinstance(target, CpuTarget) else None
    found = machine_of(binary)
    if expected is None or found is None or found == expected:
        return None
    return f"ELF class {32 * found[0]}, machine {found[1]}; wanted: class {32 * expected[0]}, machine {expected[1]}"
