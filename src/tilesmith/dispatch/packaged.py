"""Answers of kernel packages: a plan of a package runs as it is, without a solver, a compiler or a measurement.

An answer of a team or user database comes before that of a package; a package's comes before an installed database's.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from dataclasses import replace

from tilesmith import env
from tilesmith.db.layers import SYSTEM, Answer
from tilesmith.db.remote import is_url
from tilesmith.db.state import state_of
from tilesmith.db.waiting import one_call
from tilesmith.dispatch.choice import NEAREST_PACKAGE, PACKAGE, BuiltPlan, Choice, Considered, Resolved
from tilesmith.dispatch.locations import DatabasePaths
from tilesmith.dispatch.request import Request
from tilesmith.errors import PackageError, TargetError
from tilesmith.problems.keys import parse_key
from tilesmith.problems.spellings import other_spellings
from tilesmith.runtime.package_plans import PackagedPlan, package_target, plans_for, ranked_plans
from tilesmith.runtime.packages import Kind, PackageReader
from tilesmith.targets.fitting import Fit, fit_of, nearest_names
from tilesmith.targets.names import parse_target
from tilesmith.targets.target import Target
from tilesmith.toolchain.packages import package_places

ROLE = "package"
Kernel = tuple[str, str, int]  # solver, config and revision
_told: set[tuple[str, str]] = set()  # packages and targets: each nearest package is told of once
_log = logging.getLogger("tilesmith.package")


def recall(request: Request) -> Resolved | None:
    """The answer of a package where no team or user database has one; None where it has, or has to be fetched.

    No solver is imported, and no database is opened if none of their files exists.
    """
    named = request.databases
    if (
        not request.packages.state or request.mode in ("normal", "trust_verify")
        or env.TUNING_SPEC_PATH.get() is not None or not isinstance(named, DatabasePaths)
    ):  # fmt: skip
        return None
    paths = named.paths[named.system :]
    if any(map(is_url, paths)):
        return None
    answers: list[Answer] = []
    if any(state_of(path) != [] for path in paths):
        with one_call():
            for signature in (request.signature, *other_spellings(request.signature)):
                answers += above(request.layers.answers(signature.canonical.key(), request.target.name))
    return None if any(answer.record.ok for answer in answers) else best_plan(request, failed_kernels(answers))


def best_plan(request: Request, without: Collection[Kernel] = ()) -> Resolved | None:
    """The plan of the first package that has one for this target; else, if that is allowed, of the nearest one.

    ``without`` are kernels that failed here. A solver that the request names is the only one that counts.
    """
    for package, target in _ordered(request):
        try:
            for plan in ranked_plans(package, request.signature, target):
                serial = plan.held.serial
                if (serial.solver, serial.config, plan.revision) in without or not _matches(serial.solver, request):
                    continue
                return _resolved(request, package, plan)
        except PackageError as error:
            request.packages.drop(package, error)
    return None


def plan_of(request: Request, solver: str, config: str, revision: int) -> BuiltPlan | None:
    """The plan of a choice, made for this very target; None if no package has it."""
    for package in _for_target(request):
        try:
            for plan in ranked_plans(package, request.signature, request.target):
                serial = plan.held.serial
                if (serial.solver, serial.config, plan.revision) == (solver, config, revision):
                    return BuiltPlan(serial, plan.held.artifacts, remembered=True)
        except PackageError as error:
            request.packages.drop(package, error)
    return None


def rows_of(request: Request) -> tuple[Answer, ...]:
    """The rows of the packages' find-dbs for a problem and target, those of the first package first."""
    found: list[Answer] = []
    readers = _for_target(request)
    if readers:
        from tilesmith.db.package_rows import rows_in  # a process that runs plans reads no row

        for package in readers:
            try:
                rows = rows_in(package, Kind.FIND, request.problem, request.target.name)
                found += (Answer(row, package.path, ROLE) for row in rows)
            except PackageError as error:
                request.packages.drop(package, error)
    return tuple(found)


