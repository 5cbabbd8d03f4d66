"""What fuzzing has found is replayed: without the fuzzers, which `make fuzz` installs."""

from __future__ import annotations

import subprocess

import pytest
from readers import readers, refusal_of, seeds_of

from fuzz import CORPUS, HERE, IN_C, fuzz, missing_for


@pytest.mark.parametrize("reader", readers(), ids=lambda reader: reader.name)
def test_a_reader_refuses_in_its_own_words(reader, tmp_path):
    for number, data in enumerate(seeds_of(reader, CORPUS)):
        (tmp_path / str(number)).mkdir()
        assert not refusal_of(reader, data, tmp_path / str(number))


def test_seeds_are_read(tmp_path):
    """A seed that is refused would leave most of a reader untouched."""
    for reader in readers():
        reader.read(reader.seeds[0], tmp_path)


def test_the_targets_in_c_with_sanitizers(tmp_path):
    subprocess.run([HERE / "build.sh", tmp_path], check=True, capture_output=True)
    for name in IN_C:
        own = name.removeprefix("c-")
        done = subprocess.run([tmp_path / own, CORPUS / own], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) == len(list((CORPUS / own).iterdir()))


@pytest.mark.parametrize("target", [*IN_C, "target"])
def test_the_fuzzers_where_they_are_installed(target, tmp_path):
    if missing_for([target]):
        return  # `make fuzz` is where they are needed, and says what is missing
    told = fuzz(target, 2, 1, tmp_path)
    assert told.findings == ()
    assert told.runs > 0
    assert told.coverage > 0
