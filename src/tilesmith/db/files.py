"""One file for each record, for folders without reliable locks, such as many network file systems.

Beside the path ``NAME.db`` lies the folder ``NAME.db.records``. Each record is one sealed line of JSON (``db.lines``)
in a file of its own that is staged, synced and renamed: no locks are needed, and readers see whole files alone.

    results/PROBLEM/TARGET/SOLVER.json      PROBLEM, SOLVER and CONFIG are digests of the text
    trials/PROBLEM/TARGET/SOLVER-CONFIG.json
    searches/PROBLEM/TARGET/search.json

Once the folder is there every process uses it. What the file ``NAME.db`` held before is taken over. Records of versions
whose targets named no card lie under such a target, and count for the card that their host names (``db.cards``); one
under the card's own name counts before them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from tilesmith.db import trial
from tilesmith.db.cards import named, without_card
from tilesmith.db.connect import LOG
from tilesmith.db.lines import line_of, read_line
from tilesmith.db.records import Record, Search
from tilesmith.db.state import RECORDS
from tilesmith.db.store import Database, Table, in_order
from tilesmith.errors import FileFormatError
from tilesmith.toolchain.files import publish, read, remove_abandoned

_BYTES = 1 << 20  # of a record
_TABLES = ("results", "trials", "searches")


def records_folder(path: Path) -> Path:
    """The folder of records that replaces the file ``path``."""
    return Path(f"{path}{RECORDS}")


def must_be_files(path: Path) -> bool:
    """Try the folder of a database that is about to be written; told once, when the folder of records begins."""
    try:
        exists = os.path.exists(path)
        if not exists:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        reason = trial.why_not(path.parent, thorough=not exists)
        if reason is None:
            return False
        folder = records_folder(path)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return False  # nothing can be written here at all: opening the file says so
    LOG.warning(
        "the file system of %s cannot hold a database of several writers (%s): %s takes one file a record",
        path.parent, reason, folder,
    )  # fmt: skip
    return True


class FileDatabase(Database):
    """A find-db and perf-db in a folder of small files; ``old`` opens the SQLite file whose records it takes over."""

    def __init__(self, path: Path, readonly: bool, old: Callable[[], Database]) -> None:
        self.path = path
        self.folder = records_folder(path)
        self.readonly = readonly
        self.persistent = not readonly
        self._cleaned = False
        self._held: dict[str, Record | Search] = {}  # what could not be written, by its place
        if not readonly and not os.path.exists(self.folder / _TABLES[-1]):
            self._begin(old)

    @property
    def kind(self) -> str:
        return "one file a record"

    def is_current(self) -> bool:
        return os.path.isdir(self.folder)

    def close(self) -> None:
        """Nothing is open."""

    def record_trials(self, records: Iterable[Record]) -> None:
        for record in records:
            self._put(_place("trials", record), record)

    def trials(self, problem: str, target: str, solver: str | None = None) -> tuple[Record, ...]:
        found = self._under("trials", problem, target)
        return in_order(record for record in found if solver is None or record.solver == solver)

    def put_results(self, records: Iterable[Record]) -> None:
        for record in records:
            self._put(_place("results", record), record)

    def ranking(self, problem: str, target: str) -> tuple[Record, ...]:
        return in_order(self._under("results", problem, target))

    def targets_of(self, problem: str) -> tuple[str, ...]:
        return tuple(sorted({r.target for r in self._named("results", self._all(f"results/{_digest(problem)}"))}))

    def problems(self, target: str | None = None) -> tuple[tuple[str, str], ...]:
        found = {(record.problem, record.target) for record in self.records("results")}
        return tuple(sorted(pair for pair in found if target in (None, pair[1])))

    def put_search(self, search: Search) -> None:
        self._put(_place("searches", search), search)

    def search(self, problem: str, target: str) -> Search | None:
        place = f"searches/{_digest(problem)}/{_folder(target)}/search.json"
        found = self._read(place)
        return found if isinstance(found, Search) else None

    def records(self, table: Table) -> Iterator[Record]:
        yield from sorted(self._named(table, self._all(table)), key=lambda r: (r.problem, r.target, r.solver, r.config))

    def remove(self, table: Table, records: Sequence[Record]) -> int:
        return sum(max(map(self._remove, _places_of(table, record))) for record in records)

    def check(self) -> tuple[str, ...]:
        return tuple(f"{self.folder / place}: {reason}" for place, reason in self._damaged())

    def repair(self) -> int:
        remove_abandoned(self.folder)
        return sum(self._remove(place) for place, _ in self._damaged())

    # --- files ----------------------------------------------------------------------------------------------------

    def _begin(self, open_old: Callable[[], Database]) -> None:
        """Make the folder, with all that an SQLite file at the same path holds."""
        assert self.path is not None
        before: list[tuple[str, Record | Search]] = []
        if os.path.exists(self.path):
            old = open_old()
            before += [(_place("results", record), record) for record in old.records("results")]
            before += [(_place("trials", record), record) for record in old.records("trials")]
            old.close()
        for place, record in before:
            self._put(place, record)
        try:
            for table in _TABLES:  # the last one says that all has been taken over
                (self.folder / table).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            if self.persistent:
                LOG.warning("database %s failed (%s); what follows is kept in memory", self.name, error)
            self.persistent = False

    def _put(self, place: str, record: Record | Search) -> None:
        if self.persistent:
            if not self._cleaned:  # what killed writers have left
                self._cleaned = True
                remove_abandoned(self.folder)
            try:
                publish(self.folder, self.folder / place, f"{line_of(place.partition('/')[0], record)}\n".encode())
            except OSError as error:
                LOG.warning("database %s failed (%s); what follows is kept in memory", self.name, error)
                self.persistent = False
            else:
                self._held.pop(place, None)
                return
        self._held[place] = record

    def _under(self, table: str, problem: str, target: str) -> list[Record]:
        folders = dict.fromkeys((target, without_card(target)))
        found = [r for name in folders for r in self._all(f"{table}/{_digest(problem)}/{_folder(name)}")]
        return [r for r in self._named(table, found) if (r.problem, r.target) == (problem, target)]

    def _named(self, table: str, found: Iterable[Record | Search]) -> list[Record]:
        """The records with cards in their targets; of two for the same place, the one that had its card before."""
        records: dict[str, Record] = {}
        for record in found:
            if isinstance(record, Record):
                lifted = named(record)
                place = _place(table, lifted)
                if lifted is record or place not in records:
                    records[place] = lifted
        return list(records.values())

    def _all(self, under: str) -> list[Record | Search]:
        paths = dict.fromkeys((*self._places(under), *(place for place in self._held if place.startswith(f"{under}/"))))
        return [record for place in paths if (record := self._read(place)) is not None]

    def _places(self, under: str) -> list[str]:
        found = []
        for folder, folders, names in os.walk(self.folder / under):
            folders.sort()
            base = Path(folder).relative_to(self.folder).as_posix()
            found += [f"{base}/{name}" for name in sorted(names) if name.endswith(".json")]
        return found

    def _read(self, place: str) -> Record | Search | None:
        if place in self._held:
            return self._held[place]
        record, reason = self._look(place)
        if record is None and reason:
            LOG.warning("%s: %s; it is not used, see `tilesmith db check`", self.folder / place, reason)
        return record

    def _look(self, place: str) -> tuple[Record | Search | None, str]:
        """The record at a place, or why there is none (nothing, when it is not there or comes from a newer version)."""
        try:
            found = read_line(read(str(self.folder / place), _BYTES, own=True).decode("utf-8", "replace"))
        except FileNotFoundError:
            return None, ""
        except (OSError, FileFormatError) as error:
            return None, f"cannot be read: {getattr(error, 'strerror', None) or error}"
        if found is None:
            return None, ""
        table, record = found
        return (record, "") if place == _place(table, record) else (None, "holds another record than its name says")

    def _damaged(self) -> list[tuple[str, str]]:
        looked = [(place, self._look(place)[1]) for table in _TABLES for place in self._places(table)]
        return [(place, reason) for place, reason in looked if reason]

    def _remove(self, place: str) -> int:
        there = self._held.pop(place, None) is not None
        if not self.readonly:
            with contextlib.suppress(OSError):
                (self.folder / place).unlink()
                there = True
        return int(there)


def _place(table: str, record: Record | Search) -> str:
    base = f"{table}/{_digest(record.problem)}/{_folder(record.target)}"
    if isinstance(record, Search):
        return f"{base}/search.json" if table == "searches" else ""
    if table == "results":
        return f"{base}/{_digest(record.solver)}.json"
    return f"{base}/{_digest(record.solver)}-{_digest(record.config)}.json"


def _places_of(table: str, record: Record) -> tuple[str, ...]:
    """Where a record lies, and where it would if its target named no card and its host said that it is this one."""
    plain = replace(record, target=without_card(record.target))
    if plain.target == record.target or named(plain).target != record.target:
        return (_place(table, record),)
    return _place(table, record), _place(table, plain)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:24]


def _folder(target: str) -> str:
    """A target's name as the name of a folder."""
    name = quote(target, safe="")
    return name.replace(".", "%2E") if not name.strip(".") else name  # "." and ".." are other folders
