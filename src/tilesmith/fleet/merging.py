"""Takes what workers send into the client's database: every line's seal is checked before any is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.db.exchange import NEWEST, merge
from tilesmith.db.lines import read_line
from tilesmith.db.records import Record, Search
from tilesmith.db.store import Database
from tilesmith.errors import FileFormatError, FleetError
from tilesmith.fleet.tasks import Parcel


@dataclass(frozen=True)
class Opened:
    """A parcel whose records are as they were sealed: the answer of each solver, the best first, and all trials."""

    parcel: Parcel
    ranking: tuple[Record, ...]
    trials: tuple[Record, ...]
    searches: tuple[Search, ...]

    @property
    def key(self) -> tuple[str, str]:
        return self.parcel.problem, self.parcel.target


def open_parcel(parcel: Parcel) -> Opened:
    """Raises ``FleetError`` unless every record is sound and speaks of the parcel's problem and target."""
    ranking: list[Record] = []
    trials: list[Record] = []
    searches: list[Search] = []
    for number, line in enumerate(parcel.lines, 1):
        try:
            found = read_line(line)
        except FileFormatError as error:
            raise FleetError(f"record {number} of {parcel.problem} {error}") from None
        if found is None:
            raise FleetError(
                f"record {number} of {parcel.problem} is of a newer format; install one version everywhere"
            )
        table, record = found
        if (record.problem, record.target) != (parcel.problem, parcel.target):
            raise FleetError(f"record {number} of {parcel.problem} on {parcel.target} is of another problem or target")
        if isinstance(record, Search):
            searches.append(record)
        else:
            (ranking if table == "results" else trials).append(record)
    if not ranking or not ranking[0].ok:
        raise FleetError(f"it has no answer for {parcel.problem}")
    return Opened(parcel, tuple(ranking), tuple(trials), tuple(searches))


def keep(trials: Sequence[Opened], answers: Sequence[Opened], database: Database) -> None:
    """Put the trials of some parcels, and the answers of some, into a database: few transactions, however many.

    The answer of one search is kept as a whole: its times are of one scale, which those of another search are not.
    """
    merge((("trials", record) for each in trials for record in each.trials), database, NEWEST)
    if not answers:
        return
    database.put_results([record for each in answers for record in each.ranking])
    old: list[Record] = []
    for each in answers:
        solvers = {record.solver for record in each.ranking}
        old += [record for record in database.ranking(*each.key) if record.solver not in solvers]
    if old:
        database.remove("results", old)
    database.put_searches([search for each in answers for search in each.searches])
