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
    text = "".join(path.read_text() for path in sorted(DOCS.rglob("*.md")))
    assert [mode for mode in env.FIND_MODES if f"| `{mode}` |" not in text] == []


def test_the_table_of_verbs_is_the_code():
    """The page's first table, and what the verbs' own options are called."""
    page = (DOCS / "guide" / "command-line.md").read_text()
    first = re.search(r"^\| verb \|.*?\n\n", page, re.M | re.S)[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", first, re.M)) == VERBS


def test_options_named_in_the_page_exist():
    from importlib import import_module

    known = {"--help", "--version", "--json"}
    for verb in VERBS:
        known |= {option for p in import_module(f"tilesmith.cli.verbs.{verb}").command.params for option in p.opts}
    page = (DOCS / "guide" / "command-line.md").read_text()
    assert set(re.findall(r"^\| `(--[a-z-]+)`", page, re.M)) <= known


def test_examples_run(tmp_path, monkeypatch):
    """The blocks of the page, one after the other: later ones use the names of earlier ones."""
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in re.findall(r"```python\n(.*?)```", (DOCS / "guide" / "python.md").read_text(), re.S):
        exec(compile(block, "python.md", "exec"), names)
