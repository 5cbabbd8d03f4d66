"""Several databases seen as one: system < team < user, the last that has an answer wins."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilesmith.db.records import Record
from tilesmith.db.store import Database


@dataclass(frozen=True)
class Found:
    """An answer and the name of the layer that gave it."""

    record: Record
    layer: str


@dataclass(frozen=True)
class Layers:
    """Databases from the lowest to the highest; only the last one is written."""

    databases: tuple[Database, ...]

    @property
    def writable(self) -> Database:
        return self.databases[-1]

    def best(self, problem: str, target: str, usable: Callable[[Record], bool] = lambda record: True) -> Found | None:
        """The fastest usable answer of the highest layer that has one."""
        for database in reversed(self.databases):
            record = database.best(problem, target, usable)
            if record is not None:
                return Found(record, database.name)
        return None

    def ranking(self, problem: str, target: str) -> tuple[Found, ...]:
        """The ranking of the highest layer that holds the problem (times of different layers are not compared)."""
        for database in reversed(self.databases):
            records = database.ranking(problem, target)
            if any(record.ok for record in records):
                return tuple(Found(record, database.name) for record in records)
        return ()

    def close(self) -> None:
        for database in self.databases:
            database.close()


def open_layers(paths: Sequence[str | os.PathLike[str]], readonly: bool = False) -> Layers:
    """Open layers from the lowest to the highest; all but the last are read only. No path: one layer in memory.

    ``readonly`` opens the last so, too: nothing is made or written then.
    """
    if not paths:
        return Layers((Database.open(None),))
    *lower, user = paths
    return Layers((*(Database.open(path, readonly=True) for path in lower), Database.open(user, readonly=readonly)))
