"""What fuzzing has found is replayed, and each target is fuzzed for a moment."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from readers import readers, refusal_of, seeds_of

from fuzz import CORPUS, HERE, fuzz_reader


@pytest.mark.parametrize("reader", readers(), ids=lambda reader: reader.name)
def test_a_reader_refuses_in_its_own_words(reader, tmp_path):
    for number, data in enumerate(seeds_of(reader, CORPUS)):
        (tmp_path / str(number)).mkdir()
        assert not refusal_of(reader, data, tmp_path / str(number))
    found = fuzz_reader(reader, 0.2, 3, tmp_path / "findings", grow=False)
    assert found["findings"] == []


def test_seeds_are_read(tmp_path):
    """A seed that is refused would leave most of a reader untouched."""
    for reader in readers():
        reader.read(reader.seeds[0], tmp_path)


def test_the_c_decoder_with_sanitizers(tmp_path):
    subprocess.run([HERE / "build.sh", tmp_path], check=True, capture_output=True)
    command = [tmp_path / "decoder", "1", "0", str(CORPUS / "plan")]
    if shutil.which("clang"):
        command = [tmp_path / "decoder", "-runs=20000", str(shutil.copytree(CORPUS / "plan", tmp_path / "corpus"))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