def with_record(resolved: Resolved, request: Request) -> Resolved:
    """The answer of a package with the row of its find-db that is the evidence, if it has one."""
    choice = resolved.choice
    request = replace(request, signature=parse_key(resolved.built.serial.problem))  # as the package spells it
    for answer in rows_of(request) if choice.basis == PACKAGE else ():
        row = answer.record
        if answer.layer == choice.layer and row.ok and (row.solver, row.config) == (choice.solver, choice.config):
            trace = tuple(replace(line, time_us=row.time_us, spread_us=row.spread_us) for line in choice.trace)
            return replace(resolved, choice=replace(choice, time_us=row.time_us, record=row, trace=trace))
    return resolved


def above(answers: Collection[Answer]) -> tuple[Answer, ...]:
    """Those of team and user databases, which come before packages."""
    return tuple(answer for answer in answers if answer.role not in (SYSTEM, ROLE))


def failed_kernels(answers: Collection[Answer]) -> frozenset[Kernel]:
    """Those that the answers record as failed."""
    records = (answer.record for answer in answers)
    return frozenset((record.solver, record.config, record.revision) for record in records if not record.ok)


def advice(request: Request) -> str:
    """The end of a miss's error: a package that holds the problem for another machine, and the command to type."""
    name = request.target.name
    others = []
    for package in request.packages.readers:
        target = _target_of(package)
        try:
            if target is not None and target.name != name and plans_for(package, request.signature, target):
                others.append((package, target))
        except PackageError as error:
            request.packages.drop(package, error)
    install = f"`tilesmith package install PATH|URL` of a package for {name}"
    if not others:
        places = ", ".join(map(str, package_places()))
        return f"no kernel package in {places} holds it: type {install}"
    package, target = others[0]
    kin = next(((p, t) for p, t in others if fit_of(request.target, t.name) != Fit.NONE), None)
    text = f"{package.path} holds it for {target.name}, which is another machine: type {install}"
    if kin is None:
        return text
    nearest = f"`tilesmith package install --nearest {kin[0].path}`, or set TILESMITH_PACKAGE_NEAREST=1, to run that"
    return f"{kin[0].path} holds it for {kin[1].name}: type {install}, or {nearest}"


def _ordered(request: Request) -> Iterator[tuple[PackageReader, Target]]:
    """Packages to ask, each with the target to ask for."""
    readers, own = _for_target(request), request.target
    for package in readers:
        yield package, own
    near = request.packages.near_readers if readers else ()
    if near:
        targets = {p: t for p in near if (t := _target_of(p)) is not None}
        for name in nearest_names(own, {target.name for target in targets.values()} - {own.name}):
            yield from ((package, target) for package, target in targets.items() if target.name == name)


def _for_target(request: Request) -> tuple[PackageReader, ...]:
    """The packages; none for a target whose record was changed: its name no longer says which instructions it has."""
    if not request.packages.state:
        return ()
    try:
        package_target(request.target)
    except PackageError:
        return ()
    return request.packages.readers


def _target_of(package: PackageReader) -> Target | None:
    try:
        return parse_target(package.manifest.target)
    except TargetError:  # a newer Tilesmith's
        return None


def _matches(solver: str, request: Request) -> bool:
    return not request.only or request.only in (solver, solver.partition("@")[0])


def _resolved(request: Request, package: PackageReader, plan: PackagedPlan) -> Resolved:
    serial = plan.held.serial
    basis, time_us = PACKAGE, plan.time_us
    if serial.target != request.target.name:
        basis, time_us = NEAREST_PACKAGE, None
        _tell_of_nearest(package, serial.target, request.target)
    line = Considered(serial.solver, "", serial.config, None, time_us, None, package.path, True)
    choice = Choice(serial.solver, serial.config, basis, package.path, time_us, (line,), ROLE)
    return Resolved(choice, BuiltPlan(serial, plan.held.artifacts, remembered=True))


def _tell_of_nearest(package: PackageReader, theirs: str, target: Target) -> None:
    pair = (package.path, target.name)
    if pair not in _told:
        _told.add(pair)
        _log.warning("no kernel package is for %s: plans for %s of %s are used", target.name, theirs, package.path)
