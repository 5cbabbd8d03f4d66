"""The C runtime's own LZMA agrees with liblzma, on whole streams and on damaged ones."""

from __future__ import annotations

import lzma
import random

import pytest

from tilesmith.runtime._runtime import unlzma

HOW = {"lc": 1, "lp": 2, "pb": 3}


def packed(data: bytes, window: int = 1 << 20, **more) -> bytes:
    filters = [{"id": lzma.FILTER_LZMA1, "dict_size": window, **HOW, **more}]
    return lzma.compress(data, format=lzma.FORMAT_RAW, filters=filters)


def by_liblzma(stream: bytes, size: int) -> bytes | None:
    engine = lzma.LZMADecompressor(lzma.FORMAT_RAW, None, [{"id": lzma.FILTER_LZMA1, "dict_size": 1 << 20, **HOW}])
    try:
        data = engine.decompress(stream)
    except lzma.LZMAError:
        return None
    return data if engine.eof and not engine.unused_data and len(data) == size else None


@pytest.fixture(scope="module")
def texts():
    """Data with every kind of symbol: literals, matches near and far, short and long, repeats of four distances."""
    draw = random.Random(3)
    words = [draw.randbytes(draw.choice((3, 9, 16, 40, 300))) for _ in range(40)]
    return [
        b"", b"a", b"ab" * 300, bytes(70_000), draw.randbytes(3000), bytes(draw.choice(b"abcd") for _ in range(9000)),
        (draw.randbytes(300) + bytes(32_000)) * 3, b"".join(draw.choices(words, k=500)),
        b"".join(draw.choice(words)[: draw.randrange(1, 300)] + draw.randbytes(1) for _ in range(500)),
        draw.randbytes(70_000) + draw.randbytes(100) * 2,
        bytes(min(255, int(draw.expovariate(0.05))) for _ in range(4000)),
    ]  # fmt: skip


def test_whole_streams(texts):
    for data in texts:
        for more in ({"preset": 9 | lzma.PRESET_EXTREME}, {"preset": 0}):
            stream = packed(data, **more)
            assert unlzma(stream, len(data)) == data
            assert unlzma(stream + b"\0", len(data)) is None
            assert unlzma(stream[:-1], len(data)) is None
            assert unlzma(stream, len(data) + 1) is None
            if data:
                assert unlzma(stream, len(data) - 1) is None


def test_damaged_streams(texts):
    """What is taken has the bytes that liblzma makes of it."""
    draw = random.Random(5)
    kept = [(data, packed(data)) for data in texts if 0 < len(data) < 10_000]
    for _ in range(3000):
        data, stream = draw.choice(kept)
        changed = bytearray(stream)
        for _ in range(draw.choice((1, 1, 2, 8))):
            changed[draw.randrange(min(len(changed), draw.choice((6, 40, 4000))))] ^= 1 << draw.randrange(8)
        assert unlzma(bytes(changed), len(data)) == by_liblzma(bytes(changed), len(data))


def test_streams_of_noise():
    draw = random.Random(7)
    for _ in range(3000):
        stream, size = b"\0" * draw.randrange(2) + draw.randbytes(draw.randrange(60)), draw.randrange(300)
        assert unlzma(stream, size) == by_liblzma(stream, size)
