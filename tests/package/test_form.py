"""The bytes of packages: as the documentation says, the same for the same records, and read back as they were."""

from __future__ import annotations

import hashlib
import lzma
import os
import random
import struct
import subprocess
import sys
import threading
import zlib
from dataclasses import replace

import pytest

from package_samples import MANIFEST, TARGET, binary, digest, package, plan, row
from tilesmith.errors import PackageError
from tilesmith.package.files import PackageFile, write
from tilesmith.package.form import encode, identity, with_signature
from tilesmith.package.making import PackedPlan, make_package
from tilesmith.package.records import Form, KernelPackage, Kind, Manifest, name_of, new_entry


def test_what_is_written_is_read(tmp_path):
    """200 problems fill several pages of the index."""
    made = package(200)
    path = tmp_path / "a.kdb"
    assert write(path, made) == path.stat().st_size
    for source in (path, path.read_bytes()):
        read = PackageFile(source)
        assert read.load() == made
        assert (read.manifest, read.public_key, read.signature) == (MANIFEST, b"", b"")
        read.verify()
        for index, entry in enumerate(made.entries):
            assert read.find(entry.kind, entry.name, entry.rank) == index
            assert read.read(index) == entry.content()
        assert read.find(Kind.PLAN, "conv1;fwd;n=7", 0) is None
        assert read.find(Kind.PLAN, name_of("conv1;fwd;n=7", TARGET), 2) is None
        assert read.find(Kind.PERF, "") is None
        assert read.records(Kind.FIND, "conv1;fwd;n=7", TARGET) == (row("conv1;fwd;n=7"),)
        with pytest.raises(IndexError):
            read.read(len(made.entries))
    assert list(tmp_path.iterdir()) == [path]


def test_a_package_by_hand():
    """Read by the table in the documentation, with nothing of the code that writes it."""
    made = package(70)
    data = encode(made)
    size, entries, pages, table, index, payload = struct.unpack_from("<QIIQQQ", data, 16)
    assert (data[:8], size, size) == (b"TSKDB\r\n\x1a", len(data), 512 + table + index + payload)
    assert entries == len(made.entries) == 70 * 4 + 2
    assert struct.unpack_from("<QQ", data, 64) == (3, 1_700_000_000)
    assert [data[at : at + room].rstrip(b"\0") for at, room in ((112, 32), (144, 64), (208, 96), (304, 48))] == [
        b"0123456789abcdef", b"test", TARGET.encode(), b"tilesmith 0.1.0",
    ]  # fmt: skip
    assert hashlib.sha256(data[512 : 512 + table]).digest() == data[80:112]
    assert hashlib.sha256(data[:480]).digest() == data[480:512]
    assert identity(data) == hashlib.sha256(data[:384]).digest()
    page_at, stored_at, found = 512 + table, 512 + table + index, []
    for number in range(pages):
        first, length, kind, rank, name_length = struct.unpack_from("<QIIII", data, 512 + 56 * number)
        page = data[page_at : page_at + length]
        assert hashlib.sha256(page).digest() == data[512 + 56 * number + 24 :][:32]
        assert first == stored_at
        for place in range(min(64, entries - 64 * number)):
            kind, form, _, rank, revision, name_at, name_length, _, stored, nbytes, time_us, sha, stored_sha = (
                struct.unpack_from("<BBHIIIIIQQd32s32s", page, 112 * place)
            )
            raw = data[stored_at : stored_at + stored]
            assert hashlib.sha256(raw).digest() == stored_sha
            content = (bytes, lambda data: zlib.decompress(data, -15), by_liblzma)[form](raw)
            assert (len(content), hashlib.sha256(content).digest()) == (nbytes, sha)
            name = page[name_at : name_at + name_length].decode()
            found.append((kind, name, rank, revision, time_us, content))
            stored_at += stored
        page_at += length
    assert found == [(e.kind, e.name, e.rank, e.revision, e.time_us, e.content()) for e in made.entries]
    assert sorted(found) == found


