"""What fuzzing has found is replayed: without the fuzzers, which `make fuzz` installs."""

from __future__ import annotations

import os
import random
import subprocess

import pytest
from readers import readers, refusal_of, seeds_of

from fuzz import CORPUS, HERE, IN_C, fuzz, missing_for
from package_samples import package
from tilesmith.package.form import encode


@pytest.fixture(scope="session")
def native(tmp_path_factory):
    """The folder of the targets in C, built with sanitizers."""
    folder = tmp_path_factory.mktemp("native")
    # A second of compiling less than with -O1, and the inputs take no longer.
    environment = os.environ | {"FUZZ_OPTIMISE": "g"}
    subprocess.run([HERE / "build.sh", folder], check=True, capture_output=True, env=environment)
    return folder


def test_this_folder_runs_in_one_worker(request):
    """``native`` is built once: pytest and pytest-xdist have to agree on what a group is."""
    if hasattr(request.config, "workerinput") and request.config.option.loadgroup:
        assert request.node.nodeid.endswith("@fuzz")


@pytest.mark.parametrize("reader", readers(), ids=lambda reader: reader.name)
def test_a_reader_refuses_in_its_own_words(reader, tmp_path):
    for number, data in enumerate(seeds_of(reader, CORPUS)):
        (tmp_path / str(number)).mkdir()
        assert not refusal_of(reader, data, tmp_path / str(number))


def test_seeds_are_read(tmp_path):
    """A seed that is refused would leave most of a reader untouched."""
    for reader in readers():
        reader.read(reader.seeds[0], tmp_path)


@pytest.mark.parametrize("name", [name.removeprefix("c-") for name in IN_C])
def test_the_targets_in_c_with_sanitizers(name, native, tmp_path):
    done = subprocess.run([native / name, CORPUS / name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(list((CORPUS / name).iterdir())) > 0


def test_damaged_packages_with_sanitizers(native, tmp_path):
    """Every third byte of a small package flipped, which is in each field, and lengths and random bytes of an index."""
    least, draw = encode(package(1, binaries=1, size=40)), random.Random(11)
    for at in range(0, len(least), 3):
        (tmp_path / f"flip{at}").write_bytes(least[:at] + bytes([least[at] ^ 1 << at % 8]) + least[at + 1 :])
    for size in range(0, len(least), 9):
        (tmp_path / f"length{size}").write_bytes(least[:size])
    data = encode(package(2, binaries=1, size=40))
    for number in range(200):
        changed = bytearray(data)
        for _ in range(draw.choice((1, 2, 4))):
            changed[draw.randrange(16, 1400)] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        (tmp_path / f"noise{number}").write_bytes(changed)
    done = subprocess.run([native / "package", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) == len(list(tmp_path.iterdir()))


@pytest.mark.parametrize("target", [*IN_C, "target"])
def test_the_fuzzers_where_they_are_installed(target, tmp_path, monkeypatch):
    if missing_for([target]):
        return  # `make fuzz` is where they are needed, and says what is missing
    monkeypatch.setenv("FUZZ_OPTIMISE", "0")  # building them takes longer than the seconds that they run
    told = fuzz(target, 1, 1, tmp_path)
    assert told.findings == ()
    assert told.runs > 0
    assert told.coverage > 0
