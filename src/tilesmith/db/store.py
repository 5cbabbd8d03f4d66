"""The interface of a find-db and perf-db, however it is stored.

The perf-db are *trials* (every config that was measured), the find-db are *results* (each solver's best config).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from tilesmith.db.records import Record, Search

Table = Literal["results", "trials"]


def _any(record: Record) -> bool:
    return True


class Database(ABC):
    """A find-db and perf-db. Made by ``db.opening.open_database``. No method raises for what a file system does."""

    path: Path | None
    readonly: bool
    persistent: bool  # whether what is recorded outlives the process
    source: str = ""  # where the file was fetched from

    def for_writing(self) -> Database:
        """This database, or the one that takes its place where its folder cannot hold it: asked before each write."""
        return self

    @abstractmethod
    def is_current(self) -> bool:
        """Whether reads see the file at ``path`` now, not a copy of what another process held, or of another file."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """How it is stored, in words."""

    @property
    def name(self) -> str:
        """Where it comes from, for messages."""
        return self.source or (str(self.path) if self.path else "memory")

    # --- perf-db --------------------------------------------------------------------------------------------------

    @abstractmethod
    def record_trials(self, records: Iterable[Record]) -> None:
        """Keep what configs did; an older trial of the same config is replaced. Returns when they are durable."""

    @abstractmethod
    def trials(self, problem: str, target: str, solver: str | None = None) -> tuple[Record, ...]:
        """All trials, the fastest first, then the failed ones; ties in the order of names."""

    # --- find-db --------------------------------------------------------------------------------------------------

    def put_result(self, record: Record) -> None:
        """Keep ``record`` as the answer of its solver for its problem and target, in place of the one before."""
        self.put_results([record])

    @abstractmethod
    def put_results(self, records: Iterable[Record]) -> None:
        """The same for many answers."""

    @abstractmethod
    def ranking(self, problem: str, target: str) -> tuple[Record, ...]:
        """Each solver's answer, the fastest first, then those that failed."""

    def best(self, problem: str, target: str, usable: Callable[[Record], bool] = _any) -> Record | None:
        """The fastest answer that is ``ok`` and ``usable`` (for example: of the solver's present revision)."""
        return next((record for record in self.ranking(problem, target) if record.ok and usable(record)), None)

    @abstractmethod
    def targets_of(self, problem: str) -> tuple[str, ...]:
        """The targets that have an answer for a problem, in order."""

    def neighbours(self, problem: str, target: str) -> tuple[str, ...]:
        """Problems that have an answer, and may be neighbours of ``problem`` (``problems.outline``), in any order.

        None where looking them up would read every record: in a folder of files, or in a file without the index.
        """
        return ()

    def may_hold_answers(self) -> bool:
        """False if there is no answer of any problem. True, too, where finding out would read every record."""
        return True

    @abstractmethod
    def problems(self, target: str | None = None) -> tuple[tuple[str, str], ...]:
        """``(problem, target)`` of every answer held, in order."""

    # --- searches -------------------------------------------------------------------------------------------------

    @abstractmethod
    def put_search(self, search: Search) -> None:
        """Keep how the last search on a problem and target went."""

    def put_searches(self, searches: Iterable[Search]) -> None:
        """The same for many."""
        for search in searches:
            self.put_search(search)

    @abstractmethod
    def search(self, problem: str, target: str) -> Search | None:
        """The last search on a problem and target."""

    # --- upkeep ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def records(self, table: Table) -> Iterator[Record]:
        """Every record of a table that is whole, in the order of its keys."""

    @abstractmethod
    def remove(self, table: Table, records: Sequence[Record]) -> int:
        """Remove the records with these keys, and say how many there were."""

    @abstractmethod
    def check(self) -> tuple[str, ...]:
        """Lists the damage, one line each, after reading all there is; empty when all is whole."""

    @abstractmethod
    def repair(self) -> int:
        """Remove what is damaged, and say how much."""

    @abstractmethod
    def close(self) -> None: ...


def in_order(records: Iterable[Record]) -> tuple[Record, ...]:
    """The fastest first, then those that failed; ties in the order of names."""
    infinite = float("inf")
    return tuple(
        sorted(records, key=lambda r: (infinite if r.time_us is None else r.time_us, r.solver, r.config)),
    )
