"""Bytes as constants of C: words of 8 bytes, which compile in a fraction of the time that single bytes take."""

from __future__ import annotations

import struct

_WORD = 8
_ROW = 5  # words of a line


def word_array(data: bytes) -> str:
    """The inside of the braces of a ``uint64_t[]`` whose memory, little-endian, begins with ``data``; zeros follow."""
    padded = data + bytes(-len(data) % _WORD)
    words = [f"0x{word:x}" for word in struct.unpack(f"<{len(padded) // _WORD}Q", padded)]
    return ",\n".join(",".join(words[at : at + _ROW]) for at in range(0, len(words), _ROW))


def word_count(data: bytes) -> int:
    """The words that ``word_array`` writes."""
    return -(-len(data) // _WORD)


def byte_array(data: bytes) -> str:
    """The inside of the braces of a ``uint8_t[]``."""
    return ",".join(map(str, data))


def text_literal(text: str) -> str:
    """A string of C of printable ASCII."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
