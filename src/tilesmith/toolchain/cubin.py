"""Cubins without the sections that debuggers and disassemblers alone read."""

from __future__ import annotations

import struct

# How to unwind the stack for a debugger, with its relocations; the compiler's name, version and options.
UNREAD = (b".debug_frame", b".rel.debug_frame", b".rela.debug_frame", b".note.nv.tkinfo")
_ELF = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<40xQ10xHHH")  # where the table of sections lies, bytes of a row, rows, the row of the names
_SECTION = struct.Struct("<I20xQQ")  # of a row: where its name begins; where the section lies, and its bytes
_SIZE_AT = 32


def slim(cubin: bytes) -> bytes:
    """The cubin with its ``UNREAD`` sections empty, their bytes 0; what is no cubin as it is.

    No other byte moves, so every index, offset and relocation stays right. Zeros deflate to nothing.
    """
    if not cubin.startswith(_ELF) or len(cubin) < _HEADER.size:
        return cubin
    table, row_bytes, count, names = _HEADER.unpack_from(cubin)
    if row_bytes < _SECTION.size or names >= count or table + count * row_bytes > len(cubin):
        return cubin
    slimmed = bytearray(cubin)
    _, at, nbytes = _SECTION.unpack_from(cubin, table + names * row_bytes)
    texts = cubin[at : at + nbytes]
    for row in range(table, table + count * row_bytes, row_bytes):
        name_at, at, nbytes = _SECTION.unpack_from(cubin, row)
        if texts[name_at:].partition(b"\0")[0] in UNREAD and at + nbytes <= len(cubin):
            slimmed[at : at + nbytes] = bytes(nbytes)
            struct.pack_into("<Q", slimmed, row + _SIZE_AT, 0)
    return bytes(slimmed)
