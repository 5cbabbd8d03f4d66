"""Each page begins with a database and a cache of its own, one thread, and choices by prediction: fast."""

import os
import re
from pathlib import Path

import pytest

from tilesmith.dispatch.eager import forget

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith("TILESMITH_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "tilesmith.db"))
    monkeypatch.setenv("TILESMITH_FIND_MODE", "fast")
    monkeypatch.setenv("TILESMITH_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    forget()
    yield
    forget()


def section(page: Path, heading: str) -> str:
    """The text under ``## heading``, up to the next one."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page.read_text(), re.M | re.S)
    assert found, f"{page}: no section {heading!r}"
    return found[1]


def table(text: str, header: str) -> list[list[str]]:
    """The cells of the table whose first column is called ``header``, without their backticks in the first column."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith(f"| {header} |")]
    assert len(starts) == 1, f"{len(starts)} tables begin with {header!r}"
    rows = []
    for line in lines[starts[0] + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip().strip("|").split(" | ")])
    return rows


def names(cell: str) -> list[str]:
    """``a`` and ``b`` of a cell "`a`, `b`"."""
    return re.findall(r"`([^`]+)`", cell)
