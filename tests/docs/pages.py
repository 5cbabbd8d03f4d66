"""Reading the pages: sections, tables, names."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def page_of_verb(verb: str) -> Path:
    """The page of the command line that has the verb's section."""
    (page,) = (page for page in DOCS.glob("guide/command-line*.md") if f"\n## {verb}\n" in page.read_text())
    return page


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
