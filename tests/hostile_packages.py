"""Packages as an attacker would change them: damaged, resealed, unsigned, signed by others, renamed, mixed, absurd."""

from __future__ import annotations

import contextlib
import hashlib
import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from package_samples import MANIFEST, binary, digest, package, plan, row
from tilesmith.package.form import SIGNED, _sealed, encode, identity, with_signature
from tilesmith.package.making import PackedPlan, make_package
from tilesmith.package.records import Form, KernelPackage, Kind, name_of, new_entry

MAKER = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
ORDER = 2**252 + 27742317777372353535851937790883648493  # of the base point of ed25519
# Points of small order: the neutral one, those of order 2, 4 and 8, and spellings of them that are not the one.
SMALL = [
    bytes.fromhex(text)
    for text in (
        "0100000000000000000000000000000000000000000000000000000000000000",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "0000000000000000000000000000000000000000000000000000000000000080",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "0100000000000000000000000000000000000000000000000000000000000080",
    )
]


def signed(data: bytes, key: Ed25519PrivateKey = MAKER) -> bytes:
    return with_signature(data, key.public_key().public_bytes_raw(), key.sign(SIGNED + identity(data)))


def sample(seed: int = 1, **changes: object) -> bytes:
    """A signed package of one plan, one binary and two rows: about two kilobytes."""
    kernel = binary(seed, 60)
    manifest = replace(MANIFEST, **changes)
    return signed(encode(make_package(manifest, [PackedPlan(plan("p", kernel))], {digest(kernel): kernel}, [row("p")])))


def resealed(data: bytes) -> bytes:
    """With the digests of the pages, the table and the header made right again."""
    made = bytearray(data)
    pages, table = struct.unpack_from("<IQ", made, 28)[0], struct.unpack_from("<Q", made, 32)[0]
    at = 512 + table
    if 512 + table <= len(made) and pages * 56 <= table:
        for number in range(pages):
            row_at = 512 + 56 * number
            (length,) = struct.unpack_from("<I", made, row_at + 8)
            made[row_at + 24 : row_at + 56] = hashlib.sha256(made[at : at + length]).digest()
            at += length
        made[80:112] = hashlib.sha256(made[512 : 512 + table]).digest()
    return _sealed(bytes(made[:480])) + bytes(made[512:])


def mended(data: bytes) -> bytes:
    """The same, and the digests of the stored bytes and contents of every entry of the first page."""
    made = bytearray(data)
    table, index = struct.unpack_from("<QQ", made, 32)
    at = 512 + table + index
    for number in range(min(64, struct.unpack_from("<I", made, 24)[0])):
        begin = 512 + table + 112 * number
        if begin + 112 > len(made):
            break
        stored_bytes, size = struct.unpack_from("<QQ", made, begin + 24)
        stored = bytes(made[at : at + stored_bytes])
        made[begin + 80 : begin + 112] = hashlib.sha256(stored).digest()
        content = stored
        if made[begin + 1] and 0 < size < 1 << 27:
            with contextlib.suppress(zlib.error):
                content = zlib.decompressobj(-15).decompress(stored, size)
        made[begin + 48 : begin + 80] = hashlib.sha256(content).digest()
        at += stored_bytes
    return resealed(bytes(made))


def flipped(data: bytes, every: int) -> Iterator[bytes]:
    for at in range(0, len(data), every):
        for flip in (1 << at % 8, 0xFF):
            yield data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]


