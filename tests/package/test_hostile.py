"""Damaged and hostile packages: none is accepted, none ends the process, none takes memory that it does not hold."""

from __future__ import annotations

import contextlib
import lzma
import os
import random
import resource
import struct
import subprocess
import sys
import zlib
from dataclasses import replace

import pytest

from hostile_packages import bomb, packed_as_told, resealed
from package_samples import MANIFEST, binary, digest, package, plan, row
from tilesmith.errors import PackageError
from tilesmith.package.files import PackageFile, write
from tilesmith.package.form import _sealed, encode
from tilesmith.package.making import PackedPlan, make_package
from tilesmith.package.records import Form, KernelPackage, Kind, Manifest, name_of, new_entry

DATA = encode(package(2))
CONTENTS = {entry.key: entry.content() for entry in package(2).entries}


def accepts(data: bytes) -> bool:
    """Whether a package is taken. What can be read of one that is refused is as it was written."""
    try:
        read = PackageFile(data)
    except PackageError:
        return False
    for (kind, name, rank), content in CONTENTS.items():
        try:
            index = read.find(Kind(kind), name.decode(), rank)
            assert index is None or read.read(index) == content
        except PackageError:
            pass
    try:
        read.verify()
    except PackageError:
        return False
    return True


def test_the_sample_is_whole():
    assert accepts(DATA)


def test_every_byte_flipped():
    for at in range(len(DATA)):
        for flip in (1 << at % 8, 0xFF):
            changed = bytearray(DATA)
            changed[at] ^= flip
            assert not accepts(bytes(changed)), f"byte {at}"


def test_every_length():
    assert not any(accepts(DATA[:size]) for size in range(len(DATA)))
    assert not accepts(DATA + b"\0")


def test_absurd_numbers_in_a_sealed_header():
    """Each number of the header in turn is absurd, with a right checksum."""
    numbers = [(8, "I"), (12, "I"), (16, "Q"), (24, "I"), (28, "I"), (32, "Q"), (40, "Q"), (48, "Q"), (56, "Q")]
    for at, kind in numbers:
        (own,) = struct.unpack_from(f"<{kind}", DATA, at)
        top = 2 ** (32 if kind == "I" else 64)
        for value in {0, 1, own - 1, own + 1, own + 64, 2**31, top // 2, top - 1, top - 511, top - own} - {own}:
            made = bytearray(DATA)
            struct.pack_into(f"<{kind}", made, at, value % top)
            assert made == DATA or not accepts(resealed(bytes(made))), f"{value} at byte {at}"


def test_absurd_numbers_in_a_sealed_index():
    """Each byte of the table and of the index in turn, with right digests above it: refused, or nothing that matters.

    A rank, a revision, a time and a name are what their maker says; every bound is checked.
    """
    (table, index) = struct.unpack_from("<QQ", DATA, 32)
    draw, taken = random.Random(4), 0
    for at in range(512, 512 + table + index):
        for value in {0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)} - {DATA[at]}:
            made = bytearray(DATA)
            made[at] = value
            try:
                PackageFile(resealed(bytes(made))).verify()
                taken += 1
            except PackageError:
                pass
    assert taken < 6 * 20 * len(CONTENTS)


def test_noise_in_a_sealed_index():
    (table, index) = struct.unpack_from("<QQ", DATA, 32)
    draw = random.Random(6)
    for _ in range(3000):
        made = bytearray(DATA)
        for _ in range(draw.choice((1, 2, 5))):
            at = draw.randrange(512, 512 + table + index - 8)
            made[at : at + draw.choice((1, 4, 8))] = draw.choice((b"\0", b"\xff", draw.randbytes(1))) * 1
        made = made[: len(DATA)]
        struct.pack_into("<Q", made, 16, len(made))
        with contextlib.suppress(PackageError):
            PackageFile(resealed(bytes(made))).verify()


