"""Several databases seen as one: system < team < user, the last that has an answer wins."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from tilesmith.db.records import Record
from tilesmith.db.remote import cached_copy, is_url
from tilesmith.db.state import state_of
from tilesmith.db.store import Database
from tilesmith.targets.names import nearest_first
from tilesmith.targets.target import Target

SYSTEM, TEAM, USER = "system", "team", "user"


@dataclass(frozen=True)
class Answer:
    """A record and the layer that it comes from: the name of its database, and its role."""

    record: Record
    layer: str
    role: str = ""


@dataclass(frozen=True)
class Layers:
    """Databases from the lowest to the highest, the first ``system`` of them installed; only the last is written."""

    databases: tuple[Database, ...]
    system: int = 0
    # By place: the file's state when it held no answer; None once it held one.
    _empty: dict[int, list[int | str] | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def writable(self) -> Database:
        """The highest, to be written from now on."""
        last = self.databases[-1].for_writing()
        if last is not self.databases[-1]:
            object.__setattr__(self, "databases", (*self.databases[:-1], last))
        return last

    def role(self, place: int) -> str:
        """The role of the database at ``place``: ``system``, ``team`` or ``user``."""
        if place == len(self.databases) - 1:
            return USER
        return SYSTEM if place < self.system else TEAM

    def answers(self, problem: str, target: str) -> tuple[Answer, ...]:
        """Every layer's records for a problem and target, the highest layer first, the fastest first in each."""
        return tuple(
            Answer(record, self.databases[place].name, self.role(place))
            for place in reversed(self._asked())
            for record in self.databases[place].ranking(problem, target)
        )

    def measured(self, problem: str, target: str) -> tuple[Answer, ...]:
        """Every config that was measured: trials and results of all layers, of each config the highest layer's."""
        found: dict[tuple[str, str], Answer] = {}
        for place in reversed(self._asked()):
            database = self.databases[place]
            for record in (*database.ranking(problem, target), *database.trials(problem, target)):
                if record.ok:
                    found.setdefault((record.solver, record.config), Answer(record, database.name, self.role(place)))
        return tuple(found.values())

    def near(self, problem: str, target: Target) -> tuple[tuple[Answer, ...], ...]:
        """The answers for other targets of the same family: one group a target, the nearest target first."""
        held = {name for place in self._asked() for name in self.databases[place].targets_of(problem)}
        return tuple(self.answers(problem, name) for name in nearest_first(target, held)) if held else ()

    def neighbours(self, problem: str, target: str) -> tuple[str, ...]:
        """The problems with answers that differ from ``problem`` in batch or image size by up to a factor of 2.

        The nearest first, a tie in the order of keys.
        """
        from tilesmith.problems.outline import outline_of  # a hit has an answer, and asks for no neighbours

        asked = self._asked()
        mine = outline_of(problem) if asked else None
        if mine is None:
            return ()
        found: dict[str, float] = {}
        for key in {key for place in asked for key in self.databases[place].neighbours(problem, target)}:
            other = outline_of(key)
            distance = None if other is None else mine.distance(other)
            if distance is not None:
                found[key] = distance
        return tuple(sorted(found, key=lambda key: (found[key], key)))

    def _asked(self) -> list[int]:
        """The places of the databases to ask, from the lowest to the highest: those that may hold an answer."""
        return [place for place, database in enumerate(self.databases) if not self._is_empty(place, database)]

    def _is_empty(self, place: int, database: Database) -> bool:
        """Whether the file holds no answer of any problem; it is not read again until it changes."""
        if database.path is None or not (database.persistent or database.readonly):  # memory, which has no state
            return False
        known = self._empty.get(place, [])
        if known is None:
            return False
        state = state_of(os.fspath(database.path))
        if not state:  # there is no file, or it is being written
            return False
        if known != state:
            if database.may_hold_answers():
                self._empty[place] = None
                return False
            self._empty[place] = state
        return True

    def close(self) -> None:
        for database in self.databases:
            database.close()


def open_layers(paths: Sequence[str | os.PathLike[str]], readonly: bool = False, system: int = 0) -> Layers:
    """Open layers from the lowest to the highest; all but the last are read only. No path: one layer in memory.

    A path may be a URL: a copy of what lies there is kept in the cache folder, and read. A URL at the end is followed
    by a layer in memory. ``readonly`` opens the last so, too: nothing is made, written or fetched then. ``system`` says
    how many of the first are installed ones.
    """
    from tilesmith.db.opening import open_database  # loads sqlite3, which a hit does without

    last = len(paths) - 1
    databases = [_at(os.fspath(path), readonly or place < last, fetch=not readonly) for place, path in enumerate(paths)]
    if not paths or is_url(os.fspath(paths[-1])) or last < system:
        databases.append(open_database(None))
    return Layers(tuple(databases), system)


def reopened(layers: Layers, paths: Sequence[str | os.PathLike[str]]) -> Layers:
    """Layers for writing that were opened at ``paths``: a layer whose file was replaced is opened again.

    The others stay, with what this process keeps in memory of those that cannot be written.
    """
    databases = list(layers.databases)
    for place, path in enumerate(paths):
        if not databases[place].is_current():
            databases[place] = _at(os.fspath(path), place < len(paths) - 1, fetch=True)
    return Layers(tuple(databases), layers.system)


def _at(name: str, readonly: bool, *, fetch: bool) -> Database:
    from tilesmith.db.opening import open_database

    if not is_url(name):
        return open_database(name, readonly=readonly, tried=False)
    database = open_database(cached_copy(name, fetch=fetch), readonly=True)
    database.source = name
    return database
