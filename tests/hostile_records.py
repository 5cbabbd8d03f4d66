"""Sealed records that no Tilesmith writes: any field may hold what its type can, and more. Each may enter by every way.

The seal is no secret: whoever writes a program against the format of records can write these.
"""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st

from tilesmith.db import files
from tilesmith.db.opening import open_database
from tilesmith.db.schema import FIELDS
from tilesmith.db.seal import REAL_FIELDS, seal_of

NAMES = FIELDS["results"]
COUNTS = ("revision", "samples", "workspace")
TEXTS = tuple(name for name in NAMES if name not in COUNTS and name not in REAL_FIELDS)
WAYS = ("user", "team", "files", "import", "url")
KIND = {"results": "tilesmith result 1", "trials": "tilesmith trial 1"}

_integers = st.sampled_from((-1, 0, 1, 2, 3, 2**31, 2**53, 2**63 - 1, -(2**63), 2**64, 10**400, True)) | st.integers()
_reals = (
    st.sampled_from((None, 0.0, -0.0, -1.0, -1e-9, 5e-324, 1e-300, 1e300, 1.7e308, math.inf, -math.inf, math.nan, 1, 7))
    | st.floats()
    | st.floats(1e-3, 1e6)
)
_texts = (
    st.sampled_from((
        "", "\0", "é", "\ud800", "\n", "\x1b[2J", "x" * 100_000, "..", ".", "/", "a/b", "ok", "failed", "OK",
        "9999-12-31T23:59:59Z", "0000-01-01T00:00:00Z", "2026-13-45", "-1", "mr=1", "mr=99999", "mr=1=2", "=", "nan",
        "%s%n{0}", "2026-01-02",
    ))
    | st.text(max_size=40)
)  # fmt: skip
_anything = st.sampled_from((None, [], {}, 1.5, "1", -7, True, [["x"]]))


def values_like(good: dict[str, Any], solvers: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    """``good`` with one to five fields changed. Problem and target mostly stay: the record is to be met."""

    def field(name: str) -> st.SearchStrategy[Any]:
        if name in COUNTS:
            return _integers | _anything
        if name in REAL_FIELDS:
            return _reals | _anything
        return (st.sampled_from((*solvers, "torch_cudnn", "torch_cublas")) if name == "solver" else _texts) | _texts

    often = [name for name in NAMES if name not in ("problem", "target")]
    names = st.lists(st.sampled_from(often * 3 + ["problem", "target"]), min_size=1, max_size=5, unique=True)

    @st.composite
    def changed(draw: Any) -> dict[str, Any]:
        return good | {name: draw(field(name)) for name in draw(names)}

    return changed()


def sealed(values: dict[str, Any]) -> tuple[Any, ...] | None:
    """The row with its seal; None for values that have none."""
    row = tuple(values[name] for name in NAMES)
    try:
        return *row, seal_of(row)
    except (TypeError, ValueError, OverflowError):
        return None


def put(row: tuple[Any, ...], way: str, home: Path, table: str = "results") -> tuple[list[str], Path | None]:
    """Write a sealed row where a call will meet it: the layers of that call, and a file to be imported first."""
    user, team = home / "user.db", home / "team.db"
    if way == "import":
        file = home / "records.jsonl"
        with file.open("a") as lines:
            lines.write(line_of(row, table) + "\n")
        return [str(user)], file
    if way == "files":
        folder = Path(f"{user}.records")
        place = files._place(table, SimpleNamespace(**dict(zip(NAMES, map(_text, row), strict=False))))
        for other in ("results", "trials", "searches"):
            (folder / other).mkdir(parents=True, exist_ok=True)
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(line_of(row, table) + "\n")
        return [str(user)], None
    if way == "url":  # what was fetched is kept for a day
        team = home / f"team{_turn}.db"
    path = user if way == "user" else team
    _insert(path, row, table)
    return [str(user)] if way == "user" else [f"file://{path}" if way == "url" else str(path), str(user)], None


def line_of(row: tuple[Any, ...], table: str = "results") -> str:
    return json.dumps({"format": KIND[table], **dict(zip((*NAMES, "seal"), row, strict=True))})


def can_be_put(row: tuple[Any, ...], way: str) -> bool:
    """SQLite's integers have 64 bits, and its text is UTF-8; nothing may be null where the schema says so."""
    if way == "import":
        return True
    if way == "files":
        return all(isinstance(value, str) for value in row[:4]) and len(row[1]) < 60 and "/" not in row[1]
    try:
        connection = sqlite3.connect(":memory:")
        connection.execute(f"CREATE TABLE t ({', '.join(f'c{i}' for i in range(len(row)))})")
        connection.execute(f"INSERT INTO t VALUES ({', '.join('?' * len(row))})", row)
    except (sqlite3.Error, OverflowError, UnicodeEncodeError):
        return False
    return all(value is not None for name, value in zip(NAMES, row, strict=False) if name not in REAL_FIELDS)


_turn = 0


def clear(home: Path) -> None:
    """Forget all that was put."""
    global _turn
    _turn += 1
    for path in home.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _insert(path: Path, row: tuple[Any, ...], table: str) -> None:
    if not path.exists():
        open_database(path).close()
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("PRAGMA synchronous = OFF")
    raw.execute(
        f"INSERT OR REPLACE INTO {table} ({', '.join((*NAMES, 'seal'))}) VALUES ({', '.join('?' * len(row))})", row
    )
    raw.close()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)
