"""The documents against the code: tables are compared, examples run."""

import re
from pathlib import Path

from tilesmith import env
from tilesmith.cli.main import VERBS

DOCS = Path(__file__).parents[2] / "docs"


def rows(path, columns):
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in path.read_text().splitlines()
             if line.startswith("| `")]  # fmt: skip
    return [row for row in cells if len(row) == columns]


def test_the_table_of_variables_is_the_code():
    table = {
        row[0].strip("`"): row[1:] for row in rows(DOCS / "reference" / "environment.md", 4) if "TILESMITH" in row[0]
    }
    assert table == {v.name: [v.default_text, v.rule, v.meaning] for v in env.VARIABLES}


def test_every_mode_is_documented():
    text = (DOCS / "reference" / "environment.md").read_text()
    assert [m for m in re.findall(r"^\| `(\w+)` \|", text, re.M) if m in env.FIND_MODES] == list(env.FIND_MODES)


def test_the_table_of_verbs_is_the_code():
    table = {row[0].strip("`"): row[1] for row in rows(DOCS / "guide" / "command-line.md", 2)}
    assert table == VERBS


def test_examples_run(tmp_path, monkeypatch):
    """The blocks of the page, one after the other: later ones use the names of earlier ones."""
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in re.findall(r"```python\n(.*?)```", (DOCS / "guide" / "python.md").read_text(), re.S):
        exec(compile(block, "python.md", "exec"), names)