def by_liblzma(stored):
    filters = [{"id": lzma.FILTER_LZMA1, "dict_size": 1 << 26, "lc": 1, "lp": 2, "pb": 3}]
    return lzma.decompress(stored, format=lzma.FORMAT_RAW, filters=filters)


def test_a_large_kernel_is_lzma(tmp_path):
    """Where that saves an eighth. Such a package has version 2; one without such an entry does not."""
    draw = random.Random(1)
    rough = [draw.randbytes(5) + bytes(3) + draw.choice((b"\0\x0e", b"\0\x0f")) + bytes(6) for _ in range(400)]
    kernels = {digest(data): data for data in (b"".join(rough), draw.randbytes(9000), binary(1))}
    plans = [PackedPlan(plan(f"p{n}", data)) for n, data in enumerate(kernels.values())]
    made = make_package(MANIFEST, plans, kernels)
    forms = {entry.name: entry.form for entry in made.of_kind(Kind.BINARY)}
    assert [forms[name] for name in list(kernels)[:2]] == [Form.LZMA, Form.PLAIN]
    write(tmp_path / "a.kdb", made)
    read = PackageFile(tmp_path / "a.kdb")
    read.verify()
    assert read.load() == made
    for name, data in kernels.items():
        assert read.read(read.find(Kind.BINARY, name)) == read.entry(read.find(Kind.BINARY, name)).content() == data
    (packed,) = (entry for entry in made.entries if entry.form == Form.LZMA)
    assert by_liblzma(packed.stored) == packed.content()
    assert 8 * len(packed.stored) < 7 * len(zlib.compress(packed.content(), 9))
    assert struct.unpack_from("<I", encode(made), 8) == (2,)
    plain = replace(made, entries=tuple(e for e in made.entries if e.kind != Kind.BINARY))
    assert struct.unpack_from("<I", encode(plain), 8) == (1,)
    damaged = replace(packed, stored=packed.stored[:-1] + b"\1")
    with pytest.raises(PackageError, match="damaged"):
        damaged.content()


def test_the_same_bytes_in_any_order_and_process():
    made = package(90)
    shuffled = list(made.entries)
    random.Random(2).shuffle(shuffled)
    assert encode(KernelPackage(made.manifest, tuple(shuffled))) == encode(made)
    code = "import sys; from package_samples import *; from tilesmith.package.form import encode; " \
           "import hashlib; print(hashlib.sha256(encode(package(90))).hexdigest())"  # fmt: skip
    places = os.pathsep.join(path for path in sys.path if path)
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONPATH": places, "PYTHONHASHSEED": seed, "TZ": f"UTC+{seed}"}
        told = subprocess.check_output([sys.executable, "-c", code], text=True, env=environment)
        assert told.strip() == hashlib.sha256(encode(made)).hexdigest()


def test_each_distinct_binary_once():
    """100 problems share two kernels; a kernel that no plan counts is left out."""
    made = package(100)
    assert len(made.of_kind(Kind.BINARY)) == 2
    names = {entry.name for entry in made.of_kind(Kind.BINARY)}
    spare = make_package(MANIFEST, [PackedPlan(plan("p", binary(1)))], {digest(binary(n)): binary(n) for n in (1, 9)})
    assert {entry.name for entry in spare.of_kind(Kind.BINARY)} == {digest(binary(1))} <= names


def test_the_best_plan_comes_first():
    """By time; plans that were not measured follow in the order given."""
    kernel = binary(0)
    given = [("a", 0.0), ("b", 9.0), ("c", 0.0), ("d", 3.5)]
    plans = [PackedPlan(plan("p", kernel, solver=solver), 1, time_us) for solver, time_us in given]
    read = PackageFile(encode(make_package(MANIFEST, plans, {digest(kernel): kernel})))
    name = name_of("p", TARGET)
    order = [read.entry(read.find(Kind.PLAN, name, rank)) for rank in range(4)]
    assert [entry.time_us for entry in order] == [3.5, 9.0, 0.0, 0.0]
    assert [entry.content() for entry in order] == [plans[i].data for i in (3, 1, 0, 2)]


