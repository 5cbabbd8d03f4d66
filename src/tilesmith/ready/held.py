"""The records of a problem in the written database that come from today's solvers, compiler and machine."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.db.layers import Layers
from tilesmith.db.records import Record, Search
from tilesmith.problems.rewrite import Signature
from tilesmith.targets.target import Target
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.tune import session
from tilesmith.tune.job import Job, make_job
from tilesmith.tune.retune import CurrentSetup


@dataclass(frozen=True)
class Place:
    """Where problems are tuned: the target, CUDA device ``ordinal``, databases and cache.

    ``external``: PyTorch's own CUDA kernels compete (None: where PyTorch is loaded and TILESMITH_EXTERNAL lets them).
    """

    target: Target
    ordinal: int
    layers: Layers
    cache: ArtifactCache
    external: bool | None = None

    def job(self, signature: Signature) -> Job:
        """The candidates of a problem, as a first call measures them. Raises ``NoSolutionError``."""
        return make_job(signature, self.target, "find", device=self.ordinal, external=self.external)


@dataclass(frozen=True)
class Held:
    """The best answer, the untuned config's time (None: not measured), and the last search (None: only a trial)."""

    best: Record
    untuned_us: float | None
    search: Search | None

    @property
    def searched(self) -> bool:
        """Whether more than the defaults were measured, and nothing stopped it."""
        return self.search is not None and self.search.strategy != "defaults"

    @property
    def converged(self) -> bool:
        """Whether a search found no config that is likely to be faster."""
        return self.searched and self.search is not None and self.search.ended == session.CONVERGED

    @property
    def finished(self) -> bool:
        """Whether a search came to its end, by its budget or otherwise."""
        return self.searched and self.search is not None and self.search.ended != session.INTERRUPTED


def held_answer(signature: Signature, place: Place, now: CurrentSetup) -> Held | None:
    """The records; None if there is no answer of today's. Raises ``NoSolutionError``."""
    database, target = place.layers.writable, place.target.name
    job = place.job(signature)
    best = database.best(job.problem, target, lambda record: not now.changes(record))
    if best is None:
        return None
    untuned = (job.untuned.solver, str(job.untuned.config))
    trials = [record for record in database.trials(job.problem, target, job.untuned.solver) if record.ok]
    found = next((r for r in trials if (r.solver, r.config) == untuned and not now.changes(r)), None)
    return Held(best, None if found is None else found.time_us, database.search(job.problem, target))
