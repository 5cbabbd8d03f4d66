"""The page of troubleshooting has every warning and every error class of the source, and no other."""

import logging
import re

from pages import DOCS, ROOT, names, section, table
from warnings_of_source import found

import tilesmith.errors
from tilesmith.cli.main import run

PAGE = DOCS / "guide" / "troubleshooting.md"
TEXT = PAGE.read_text()
WARNINGS = TEXT[TEXT.index("## Warnings") : TEXT.index("## Errors")]


def test_every_warning_has_a_row():
    rows = re.findall(r"^\| (`+) ?(.*?) ?\1 \| ([^|]+) \| ([^|]+) \|$", WARNINGS, re.M)
    documented = [text for _, text, meaning, advice in rows if meaning.strip() and advice.strip()]
    assert len(documented) == len(set(documented))
    missing = found() - set(documented)
    assert not missing, f"add a row to {PAGE.name} for each of {sorted(missing)}"
    assert set(documented) <= found(), "a row is of no warning"


def test_every_error_has_a_row():
    rows = table(section(PAGE, "Errors"), "error")
    assert [names(row[0])[0] for row in rows] == [
        name for name in vars(tilesmith.errors) if name.endswith("Error") and name != "TilesmithError"
    ]


def test_a_warning_that_a_user_meets_stands_there(tmp_path, monkeypatch, caplog, capsys):
    """Not only the source's text: what is logged for a database of another program, and a misspelt variable."""
    (tmp_path / "other.db").write_text("no database at all, but a text that somebody wrote\n" * 100)
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "other.db"))
    monkeypatch.setenv("TILESMITH_CASHE_DIR", "here")
    with caplog.at_level(logging.WARNING):
        assert run(["db", "stats"]) == 0
    met = [record.getMessage() for record in caplog.records] + capsys.readouterr().err.splitlines()
    assert len(met) >= 2
    patterns = [
        "".join(".*" if part == "..." else re.escape(part) for part in re.split(r"(\.\.\.)", t)) for t in found()
    ]
    for message in met:
        assert any(
            re.fullmatch(pattern, re.sub("^tilesmith: (WARNING: )?", "", message)) for pattern in patterns
        ), message


def test_commands_of_the_page_exist():
    """Each verb that the page tells to type, with its subcommand, has a help page."""
    typed = set(re.findall(r"`tilesmith ([a-z-]+(?: [a-z-]+)?)", TEXT))
    for words in typed:
        verb, _, more = words.partition(" ")
        sub = [more] if verb in ("cache", "db", "package") and more else []
        assert run([verb, *sub, "--help"]) == 0, words
    assert len(typed) >= 8
    assert "guide/troubleshooting.md" in (ROOT / "mkdocs.yml").read_text()
