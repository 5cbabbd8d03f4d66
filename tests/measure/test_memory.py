"""A problem that does not fit into memory is refused with both numbers, before anything is allocated."""

import pytest

from tilesmith.cli.main import run
from tilesmith.errors import LaunchError
from tilesmith.measure import memory
from tilesmith.problems.conv import ConvSignature

HUGE = "conv -n 2147483647 -c 1 -H 8 -W 8 -k 1 -y 1 -x 1 -F 1"


def test_estimates_grow_with_the_problem():
    small, large = ConvSignature((1, 4, 8, 8), (4, 4, 3, 3)), ConvSignature((2, 4, 8, 8), (4, 4, 3, 3))
    for estimate in (memory.oracle_bytes, memory.check_bytes, memory.tensor_bytes):
        assert 0 < estimate(small) < estimate(large)
    assert memory.tensor_bytes(small) == 4 * (4 * 64 + 4 * 36 + 4 * 36)


def test_what_is_there_can_be_had():
    assert 0 < memory.available_bytes() < 2**60
    memory.require_memory(1.0, "nothing")
    with pytest.raises(LaunchError, match=r"this takes about 1000000.0 GB of memory, \d+\.\d GB are free"):
        memory.require_memory(1e15, "this")


def test_a_group_limit_counts(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    monkeypatch.setattr(memory, "_GROUP", tmp_path)
    assert memory.available_bytes() == 2e6
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_bytes() > 2e6


@pytest.mark.parametrize(
    "words", [[*HUGE.split()], ["verify", HUGE], ["bench", HUGE], ["tune", HUGE]], ids=lambda w: w[0]
)
def test_commands_refuse_what_does_not_fit(words, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "x.db"))
    monkeypatch.setenv("TILESMITH_FIND_MODE", "hybrid")
    assert run(words) == 1
    err = capsys.readouterr().err
    assert "GB of memory" in err
    assert "Traceback" not in err
