"""The artifact cache: a damaged, foreign or stale entry is a miss, whatever byte of it is wrong."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tilesmith.errors import CompileError
from tilesmith.plan.records import Source
from tilesmith.targets.detect import host_target
from tilesmith.toolchain import build as build_module
from tilesmith.toolchain.cache import ArtifactCache, artifact_key
from tilesmith.toolchain.compilers import find_compiler

TARGET = host_target()


def answer(value: int) -> Source:
    return Source("c", f"ts_a{value}", "", f"int ts_a{value}(void) {{ return {value}; }}")


@pytest.fixture
def cache(tmp_path):
    return ArtifactCache(tmp_path / "cache")


@pytest.fixture
def builds(monkeypatch):
    """The sources that were compiled."""
    seen = []
    real = build_module.build_unit

    def build(sources, *rest):
        seen.extend(sources)
        return real(sources, *rest)

    monkeypatch.setattr(build_module, "build_unit", build)
    return seen


def key_file(cache, source):
    return cache.directory / "keys" / f"{artifact_key(source, TARGET, find_compiler())}.json"


def test_a_hit_compiles_nothing(cache, builds):
    first = cache.get_or_build(answer(1), TARGET)
    assert hashlib.sha256(first.path.read_bytes()).hexdigest() == first.digest
    assert ArtifactCache(cache.directory).get_or_build(answer(1), TARGET) == first
    assert cache.find(first.digest) == first
    assert builds == [answer(1)]


def test_everything_that_makes_the_binary_is_in_the_key():
    compiler = find_compiler()
    source = answer(1)
    variants = [
        (source, TARGET, compiler),
        (dataclasses.replace(source, text=source.text + " "), TARGET, compiler),
        (dataclasses.replace(source, prelude="typedef int t;"), TARGET, compiler),
        (source, dataclasses.replace(TARGET, flags=(*TARGET.flags, "-O1")), compiler),
        (source, dataclasses.replace(TARGET, arch="other"), compiler),
        (source, TARGET, dataclasses.replace(compiler, version="0")),
        (source, TARGET, dataclasses.replace(compiler, kind="another")),
    ]
    assert len({artifact_key(*variant) for variant in variants}) == len(variants)
    assert artifact_key(source, dataclasses.replace(TARGET, cores=77), compiler) == artifact_key(*variants[0])


def test_any_wrong_byte_of_the_metadata_is_a_miss(cache, caplog):
    artifact = cache.get_or_build(answer(1), TARGET)
    path = key_file(cache, answer(1))
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
        caplog.clear()
        assert cache.lookup(answer(1), TARGET) is None, at
        assert "damaged" in caplog.text
        path.write_bytes(whole[:at])
        assert cache.lookup(answer(1), TARGET) is None, at
    path.write_bytes(whole + b"\n")
    assert cache.lookup(answer(1), TARGET) is None
    path.write_bytes(whole)
    assert cache.lookup(answer(1), TARGET) == artifact


def test_any_wrong_byte_of_the_binary_is_a_miss(cache, caplog):
    artifact = cache.get_or_build(answer(1), TARGET)
    whole = artifact.path.read_bytes()
    for at in [*range(0, len(whole), 97), len(whole) - 1]:
        artifact.path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        caplog.clear()
        assert cache.find(artifact.digest) is None
        assert cache.lookup(answer(1), TARGET) is None
        assert "damaged" in caplog.text
    for size in (0, 1, len(whole) // 2, len(whole) - 1):
        artifact.path.write_bytes(whole[:size])
        assert cache.lookup(answer(1), TARGET) is None


def test_damage_is_repaired_and_reported(cache, builds, caplog):
    artifact = cache.get_or_build(answer(1), TARGET)
    whole = artifact.path.read_bytes()
    artifact.path.write_bytes(b"\x7fELF")
    with caplog.at_level(logging.WARNING):
        assert cache.get_or_build(answer(1), TARGET) == artifact
    assert artifact.path.read_bytes() == whole
    assert str(artifact.path) in caplog.text
    artifact.path.unlink()
    assert cache.get_or_build(answer(1), TARGET) == artifact
    assert len(builds) == 3


def test_another_entrys_files_are_a_miss(cache):
    one, two = cache.get_or_build(answer(1), TARGET), cache.get_or_build(answer(2), TARGET)
    shutil.copy(two.path, one.path)
    assert cache.lookup(answer(1), TARGET) is None
    assert cache.find(one.digest) is None
    one = cache.get_or_build(answer(1), TARGET)
    shutil.copy(key_file(cache, answer(2)), key_file(cache, answer(1)))
    assert cache.lookup(answer(1), TARGET) is None
    assert cache.get_or_build(answer(1), TARGET) == one


def test_find_takes_digests_alone(cache):
    cache.get_or_build(answer(1), TARGET)
    for name in ("", "x" * 64, "../" * 21 + "a", "0" * 64):
        assert cache.find(name) is None


def test_many_at_once(cache, builds):
    bad = Source("c", "ts_bad", "", "int ts_bad(void) { return missing; }")
    sources = [answer(1), bad, answer(2), answer(1)]
    one, refused, two, again = cache.get_or_build_many(sources, TARGET)
    assert isinstance(refused, CompileError)
    assert one == again != two
    assert sorted(s.symbol for s in builds) == ["ts_a1", "ts_a2", "ts_bad"]
    assert cache.get_or_build_many([answer(1), answer(2)], TARGET) == (one, two)
    assert len(builds) == 3


def test_racing_writers_agree(cache):
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: ArtifactCache(cache.directory).get_or_build(answer(3), TARGET), range(8)))
    assert len(set(results)) == 1
    assert not [p for p in cache.directory.rglob(".*") if p.is_file()]


def test_directory_that_cannot_be_written(tmp_path, caplog, builds):
    # A file in the way fails for root as well, unlike permissions.
    (tmp_path / "file").write_text("")
    cache = ArtifactCache(tmp_path / "file" / "cache")
    with caplog.at_level(logging.WARNING):
        one, two = cache.get_or_build(answer(1), TARGET), cache.get_or_build(answer(2), TARGET)
        assert cache.get_or_build(answer(1), TARGET) == one
    assert caplog.text.count("cannot be used") == 1
    assert one.path.is_file()
    assert cache.find(two.digest) == two
    assert len(builds) == 2


def test_a_second_process_compiles_nothing(cache):
    artifact = cache.get_or_build(answer(1), TARGET)
    script = (
        "import tilesmith.toolchain.cache as c, sys\n"
        "from tests_source import SOURCE, TARGET\n"
        "c.build_unit = None\n"
        "print(c.ArtifactCache(sys.argv[1]).get_or_build(SOURCE, TARGET).digest)\n"
    )
    module = cache.directory.parent / "tests_source.py"
    module.write_text(
        "from tilesmith.plan.records import Source\nfrom tilesmith.targets.detect import host_target\n"
        f"SOURCE = {answer(1)!r}\nTARGET = host_target()\n"
    )
    path = os.pathsep.join([str(module.parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", script, str(cache.directory)],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == artifact.digest, done.stderr
