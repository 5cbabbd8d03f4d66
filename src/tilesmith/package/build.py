"""Packages from the local databases and cache: what dispatch would launch for each problem, compiled where it must be.

Nothing is measured and no device is asked: a problem without a record gets what the cost model estimates to be the
fastest. So a machine builds packages for targets that it does not have, as long as a compiler makes their kernels.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from tilesmith import __version__, env
from tilesmith.db.layers import Layers
from tilesmith.db.records import Record
from tilesmith.db.store import Table
from tilesmith.db.upkeep import RecordFilter, revision_of, select
from tilesmith.dispatch.answers import as_held
from tilesmith.dispatch.choice import DATABASE, BuiltPlan, Choice
from tilesmith.dispatch.planning import build
from tilesmith.dispatch.request import Request
from tilesmith.dispatch.resolve import decide, resolve
from tilesmith.errors import CompileError, NoSolutionError, PlanError, TargetError, TilesmithError
from tilesmith.package.making import PackedPlan, make_package
from tilesmith.package.records import KernelPackage, Manifest
from tilesmith.package.selection.choice import decide_selected
from tilesmith.package.selection.rules import Selection
from tilesmith.plan.serial import read_head
from tilesmith.problems.rewrite import Signature
from tilesmith.solvers.generation import generator_digest
from tilesmith.solvers.table import candidates
from tilesmith.targets.cards import like_cards
from tilesmith.targets.cuda import ptx_target
from tilesmith.targets.detect import host_target, usable_cores
from tilesmith.targets.names import as_target
from tilesmith.targets.target import CpuTarget, CudaTarget, Target
from tilesmith.toolchain.cache import Artifact, ArtifactCache
from tilesmith.toolchain.processes import Processes
from tilesmith.toolchain.toolchains import find_toolchain

_log = logging.getLogger("tilesmith.package")


@dataclass(frozen=True)
class PackedProblem:
    """One problem's part of a package: its plans, the best first; or the reason why it has none.

    ``choices`` says how each plan was chosen. ``artifacts`` are the binaries of all of them. ``refused`` is true if the
    selection wants nothing of this problem: its mode or its types are out, or its size.
    """

    signature: Signature
    choices: tuple[Choice, ...] = ()
    plans: tuple[PackedPlan, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    reason: str = ""
    refused: bool = False

    @property
    def choice(self) -> Choice | None:
        """That of the best plan; None if there is none."""
        return self.choices[0] if self.choices else None


@dataclass(frozen=True)
class Rows:
    """Which rows go into a package: of these targets, and with ``trials`` the perf-db too.

    ``sm_90a:132`` names every card of this arch and number of SMs; no target is the package's own.
    """

    targets: tuple[str, ...] = ()
    trials: bool = False


def build_target(text: str) -> Target:
    """The target of this name; with this machine's own cache sizes if it is this machine's.

    Warns of a card without a record that is like recorded ones: probably no driver calls a device so, and plans are
    used on the card of their target alone. Raises ``TargetError``.
    """
    target = as_target(text)
    if isinstance(target, CudaTarget) and (like := like_cards(target.arch, target.card)):
        _log.warning(
            "no record is of a card %s: where no driver calls a device so, nothing uses what is made for it; "
            "cards that are called alike: %s",
            target.card, ", ".join(like),
        )  # fmt: skip
    if isinstance(target, CpuTarget):
        host = host_target(target.cores)
        return host if host.name == target.name else target
    return target


def with_ptx(targets: Sequence[Target]) -> tuple[Target, ...]:
    """The targets, and for each GPU the one whose PTX later GPUs assemble.

    Raises ``TargetError`` if none is a GPU.
    """
    later = tuple(ptx_target(target) for target in targets if not isinstance(target, CpuTarget))
    if not later:
        raise TargetError(f"PTX is for GPUs, got {', '.join(target.name for target in targets)}")
    return tuple(dict.fromkeys((*targets, *later)))


def pack_problems(
    signatures: Sequence[Signature], target: Target, layers: Layers, cache: ArtifactCache, jobs: int | None = None,
    listener: Callable[[PackedProblem], None] | None = None, plans: int = 1, selection: Selection | None = None,
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
        selection: Lets in problems and kernels; its ``size`` does not count here (``selection.size.fit_size``). A
            problem with the same key under several spellings is in if one of them is. None: any.

    Raises:
        NoCompilerError: ``target`` is a CPU with another instruction set than this machine's, and nothing here compiles
            for it.
    """
    distinct = _distinct(signatures, selection)
    if isinstance(target, CpuTarget) and target.zig_target != host_target(1).zig_target:
        find_toolchain(target)  # one message rather than one for each problem
    compilers = Processes()

    def one(signature: Signature) -> PackedProblem:
        request = Request(signature, target, "fast", layers, cache, env.ONLY_SOLVER.get())
        out = "" if selection is None else selection.refuses_problem(signature)
        if out:
            return PackedProblem(signature, reason=out, refused=True)
        try:
            with compilers:
                built = _best(request, plans, selection)
        except (TilesmithError, OSError) as error:
            return PackedProblem(signature, reason=str(error) or type(error).__name__)
        artifacts = [artifact for _, each in built for artifact in each.artifacts]
        choices, made = zip(*((choice, packed_plan(choice, each)) for choice, each in built), strict=True)
        return PackedProblem(signature, choices, made, tuple(dict.fromkeys(artifacts)))

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