def flipped_and_mended(data: bytes, every: int) -> Iterator[bytes]:
    """All but the bytes of the key and the signature: those are no forgery but by chance."""
    for at in (*range(0, 384, every), *range(512, len(data), every)):
        made = mended(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        if made != data:  # it was a digest, and is right again
            yield made


def cut(data: bytes, every: int) -> Iterator[bytes]:
    for size in range(0, len(data), every):
        yield data[:size]
        if size >= 512:  # the header says the new length, too
            made = bytearray(data[:size])
            struct.pack_into("<Q", made, 16, size)
            struct.pack_into("<Q", made, 48, max(size - 512 - sum(struct.unpack_from("<QQ", data, 32)), 0))
            yield resealed(bytes(made))
    yield data + b"\0"
    yield data + data


def unsigned(data: bytes) -> Iterator[bytes]:
    yield encode(package(1))
    yield with_signature(data, bytes(32), bytes(64))
    yield resealed(data[:384] + bytes(32) + data[416:])
    yield resealed(data[:416] + bytes(64) + data[480:])


def of_wrong_keys(data: bytes) -> Iterator[bytes]:
    """Signed by another key, in the name of the maker, by points that sign everything, and by the same number twice."""
    own, signature = data[384:416], data[416:480]
    yield signed(data, OTHER)
    yield with_signature(data, own, OTHER.sign(SIGNED + identity(data)))
    yield with_signature(data, OTHER.public_key().public_bytes_raw(), signature)
    yield with_signature(data, own, MAKER.sign(identity(data)))  # another sentence of the maker
    yield with_signature(data, own, MAKER.sign(b"tilesmith package index 1\n" + identity(data)))
    yield with_signature(data, own, sample(2)[416:480])
    again = int.from_bytes(signature[32:], "little") + ORDER  # the same signature for those who do not look
    yield with_signature(data, own, signature[:32] + again.to_bytes(32, "little"))
    for point in SMALL:
        for r in (point, SMALL[0], own):
            yield with_signature(data, point, r + bytes(32))
            yield with_signature(data, own, r + bytes(32))


def renamed(data: bytes) -> Iterator[bytes]:
    """Another name, target, maker, counter and date in the header, with every digest right."""
    for at, room, text in ((144, 64, b"another"), (208, 96, b"sm_90a:132:h200"), (304, 48, b"tilesmith 9"),
                           (112, 32, b"00")):  # fmt: skip
        yield resealed(data[:at] + text.ljust(room, b"\0") + data[at + room :])
    for at in (64, 72):
        yield resealed(data[:at] + struct.pack("<Q", 2**63) + data[at + 8 :])


def swapped(data: bytes) -> Iterator[bytes]:
    """Parts of two packages of the same maker, each of which is good."""
    other = sample(7)
    table, index = struct.unpack_from("<QQ", data, 32)
    parts = [0, 384, 480, 512, 512 + table, 512 + table + index]
    for first, second in ((data, other), (other, data)):
        for begin, end in zip(parts, [*parts[1:], len(first)], strict=True):
            if first[begin:end] != second[begin:end]:
                mixed = bytearray(first[:begin] + second[begin:end] + first[end:])
                struct.pack_into("<Q", mixed, 16, len(mixed))
                made = (bytes(mixed), resealed(bytes(mixed)), mended(bytes(mixed)))
                yield from (each for each in made if each not in (data, other))  # right digests make some whole again


def packed_as_told(stored: bytes, content: str, kind: Kind, size: int, form: Form = Form.DEFLATED) -> bytes:
    """A package of one entry of this form, with what its maker would refuse."""
    entry = new_entry(kind, content if kind == Kind.BINARY else name_of("p", "t"), b"x" * 100)
    for name, value in (("stored", stored), ("size", size), ("form", form), ("digest", content)):
        object.__setattr__(entry, name, value)
    return encode(KernelPackage(MANIFEST, (entry,)))


def bomb(size: int, claimed: int, kind: Kind = Kind.FIND) -> bytes:
    """A package with one entry that inflates to ``size`` bytes, and says ``claimed``."""
    return packed_as_told(*zeros(size), kind, claimed)


@cache
def zeros(size: int) -> tuple[bytes, str]:
    """So many of them deflated, and their digest."""
    engine = zlib.compressobj(1, zlib.DEFLATED, -15)
    stored = b"".join(engine.compress(bytes(1 << 20)) for _ in range(size >> 20)) + engine.flush()
    return stored, hashlib.sha256(bytes(size)).hexdigest()


def bombs() -> Iterator[bytes]:
    """Signed by the maker, whom the machine trusts: what inflates too far is refused all the same."""
    for kind in (Kind.PLAN, Kind.BINARY, Kind.FIND, Kind.PERF):
        for size, claimed in ((1 << 27, 1 << 20), (1 << 27, 1 << 27), (1 << 20, 1 << 26), (1 << 20, 1 << 62)):
            yield signed(bomb(size, claimed, kind))
    yield signed(bomb(1 << 24, 1 << 24, Kind.PLAN))


def absurd(data: bytes) -> Iterator[bytes]:
    """Absurd numbers in the header, the page table and the index: every digest is right, and the maker signed them."""
    places = [(at, "I") for at in (8, 12, 24, 28)] + [(at, "Q") for at in (16, 32, 40, 48, 56)]
    table = struct.unpack_from("<Q", data, 32)[0]
    places += [(512, "Q"), (520, "I"), (524, "I"), (528, "I"), (532, "I")]
    record = 512 + table
    places += [(record + at, "I") for at in (0, 12, 16, 20)] + [(record + at, "Q") for at in (24, 32)]
    for at, kind in places:
        (own,) = struct.unpack_from(f"<{kind}", data, at)
        top = 2 ** (32 if kind == "I" else 64)
        for value in {0, 1, own - 1, own + 1, own + 64, 2**31, top // 2, top - 1, top - 511, top - own} - {own}:
            made = bytearray(data)
            struct.pack_into(f"<{kind}", made, at, value % top)
            again = resealed(bytes(made))
            if again[:384] != data[:384] or again[512:] != data[512:]:
                yield signed(again)
    for time in (float("nan"), float("inf"), -1.0, -0.0):
        yield signed(resealed(data[: record + 40] + struct.pack("<d", time) + data[record + 48 :]))


def attacks(every: int = 1) -> dict[str, Iterator[bytes]]:
    """By kind; ``every`` thins out those that go through the bytes one by one."""
    data = sample()
    return {
        "a byte flipped": flipped(data, every),
        "a byte flipped, digests made right": flipped_and_mended(data, every),
        "cut": cut(data, every),
        "unsigned": unsigned(data),
        "wrong key": of_wrong_keys(data),
        "renamed in the header": renamed(data),
        "swapped between packages": swapped(data),
        "inflates too far": bombs(),
        "absurd numbers": absurd(data),
    }