def test_rows_of_several_targets():
    """The find-db of a package is for a list of targets."""
    targets = ("sm_90a:132:h200", "sm_90a:114:h100-pcie", "x86_64-v4:8:zen4")
    rows = [row("p", 5.0 + n, target=target, solver=f"s{n}") for target in targets for n in range(3)]
    read = PackageFile(encode(make_package(MANIFEST, [], {}, reversed(rows), rows)))
    for target in targets:
        assert [r.solver for r in read.records(Kind.FIND, "p", target)] == ["s0", "s1", "s2"]
        assert read.records(Kind.PERF, "p", target, "s2")[0].time_us == 7.0
    read.verify()


def test_a_signature_is_beside_what_it_signs():
    data = encode(package())
    signed = with_signature(data, b"k" * 32, b"s" * 64)
    read = PackageFile(signed)
    read.verify()
    assert (read.public_key, read.signature) == (b"k" * 32, b"s" * 64)
    assert identity(signed) == identity(data) == bytes.fromhex(read.identity)
    assert identity(encode(package(manifest=replace(MANIFEST, counter=4)))) != identity(data)
    with pytest.raises(PackageError, match="63"):
        with_signature(data, b"k" * 32, b"s" * 63)


def test_an_empty_package(tmp_path):
    write(tmp_path / "e.kdb", KernelPackage(MANIFEST, ()))
    read = PackageFile(tmp_path / "e.kdb")
    read.verify()
    assert (len(read), read.find(Kind.PLAN, "p"), read.load().entries) == (0, None, ())


def test_what_breaks_a_rule_is_not_written():
    one = new_entry(Kind.PERF, "p\nt\ns", b"x")
    with pytest.raises(PackageError, match="two entries are perf"):
        encode(KernelPackage(MANIFEST, (one, one)))
    for name in ("", "ä", "a\0b", "n" * 8193):
        with pytest.raises(PackageError, match="printable"):
            new_entry(Kind.PLAN, name, b"x")
    for wrong in (
        {"name": "A b"},
        {"name": ""},
        {"target": "x" * 96},
        {"maker": "é"},
        {"counter": -1},
        {"date": 2**64},
    ):
        with pytest.raises(PackageError):
            replace(MANIFEST, **wrong)
    with pytest.raises(PackageError, match="rank"):
        new_entry(Kind.FIND, "p\nt", b"x", rank=1)
    with pytest.raises(PackageError, match="time"):
        new_entry(Kind.PLAN, "p\nt", b"x", time_us=float("nan"))
    with pytest.raises(PackageError, match="missing"):
        make_package(MANIFEST, [PackedPlan(plan("p", binary(1)))], {})
    with pytest.raises(PackageError, match="another"):
        make_package(MANIFEST, [PackedPlan(plan("p", binary(1)))], {digest(binary(1)): b"x"})


def test_many_threads_read_one_package(tmp_path):
    """All of them meet pages that none has checked yet."""
    made = package(300)
    write(tmp_path / "a.kdb", made)
    for _ in range(5):
        read, wrong = PackageFile(tmp_path / "a.kdb"), []

        def work(read, seed, wrong):
            order = random.Random(seed).sample(range(len(made.entries)), 200)
            wrong += [i for i in order if read.read(i) != made.entries[i].content()]

        threads = [threading.Thread(target=work, args=(read, seed, wrong)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_a_file_that_is_replaced_stays_open(tmp_path):
    path = tmp_path / "a.kdb"
    write(path, package(70))
    old = PackageFile(path)
    write(path, package(1, Manifest("other", TARGET, "m", "g")))
    assert old.load() == package(70)
    path.unlink()
    old.verify()
