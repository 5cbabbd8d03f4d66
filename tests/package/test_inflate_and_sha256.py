"""The C runtime's own SHA-256 and inflate agree with hashlib and zlib, on whole streams and on damaged ones."""

from __future__ import annotations

import ctypes
import hashlib
import random
import subprocess
import time
import zlib
from pathlib import Path

import pytest

import tilesmith.runtime
from tilesmith.toolchain.compilers import find_compiler

CSRC = Path(tilesmith.runtime.__file__).parent / "csrc"
pytestmark = pytest.mark.needs_compiler


@pytest.fixture(scope="module")
def c(tmp_path_factory):
    out = tmp_path_factory.mktemp("c") / "both.so"
    files = [CSRC / "ts_sha256.c", CSRC / "ts_inflate.c"]
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*find_compiler().command, *flags, *map(str, files), "-o", str(out)], check=True)
    library = ctypes.CDLL(str(out))
    library.ts_inflate.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    library.ts_sha256.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p]
    return library


def inflated(c, stream: bytes, size: int) -> bytes | None:
    """What C makes of a stream: ``size`` bytes, or None for a refusal. A guard behind them stays as it was."""
    memory = ctypes.create_string_buffer(b"\xa5" * (size + 16), size + 16)
    done = c.ts_inflate(stream, len(stream), memory, size)
    assert memory.raw[size:] == b"\xa5" * 16
    return memory.raw[:size] if done else None


def by_zlib(stream: bytes, size: int) -> bytes | None:
    engine = zlib.decompressobj(-15)
    try:
        data = engine.decompress(stream, size + 1)
    except zlib.error:
        return None
    return data if engine.eof and not engine.unused_data and len(data) == size else None


def texts():
    """Data that make zlib use each kind of block, short and long matches, and long codes."""
    draw = random.Random(3)
    yield b""
    yield b"a"
    yield bytes(70_000)
    yield draw.randbytes(70_000)
    yield bytes(draw.choice(b"abcd") for _ in range(9_000))
    yield b"".join(bytes([value]) * (1 << min(value, 15)) for value in range(20))  # codes of 15 bits
    yield (draw.randbytes(300) + bytes(32_000)) * 3  # the longest distances
    for size in (1, 63, 1000, 40_000):
        yield bytes(min(255, int(draw.expovariate(0.05))) for _ in range(size))


def streams():
    for data in texts():
        for level in (0, 1, 6, 9):
            for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE):
                engine = zlib.compressobj(level, zlib.DEFLATED, -15, 9, strategy)
                yield data, engine.compress(data) + engine.flush()


def test_whole_streams(c):
    for data, stream in streams():
        assert inflated(c, stream, len(data)) == data
        assert inflated(c, stream + b"\0", len(data)) is None
        assert inflated(c, stream[:-1], len(data)) is None
        assert inflated(c, stream, len(data) + 1) is None
        if data:
            assert inflated(c, stream, len(data) - 1) is None


def test_damaged_streams(c):
    """What zlib takes is taken, with the same bytes; what zlib refuses is refused."""
    draw = random.Random(5)
    kept = [(data, stream) for data, stream in streams() if 0 < len(stream) < 3000]
    taken = 0
    for _ in range(20_000):
        data, stream = draw.choice(kept)
        changed = bytearray(stream)
        for _ in range(draw.choice((1, 1, 2, 8))):
            changed[draw.randrange(min(len(changed), draw.choice((4, 40, 4000))))] ^= 1 << draw.randrange(8)
        expected = by_zlib(bytes(changed), len(data))
        assert inflated(c, bytes(changed), len(data)) == expected
        taken += expected is not None
    assert taken > 100


def test_streams_of_noise(c):
    draw = random.Random(7)
    for _ in range(20_000):
        stream, size = draw.randbytes(draw.randrange(1, 60)), draw.randrange(0, 300)
        assert inflated(c, stream, size) == by_zlib(stream, size)


def test_sha256(c):
    draw = random.Random(1)
    for size in (*range(200), 4096, 100_003):
        data, found = draw.randbytes(size), ctypes.create_string_buffer(32)
        c.ts_sha256(data, size, found)
        assert found.raw == hashlib.sha256(data).digest()


def test_a_row_of_empty_blocks_takes_no_time(c):
    """A megabyte of blocks of 10 bits each: their code is made once."""
    stream = bytes.fromhex("0208208000") * 200_000 + zlib.compress(b"ab", 9)[2:-4]
    begun = time.process_time()
    assert inflated(c, stream, 2) == by_zlib(stream, 2) == b"ab"
    assert time.process_time() - begun < 2  # 0.03 s; made for each block, it were 7 s


def test_a_fixed_code_between_others(c):
    """Blocks of each kind in turn: none reads with the code of another."""
    draw, stream, text = random.Random(2), b"", b""
    for strategy in (zlib.Z_FIXED, zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_FIXED, zlib.Z_DEFAULT_STRATEGY):
        engine = zlib.compressobj(9, zlib.DEFLATED, -15, 9, strategy)
        part = bytes(draw.choice(b"abcdefgh") for _ in range(900))
        stream += engine.compress(part) + engine.flush(zlib.Z_FULL_FLUSH)
        text += part
    stream += zlib.compressobj(9, zlib.DEFLATED, -15).flush()
    assert inflated(c, stream, len(text)) == text
