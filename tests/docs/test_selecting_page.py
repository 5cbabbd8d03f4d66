"""The commands of the page on selections run, and find as many problems, kernels and plans as it says."""

from __future__ import annotations

import re
import shlex
import tomllib

import pytest
from pages import DOCS, names, table

from tilesmith.cli.main import run
from tilesmith.package.selection.ranges import expand_command
from tilesmith.package.selection.reading import KEYS, read_selection
from tilesmith.package.selection.terms import MODES

PAGE = DOCS / "guide" / "selecting-kernels.md"
TEXT = PAGE.read_text()


@pytest.mark.needs_nvrtc
def test_its_commands(tmp_path, capsys, monkeypatch):
    """Sizes depend on compilers; counts do not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "own.db"))
    for name, content in re.findall(r'^```(?:toml|text) title="([^"]+)"\n(.*?)^```', TEXT, re.M | re.S):
        (tmp_path / name).write_text(content)
    commands = re.findall(r"^\$ (.*)\n((?:packages/|sm_).*\n)?", TEXT, re.M)
    assert len(commands) == 5
    for command, expected in commands:
        assert run(shlex.split(command)[1:]) == 0, command
        printed = capsys.readouterr().out
        assert "plain_us" in printed or "--explain" not in command
        if expected:
            assert printed.rpartition(",")[0] == expected.rpartition(",")[0]


def test_every_key_has_a_row_and_every_block_is_read(tmp_path):
    assert [names(row[0])[0] for row in table(TEXT, "key")] == list(KEYS)
    assert sorted(names(row[0])[0] for row in table(TEXT, "mode")) == sorted(MODES)
    blocks = re.findall(r"^```toml[^\n]*\n(.*?)^```", TEXT, re.M | re.S)
    used = {key for block in blocks for key in tomllib.loads(block)}
    assert used == set(KEYS) - {"reference"}
    (tmp_path / "layers.txt").write_text("")
    for block in blocks:
        (tmp_path / "one.toml").write_text(block)
        read_selection(tmp_path / "one.toml")


def test_its_ranges():
    counts = [len(expand_command(f"conv {names(row[0])[0]}")) for row in table(TEXT, "text")]
    assert counts == [3, 64, 32, 7, 7, 218]