def test_entries_swapped_between_packages():
    """The index or the payload of one package in another one of the same form, and the other way round."""
    one, two = (
        encode(make_package(MANIFEST, [PackedPlan(plan("p", kernel))], {digest(kernel): kernel}))
        for kernel in (binary(1), binary(7))
    )
    table, index = struct.unpack_from("<QQ", one, 32)
    assert accepts(encode(package(2, replace(MANIFEST, counter=4))))
    for first, second in ((one, two), (two, one)):
        for at in (512, 512 + table, 512 + table + index):
            mixed = bytearray(first[:at] + second[at:])
            struct.pack_into("<Q", mixed, 16, len(mixed))
            assert not accepts(bytes(mixed))
            assert not accepts(_sealed(bytes(mixed[:480])) + bytes(mixed[512:]))
        payload = bytearray(first[: 512 + table + index] + second[512 + table + index :])
        struct.pack_into("<Q", payload, 16, len(payload))
        assert not accepts(resealed(bytes(payload)))


def test_a_plan_under_the_name_of_another_problem():
    """The digests are right: the plan itself says which problem it is for."""
    kernel = binary(1)
    right = make_package(MANIFEST, [PackedPlan(plan("p", kernel))], {digest(kernel): kernel})
    held = right.of_kind(Kind.PLAN)[0]
    for name in ("q\nx86_64-v4:2:zen5", "p\nx86_64-v4:4:zen5", "p", "p\n", "pp\nx86_64-v4:2:zen5"):
        wrong = replace(held, name=name)
        read = PackageFile(encode(KernelPackage(MANIFEST, (wrong, *right.of_kind(Kind.BINARY)))))
        with pytest.raises(PackageError, match="another problem or target"):
            read.read(0)


def test_incomplete_and_foreign_contents():
    kernel = binary(1)
    whole = make_package(MANIFEST, [PackedPlan(plan("p", kernel))], {digest(kernel): kernel}, [row("p")])
    without = KernelPackage(MANIFEST, whole.of_kind(Kind.PLAN))
    foreign = replace(whole.of_kind(Kind.BINARY)[0], name=digest(b"another"))
    damaged = new_entry(Kind.FIND, name_of("p", "t"), whole.of_kind(Kind.FIND)[0].content().replace(b"12.5", b"12.4"))
    elsewhere = new_entry(Kind.FIND, name_of("q", "t"), whole.of_kind(Kind.FIND)[0].content())
    broken = new_entry(Kind.PLAN, name_of("p", "x86_64-v4:2:zen5"), whole.of_kind(Kind.PLAN)[0].content()[:-1])
    for entries, words in (
        (without.entries, "missing"), ((foreign,), "breaks its form"), ((damaged,), "damaged"),
        ((elsewhere,), "stands under"), ((broken,), "plan of"),
    ):  # fmt: skip
        with pytest.raises(PackageError, match=words):
            PackageFile(encode(KernelPackage(MANIFEST, tuple(entries)))).verify()


def test_bombs_take_no_more_memory_than_they_say():
    for size, claimed in ((1 << 28, 1 << 20), (1 << 20, 1 << 26), (1 << 28, 1 << 28), (1 << 20, 1 << 62), (1 << 20, 0)):
        data = bomb(size, claimed)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(PackageError):
            PackageFile(data).read(0)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 80 << 10  # KiB: 64 MiB are the limit


