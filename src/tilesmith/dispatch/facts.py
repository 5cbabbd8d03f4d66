"""Gathers what ``choose`` decides on: candidates with defaults and predictions, and what the databases hold."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilesmith import env
from tilesmith.db.layers import Answer, Layers, open_layers
from tilesmith.db.store import Database
from tilesmith.dispatch.choose import Considered, Option
from tilesmith.errors import ArgumentError, DatabaseError, TargetError
from tilesmith.problems.rewrite import FORMS, Signature
from tilesmith.solvers.external.candidate import external_candidate
from tilesmith.solvers.solver import Accepted, parse_config
from tilesmith.solvers.table import Candidate, candidates, solvers_for
from tilesmith.targets.detect import host_target
from tilesmith.targets.detect_cuda import cuda_target_of
from tilesmith.targets.target import CpuTarget, Target

_DEVICE = re.compile(r"cuda(?::([0-9]{1,9}))?")


@dataclass(frozen=True)
class Named:
    """The places of layers, lowest first; the first ``system`` of them are installed ones."""

    places: tuple[str, ...]
    system: int = 0


_opened: dict[Named, Layers] = {}
# Those opened to be read alone, with the stamps of their files.
_read: dict[Named, tuple[tuple[object, ...], Layers]] = {}
_opening = threading.Lock()


def named_databases(
    database: Layers | Database | Named | str | os.PathLike[str] | None = None,
) -> Layers | Database | Named:
    """What says which layers a call means, before any is opened: those given, or the places of the environment."""
    if isinstance(database, Layers | Database | Named):
        return database
    if database is not None:
        if not isinstance(database, str | os.PathLike):
            raise ArgumentError(f"database {database!r} is neither a path nor a Database")
        return Named((str(Path(database)),))
    installed = env.system_databases()
    return Named((*installed, *env.DB_PATH.get()), len(installed))


def open_databases(
    database: Layers | Database | Named | str | os.PathLike[str] | None = None, *, readonly: bool = False
) -> Layers:
    """The database layers of the call, else the installed ones below those of TILESMITH_DB_PATH; opened once a process.

    ``readonly`` makes and writes no file; the layers are opened again when their files have changed.
    """
    named = named_databases(database)
    if isinstance(named, Layers):
        return named
    if isinstance(named, Database):
        return Layers((named,))
    with _opening:
        if readonly:
            stamps = tuple(_stamp(place) for place in named.places)
            held = _read.get(named)
            if held is None or held[0] != stamps:
                held = _read[named] = (stamps, open_layers(named.places, readonly=True, system=named.system))
            return held[1]
        if named not in _opened:
            _opened[named] = open_layers(named.places, system=named.system)
        return _opened[named]


def _stamp(path: str) -> tuple[int, int, int] | None:
    """What changes with a file; None where there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def lasting_databases() -> Layers:
    """The layers of TILESMITH_DB_PATH for a search whose answers must last: ``DatabaseError`` if the last forgets."""
    layers = open_databases()
    if not layers.writable.persistent:
        raise DatabaseError(
            f"database {layers.writable.name} cannot be written, and what is tuned would be forgotten; "
            "name another as the last of TILESMITH_DB_PATH"
        )
    return layers


def device_ordinal(device: str) -> int:
    """The ordinal that ``cuda`` or ``cuda:N`` names, -1 for ``cpu``; ``TargetError`` for anything else."""
    if device == "cpu":
        return -1
    match = _DEVICE.fullmatch(device) if isinstance(device, str) else None
    if match is None:
        raise TargetError(f"device {device!r} does not exist; write it as cpu, cuda or cuda:1")
    return int(match[1] or 0)


def target_of(target: Target | None, threads: int | None, device: str | None = None) -> Target:
    """The target of a call: of ``device`` (``cpu``, ``cuda``, ``cuda:1``), else the host's.

    Raises ``TargetError`` for one that this machine cannot run, or two numbers of threads.
    """
    if target is not None and not isinstance(target, Target):
        raise TargetError(f"target {target!r} is no target; make one with host_target() or parse_target()")
    ordinal = device_ordinal(device or ("cpu" if target is None or target.family == "cpu" else "cuda"))
    if ordinal >= 0:
        found = cuda_target_of(ordinal)
        if target is not None and not runs_on(target, found):
            raise TargetError(f"target {target.name} does not run on cuda:{ordinal}, which is {found.name}")
        return target or found
    if target is not None and target.family != "cpu":
        raise TargetError(f"target {target.name} does not run on the CPU")
    if target is None:
        return host_target(threads if threads is not None else env.NUM_THREADS.get())
    if threads is not None and threads != target.cores:
        raise TargetError(f"threads {threads} and target {target.name} disagree: a target's cores are its threads")
    host = host_target(target.cores)
    if not runs_on(target, host):
        raise TargetError(f"target {target.name} does not run on this machine, which is {host.name}")
    return target


