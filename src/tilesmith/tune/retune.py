"""Searches problems again after a new driver, compiler or solver revision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.db.records import Record
from tilesmith.db.store import Database
from tilesmith.db.upkeep import revision_of
from tilesmith.errors import ProblemError
from tilesmith.measure.host import host_facts
from tilesmith.problems.keys import parse_key
from tilesmith.problems.rewrite import Signature
from tilesmith.solvers.old_names import same_config
from tilesmith.targets.detect_cuda import cuda_devices
from tilesmith.targets.target import CpuTarget, Target
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.toolchain.toolchains import find_toolchain
from tilesmith.tune.progress import Listener
from tilesmith.tune.session import TuneResult, tune

STARTS = 4  # of the old answers, to begin the search with


@dataclass(frozen=True)
class CurrentSetup:
    """The compiler and the machine (for a GPU: the device and its driver) that answers are compared with."""

    compiler: str
    machine: str

    def changes(self, record: Record) -> tuple[str, ...]:
        """Names each fact that has changed since the record was measured."""
        found = []
        revision = revision_of(record.solver)
        if revision is not None and revision != record.revision:
            found.append(f"revision {record.revision} -> {revision}")
        if record.compiler != self.compiler:
            found.append(f"compiler {record.compiler or 'unknown'} -> {self.compiler}")
        if record.host != self.machine:
            found.append(f"machine {record.host or 'unknown'} -> {self.machine}")
        return tuple(found)


@dataclass(frozen=True)
class Stale:
    """A problem whose answer was measured with another driver, compiler or solver revision."""

    signature: Signature
    answer: Record
    changes: tuple[str, ...]


@dataclass(frozen=True)
class Retuned:
    """The answer before and after; ``changed`` when another solver or config won."""

    stale: Stale
    result: TuneResult

    @property
    def changed(self) -> bool:
        before, after = self.stale.answer, self.result.record
        return before.solver != after.solver or not same_config(before.solver, before.config, after.config)


def current_setup(target: Target, device: int = 0) -> CurrentSetup:
    """The compiler and machine that measure now. Raises ``NoCompilerError``."""
    compiler = find_toolchain(target).identity
    gpu = None if isinstance(target, CpuTarget) else cuda_devices()[device]
    return CurrentSetup(compiler, host_facts(compiler, gpu).name)


def stale_problems(
    database: Database, target: Target, now: CurrentSetup, problems: frozenset[str] | None = None
) -> tuple[Stale, ...]:
    """The problems held for a target whose best answer is stale, in the order of their keys.

    ``problems`` limits them to some keys. A problem whose answers all failed counts, too: it may work now.
    """
    found = []
    for problem, _ in database.problems(target.name):
        if problems is not None and problem not in problems:
            continue
        ranking = database.ranking(problem, target.name)
        changes = now.changes(ranking[0]) if ranking else ()
        if changes:
            try:
                found.append(Stale(parse_key(problem), ranking[0], changes))
            except ProblemError:  # a key of a newer version, which this one cannot measure
                continue
    return tuple(found)


def retune(
    stale: Stale, target: Target, now: CurrentSetup, *, database: Database, cache: ArtifactCache,
    strategy: str = "model", max_trials: int | None = None, max_seconds: float | None = 15.0, seed: int = 0,
    device: int = 0, progress: Listener | None = None, started: float | None = None,
) -> Retuned:  # fmt: skip
    """Search one problem again, beginning with its old answers. Then remove the remaining out-of-date answers.

    Raises what ``tune`` raises; the old answers stay then.
    """
    problem = stale.answer.problem
    old = [record for record in database.ranking(problem, target.name) if record.ok]
    result = tune(
        stale.signature, target, database=database, cache=cache, strategy=strategy, max_trials=max_trials,
        max_seconds=max_seconds, seed=seed, device=device, first=_configs(old[:STARTS]),
        progress=progress, started=started,
    )  # fmt: skip
    database.remove("results", [r for r in database.ranking(problem, target.name) if now.changes(r)])
    return Retuned(stale, result)


def _configs(records: Sequence[Record]) -> list[tuple[str, str]]:
    return [(record.solver, record.config) for record in records]