def test_contents_that_cost_more_than_they_hold():
    """Refused by their sizes, before a byte is inflated: a long plan, long rows, more deflated bytes than content."""
    engine = zlib.compressobj(9, zlib.DEFLATED, -15)
    stored = engine.compress(bytes(17 << 20)) + engine.flush()
    for kind, size in ((Kind.PLAN, (1 << 20) + 1), (Kind.FIND, (1 << 24) + 1), (Kind.BINARY, (1 << 26) + 1)):
        with pytest.raises(PackageError, match="impossible here"):
            PackageFile(packed_as_told(stored * (size // len(stored) // 1032 + 1), digest(b""), kind, size)).entry(0)
    long = bytes.fromhex("0208208000") * 4 + zlib.compress(b"a", 9)[2:-4]  # empty blocks of 10 bits each before it
    assert zlib.decompressobj(-15).decompress(long) == b"a"
    with pytest.raises(PackageError, match="impossible here"):
        PackageFile(packed_as_told(long, digest(b"a"), Kind.FIND, 1)).entry(0)


def test_lzma_that_is_not_what_it_says():
    """Too long and too short, damaged, from nothing, in a package of version 1: refused. None grows the process."""
    how = {"id": lzma.FILTER_LZMA1, "dict_size": 4096, "lc": 1, "lp": 2, "pb": 3}
    text = b"words of a text, " * 300
    stored = lzma.compress(text, format=lzma.FORMAT_RAW, filters=[how])
    whole = packed_as_told(stored, digest(text), Kind.BINARY, len(text), Form.LZMA)
    assert PackageFile(whole).read(0) == text
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for data, size in (
        (stored, len(text) - 1), (stored, len(text) + 1), (stored, 1032 * len(stored)), (stored[:-1], len(text)),
        (b"\1" + stored[1:], len(text)), (stored + b"\0", len(text)), (bytes(100), len(text)), (b"\0" * 4, len(text)),
        (stored, 1032 * len(stored) + 1), (bytes(1 << 16), 1 << 26), (b"\xff" * 99, 9999),
    ):  # fmt: skip
        with pytest.raises(PackageError):
            PackageFile(packed_as_told(data, digest(text), Kind.BINARY, size, Form.LZMA)).read(0)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 80 << 10
    older = bytearray(whole)
    older[8] = 1
    with pytest.raises(PackageError, match="form 2, which do not exist"):
        PackageFile(resealed(bytes(older))).read(0)


def test_a_header_that_leads_to_another_folder():
    """The name and the target make the name of a file."""
    for at, text in (
        (144, b"../../x"),
        (144, b"a/b"),
        (144, b".a"),
        (208, b"../../../etc/x"),
        (208, b"a b"),
        (208, b"-"),
    ):
        made = bytearray(DATA)
        made[at : at + 64] = text.ljust(64, b"\0")
        with pytest.raises(PackageError, match="breaks its form"):
            PackageFile(resealed(bytes(made)))
    for name, target in (("a", "../x"), ("a", "x/y"), ("a", "x y"), ("a", "..")):
        with pytest.raises(PackageError):
            Manifest(name, target, "m", "g")


def test_what_is_no_file_is_not_waited_for(tmp_path):
    """A FIFO without a writer, a folder, a device, a link to nothing, an empty name: one line each, at once."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for path in (tmp_path / "fifo", tmp_path, "/dev/zero", tmp_path / "link", "", "a\0b", tmp_path / ("x" * 300)):
        with pytest.raises(PackageError) as error:
            PackageFile(path)
        assert len(str(error.value).splitlines()) == 1
    with pytest.raises(TypeError, match="cannot change"):
        PackageFile.__init__(object.__new__(PackageFile), bytearray(DATA))


def test_a_file_that_is_changed_in_place(tmp_path):
    """Cut, or written over with another package, after its first entry was read: an error or the old content."""
    path, other = tmp_path / "a.kdb", encode(package(150, replace(MANIFEST, counter=9), size=301))
    made = package(150)
    for changed in (b"", DATA, other, other[:9000], bytes(1 << 20)):
        write(path, made)
        read = PackageFile(path)
        assert read.read(0) == made.entries[0].content()
        with path.open("r+b") as file:
            file.truncate(len(changed))
            file.write(changed)
        for index in range(0, len(made.entries), 7):
            with contextlib.suppress(PackageError):
                assert read.read(index) == made.entries[index].content()
        with pytest.raises(PackageError):
            read.verify()


def test_a_manifest_that_python_refuses(tmp_path):
    """The C reader takes any printable text; the rules of names are Python's too."""
    made = bytearray(DATA)
    made[144:148] = b"TEST"
    (tmp_path / "a.kdb").write_bytes(resealed(bytes(made)))
    with pytest.raises(PackageError, match="a.kdb: package name 'TEST'"):
        PackageFile(tmp_path / "a.kdb")
    with pytest.raises(PackageError):
        Manifest("../x", "t", "m", "g")


def test_a_reader_in_a_small_process(tmp_path):
    """64 MiB of address space above what Python needs are enough to refuse a file of a sparse terabyte."""
    path = tmp_path / "huge.kdb"
    with path.open("wb") as file:
        file.write(DATA[:512])
        file.truncate(1 << 40)
    code = f"""
import resource
from tilesmith.errors import PackageError
from tilesmith.package.files import PackageFile, write
try:
    PackageFile({str(path)!r})
except PackageError as error:
    print(error)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert f"package of {len(DATA)} bytes" in told.stdout