def runs_on(target: Target, host: Target) -> bool:
    """Whether ``host`` has every instruction of ``target``."""
    if not isinstance(target, CpuTarget) or not isinstance(host, CpuTarget):
        return target.name == host.name
    return (
        target.zig_target == host.zig_target
        and target.vector_bytes <= host.vector_bytes
        and target.vector_registers <= host.vector_registers
        and (host.bf16_dot or not target.bf16_dot)
        and (host.fp16_convert or not target.fp16_convert)
    )


def options_of(signature: Signature, target: Target, external: bool = False) -> tuple[Option, ...]:
    """Every candidate of the table; the accepted ones with their default config and predicted time.

    With ``external``, PyTorch's own kernels come last: so a tie goes to a generated one.
    """
    options = []
    for candidate in candidates(signature, target):
        if not isinstance(candidate.verdict, Accepted):
            options.append(Option(candidate))
            continue
        config = candidate.solver.default_config(candidate.geometry, target)
        seconds = candidate.solver.predict(candidate.geometry, config, target)
        options.append(Option(candidate, str(config), seconds))
    library = external_candidate(signature, target) if external else None
    if library is not None:
        options.append(Option(library))
    return tuple(options)


def bare_options_of(
    signature: Signature, target: Target, names: Collection[str], external: bool = False
) -> tuple[Option, ...]:
    """The candidates of these names alone: where a database answers, nothing is predicted and no other is asked."""
    options = [Option(candidate) for candidate in candidates(signature, target, names)]
    library = external_candidate(signature, target) if external else None
    return tuple(options if library is None else [*options, Option(library)])


def revisions_of(target: Target, names: Collection[str]) -> dict[str, int]:
    """The revisions of the solvers of these names (``solver`` or ``solver@form``), in the table's order."""
    bare = {name.partition("@")[0] for name in names}
    found = {}
    for solver in solvers_for(target):
        if solver.name in bare:
            for form in FORMS:
                name = f"{solver.name}@{form}" if form else solver.name
                if name in names:
                    found[name] = solver.revision
    return found


def with_predictions(
    trace: Sequence[Considered], signature: Signature, target: Target, external: bool = False
) -> tuple[Considered, ...]:
    """A trace with the candidates, default configs and predictions that its choice did without."""
    known = {line.solver: line for line in trace}

    def whole(option: Option) -> Considered:
        name = option.candidate.name
        if not option.accepted:
            return known.get(name) or Considered(name, str(option.candidate.verdict))
        predicted_us = None if option.predicted_s is None else option.predicted_s * 1e6
        line = known.get(name)
        if line is None:
            return Considered(name, "", option.config, predicted_us)
        return line if line.predicted_us is not None else replace(line, predicted_us=predicted_us)

    options = options_of(signature, target, external)
    listed = {option.candidate.name for option in options}
    return (*map(whole, options), *(line for line in trace if line.solver not in listed))


def answers_of(signature: Signature, target: Target, layers: Layers) -> tuple[Answer, ...]:
    """What every layer holds for the problem, the highest layer first."""
    return layers.answers(signature.canonical.key(), target.name)


def near_answers_of(
    signature: Signature, target: Target, layers: Layers, options: Sequence[Option]
) -> tuple[tuple[Answer, ...], ...]:
    """What the layers hold for other targets, the nearest first: answers whose config exists on this target, too."""
    known = {option.candidate.name: option.candidate for option in options if option.accepted}
    groups = []
    for group in layers.near(signature.canonical.key(), target):
        fit = tuple(a for a in group if _exists(known.get(a.record.solver), a.record.config, target))
        if fit:
            groups.append(fit)
    return tuple(groups)


def _exists(candidate: Candidate | None, config: str, target: Target) -> bool:
    """The solver's search space on this target has the config."""
    if candidate is None:
        return False
    try:
        return candidate.solver.search_space(candidate.geometry, target).contains(parse_config(config))
    except (ValueError, KeyError):
        return False
