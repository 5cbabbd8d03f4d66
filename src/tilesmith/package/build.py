"""Packages from the local databases and cache: what dispatch would launch for each problem, compiled where it must be.

Nothing is measured and no device is asked: a problem without a record gets what the cost model estimates to be the
fastest. So a machine builds packages for targets that it does not have, as long as a compiler makes their kernels.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tilesmith import __version__, env
from tilesmith.db.layers import Layers
from tilesmith.db.records import Record
from tilesmith.db.store import Table
from tilesmith.db.upkeep import RecordFilter, revision_of, select
from tilesmith.dispatch.choice import DATABASE, BuiltPlan, Choice
from tilesmith.dispatch.planning import build
from tilesmith.dispatch.request import Request
from tilesmith.dispatch.resolve import as_held, decide, resolve
from tilesmith.errors import CompileError, NoSolutionError, PlanError, TilesmithError
from tilesmith.package.making import PackedPlan, make_package
from tilesmith.package.records import KernelPackage, Manifest
from tilesmith.plan.serial import read_head
from tilesmith.problems.rewrite import Signature
from tilesmith.solvers.generation import generator_digest
from tilesmith.solvers.table import candidates
from tilesmith.targets.detect import host_target, usable_cores
from tilesmith.targets.names import as_target
from tilesmith.targets.target import CpuTarget, Target
from tilesmith.toolchain.cache import Artifact, ArtifactCache
from tilesmith.toolchain.processes import Processes


@dataclass(frozen=True)
class PackedProblem:
    """What a package got of one problem: the choice and its plans, the best first; or the reason why it got nothing."""

    signature: Signature
    choice: Choice | None = None
    plans: tuple[PackedPlan, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Rows:
    """Which rows go into a package: of these targets, and with ``trials`` the perf-db too.

    ``sm_90a:132`` names every card of this arch and number of SMs; no target is the package's own.
    """

    targets: tuple[str, ...] = ()
    trials: bool = False


def build_target(text: str) -> Target:
    """The target of this name; with this machine's own cache sizes if it is this machine's.

    Raises ``TargetError``.
    """
    target = as_target(text)
    if isinstance(target, CpuTarget):
        host = host_target(target.cores)
        return host if host.name == target.name else target
    return target


def pack_problems(
    signatures: Sequence[Signature], target: Target, layers: Layers, cache: ArtifactCache, jobs: int | None = None,
    listener: Callable[[PackedProblem], None] | None = None, plans: int = 1,
) -> tuple[PackedProblem, ...]:  # fmt: skip
    """The plans of each problem, in the order given. A problem without one has the reason.

    Args:
        signatures: Problems; of two with the same key the first counts.
        target: What they are for; need not be this machine.
        layers: Databases, which are only read.
        cache: Where compiled kernels are found, and go.
        jobs: Compilers at a time. None: one for each usable core.
        listener: Called with each problem when it is done, in the order given. None: no calls.
        plans: At most this many for each problem: the best, and those that dispatch would take without it.
    """
    distinct = list({signature.canonical.key(): signature for signature in reversed(signatures)}.values())[::-1]
    compilers = Processes()

    def one(signature: Signature) -> PackedProblem:
        request = Request(signature, target, "fast", layers, cache, env.ONLY_SOLVER.get())
        try:
            with compilers:
                found = resolve(request)
                built = [(found.choice, found.built), *_next_best(request, found.choice, plans - 1)]
        except (TilesmithError, OSError) as error:
            return PackedProblem(signature, reason=str(error) or type(error).__name__)
        artifacts = [artifact for _, each in built for artifact in each.artifacts]
        made = tuple(_packed(choice, each) for choice, each in built)
        return PackedProblem(signature, found.choice, made, tuple(dict.fromkeys(artifacts)))

    packed = []
    pool = ThreadPoolExecutor(jobs or usable_cores())
    try:
        for each in pool.map(one, distinct):
            packed.append(each)
            if listener is not None:
                listener(each)
    except BaseException:
        compilers.end()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return tuple(packed)


def _packed(choice: Choice, built: BuiltPlan) -> PackedPlan:
    """A plan with its time, if a record of this very target has one."""
    time_us = choice.time_us if choice.basis == DATABASE else None
    return PackedPlan(built.serial.data, revision_of(choice.solver) or 0, time_us or 0.0)


def _next_best(request: Request, best: Choice, count: int) -> list[tuple[Choice, BuiltPlan]]:
    """At most ``count`` further choices with their plans; one that cannot be built is left out."""
    found: list[tuple[Choice, BuiltPlan]] = []
    request = request if request.only else as_held(request)  # under the spelling that the best choice has
    without = frozenset({(best.solver, best.config)})
    while len(found) < count:
        try:
            choice = decide(request, without)
        except NoSolutionError:  # nothing is left
            break
        without |= {(choice.solver, choice.config)}
        (candidate,) = candidates(request.signature, request.target, (choice.solver,))
        with contextlib.suppress(CompileError, PlanError):
            found.append((choice, build(request, candidate, choice.config)))
    return found


def rows_of(
    layers: Layers, problems: Iterable[str], target: Target, wanted: Rows
) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
    """The rows of the find-db and of the perf-db for these keys; of two of one key that of the higher layer."""
    keys = frozenset(problems)
    found: list[tuple[Record, ...]] = []
    tables: tuple[Table, ...] = ("results", "trials")
    for table in tables:
        by_key: dict[tuple[str, ...], Record] = {}
        for name in (wanted.targets or (target.name,)) if table == "results" or wanted.trials else ():
            for database in layers.databases:  # the lowest first
                for record in select(database, table, RecordFilter(keys, name)):
                    config = record.config if table == "trials" else ""
                    by_key[record.problem, record.target, record.solver, config] = record
        found.append(tuple(by_key.values()))
    return found[0], found[1]


def assemble_package(
    name: str, target: Target, packed: Sequence[PackedProblem], layers: Layers, rows: Rows | None,
    counter: int = 0, date: int = 0, linked: Collection[str] = (),
) -> KernelPackage:  # fmt: skip
    """The package of what ``pack_problems`` found. The same databases and cache make the same package.

    ``linked`` are digests of kernels that the program links in place of binaries of the package. Without ``rows`` the
    package has none.
    Raises ``PackageError`` for a name, counter or date outside its rule.
    """
    manifest = Manifest(name, target.name, f"tilesmith {__version__}", generator_digest(target.family), counter, date)
    plans = [plan for each in packed for plan in each.plans]
    binaries = {artifact.digest: artifact.data for each in packed for artifact in each.artifacts}
    problems = {each.signature.canonical.key() for each in packed}
    problems |= {read_head(plan.data).problem for plan in plans}  # a database may hold it under another spelling
    results, trials = rows_of(layers, problems, target, rows) if rows is not None else ((), ())
    return make_package(manifest, plans, binaries, results, trials, linked)