def packed_plan(choice: Choice, built: BuiltPlan) -> PackedPlan:
    """A plan with its time, if a record of this very target has one."""
    time_us = choice.time_us if choice.basis == DATABASE else None
    return PackedPlan(built.serial.data, revision_of(choice.solver) or 0, time_us or 0.0)


def _distinct(signatures: Iterable[Signature], selection: Selection | None) -> list[Signature]:
    """The first signature of each key; the first that the selection lets in where it refuses others."""
    found: dict[str, Signature] = {}
    for signature in signatures:
        key = signature.canonical.key()
        held = found.setdefault(key, signature)
        if selection is not None and held is not signature and selection.refuses_problem(held):
            found[key] = signature
    return list(found.values())


def _best(request: Request, count: int, selection: Selection | None) -> list[tuple[Choice, BuiltPlan]]:
    """At most ``count`` choices with their plans, the best first; one that cannot be built is left out.

    Raises ``NoSolutionError`` if there is none.
    """
    found: list[tuple[Choice, BuiltPlan]] = []
    decide_next: Callable[[Request, frozenset[tuple[str, str]]], Choice] = decide
    if selection is not None and selection.limits_kernels(request.target):
        decide_next = partial(decide_selected, selection)
    else:
        best = resolve(request)
        found.append((best.choice, best.built))
    if len(found) < count and not request.only:
        request = as_held(request)  # under the spelling that the best choice has
    without = frozenset((choice.solver, choice.config) for choice, _ in found)
    while len(found) < count:
        try:
            choice = decide_next(request, without)
        except NoSolutionError:  # nothing is left
            if found:
                break
            raise
        without |= {(choice.solver, choice.config)}
        (candidate,) = candidates(request.signature, request.target, (choice.solver,))
        try:
            found.append((choice, build(request, candidate, choice.config)))
        except (CompileError, PlanError) as error:
            _log.warning("%s %s cannot be built (%s); the next best is used", choice.solver, choice.config, error)
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
    counter: int = 0, date: int = 0, selection: Selection | None = None, linked: Collection[str] = (),
) -> KernelPackage:  # fmt: skip
    """The package of what ``pack_problems`` found. The same databases and cache make the same package.

    With a selection, rows are left out of problems without a plan and of kernels that it does not let in. Without
    ``rows`` the package has none. ``linked`` are digests of kernels that the program links in place of binaries.
    Raises ``PackageError`` for a name, counter or date outside its rule.
    """
    manifest = Manifest(name, target.name, f"tilesmith {__version__}", generator_digest(target.family), counter, date)
    plans = [plan for each in packed for plan in each.plans]
    binaries = {artifact.digest: artifact.data for each in packed for artifact in each.artifacts}
    problems = {each.signature.canonical.key() for each in packed if each.plans or selection is None}
    problems |= {read_head(plan.data).problem for plan in plans}  # a database may hold it under another spelling
    results, trials = rows_of(layers, problems, target, rows) if rows is not None else ((), ())
    if selection is not None:
        results, trials = (tuple(filter(selection.takes_row, each)) for each in (results, trials))
    return make_package(manifest, plans, binaries, results, trials, linked)
