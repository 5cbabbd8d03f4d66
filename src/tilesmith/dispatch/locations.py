"""Resolves the databases, cache, target and mode of a call; by default those of the environment."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tilesmith import env
from tilesmith.db.layers import Layers, open_layers, reopened
from tilesmith.db.store import Database
from tilesmith.db.waiting import one_call
from tilesmith.dispatch.packages import installed_packages
from tilesmith.env import MAX_THREADS
from tilesmith.errors import ArgumentError, DatabaseError, NoSolutionError, TargetError
from tilesmith.targets.cpu import archs_within
from tilesmith.targets.cuda_driver import device_ordinal
from tilesmith.targets.detect import hidden_arch, host_target
from tilesmith.targets.detect_cuda import cuda_target_of
from tilesmith.targets.fitting import runs_on
from tilesmith.targets.names import as_target
from tilesmith.targets.target import Target
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.toolchain.files import scratch_of_process

_NOWHERE = os.path.join(os.devnull, "none")  # where no file can be


@dataclass(frozen=True)
class DatabasePaths:
    """The paths (or URLs) of layers, lowest first; the first ``system`` of them are installed ones."""

    paths: tuple[str, ...]
    system: int = 0


_opened: dict[DatabasePaths, Layers] = {}
# Those opened to be read alone, with the stamps of their files.
_read: dict[DatabasePaths, tuple[tuple[object, ...], Layers]] = {}
_doubted: set[DatabasePaths] = set()  # of the first, those to be looked at before the next use
_opening = threading.Lock()


def named_databases(
    database: Layers | Database | DatabasePaths | str | os.PathLike[str] | None = None,
) -> Layers | Database | DatabasePaths:
    """The layers of a call, not opened yet: the given ones, or the paths of the environment."""
    if isinstance(database, Layers | Database | DatabasePaths):
        return database
    if database is not None:
        if not isinstance(database, str | os.PathLike):
            raise ArgumentError(f"database {database!r} is neither a path nor a Database")
        return DatabasePaths((str(Path(database)),))
    installed = env.system_databases()
    return DatabasePaths((*installed, *env.DB_PATH.get()), len(installed))


def open_databases(
    database: Layers | Database | DatabasePaths | str | os.PathLike[str] | None = None, *, readonly: bool = False
) -> Layers:
    """The database layers of the call, else the installed ones below those of TILESMITH_DB_PATH; opened once a process.

    ``readonly`` makes and writes no file; the layers are opened again when their files have changed.
    """
    named = named_databases(database)
    if isinstance(named, Layers):
        return named
    if isinstance(named, Database):
        return Layers((named,))
    with _opening, one_call():
        if readonly:
            stamps = tuple(_stamp(path) for path in named.paths)
            held = _read.get(named)
            if held is None or held[0] != stamps:
                held = _read[named] = (stamps, open_layers(named.paths, readonly=True, system=named.system))
            return held[1]
        if named not in _opened:
            _opened[named] = open_layers(named.paths, system=named.system)
        elif named in _doubted:
            _opened[named] = reopened(_opened[named], named.paths)
        _doubted.discard(named)
        return _opened[named]


def forget_databases() -> None:
    """Make the next call check whether the files of its layers were replaced since this process opened them."""
    with _opening:
        _doubted.update(_opened)
        _read.clear()


def _stamp(path: str) -> tuple[int, int, int] | None:
    """A value that changes with a file; None where there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def lasting_databases() -> Layers:
    """The layers of TILESMITH_DB_PATH for a search; ``DatabaseError`` if the last layer cannot store answers."""
    layers = open_databases()
    if not layers.writable.persistent:
        raise DatabaseError(
            f"database {layers.writable.name} cannot be written, and what is tuned would be forgotten; "
            "name another as the last of TILESMITH_DB_PATH"
        )
    return layers


def target_of(target: Target | str | None, threads: int | None, device: str | None = None) -> Target:
    """The target of a call: ``target``, else that of ``device`` (``cpu``, ``cuda``, ``cuda:1``), else the host's.

    Raises ``TargetError`` if this machine cannot run the target, or ``threads`` contradicts it.
    """
    if target is not None:
        target = as_target(target)
    if threads is not None and (type(threads) is not int or not 1 <= threads <= MAX_THREADS):
        raise TargetError(f"threads {threads!r} is not an integer from 1 to {MAX_THREADS}")
    family = "cpu" if target is None or target.family == "cpu" else "cuda"
    ordinal = device_ordinal(family if device is None else device)
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
        capped = target.arch in archs_within(hidden_arch())
        advice = "; TILESMITH_CPU_LEVEL caps it, unset that" if capped else ""
        raise TargetError(f"target {target.name} does not run on this machine, which is {host.name}{advice}")
    return target


def open_cache(place: ArtifactCache | Path | str | None = None) -> ArtifactCache:
    """The artifact cache at ``place``; None is what the environment says."""
    if isinstance(place, ArtifactCache):
        return place
    if place is not None:
        if not isinstance(place, str | os.PathLike):
            raise ArgumentError(f"cache {place!r} is neither a path nor an ArtifactCache")
        return _cache(str(place))
    return _cache(str(env.CACHE_DIR.get())) if env.CACHE_ON.get() else _passing_cache()


@lru_cache(maxsize=16)
def _cache(place: str) -> ArtifactCache:
    return ArtifactCache(place)


@lru_cache(maxsize=1)
def _passing_cache() -> ArtifactCache:
    """A cache that is removed when the process ends."""
    return ArtifactCache(scratch_of_process())


def strict_cache(place: ArtifactCache | Path | str | None = None) -> ArtifactCache:
    """The cache that ``strict`` mode reads.

    Raises ``NoSolutionError`` where the environment switches it off, and no kernel package is here either.
    """
    if place is None and not env.CACHE_ON.get():
        if installed_packages().state:
            return _cache(_NOWHERE)
        raise NoSolutionError(
            "strict mode runs what the cache and kernel packages hold: TILESMITH_CACHE_ON=0 switches the cache off, "
            "and no package is here; unset it, or type `tilesmith package install PATH|URL`"
        )
    return open_cache(place)


def check_mode(mode: str | None) -> str:
    """The mode of a call, else that of the environment."""
    if mode is None:
        return env.FIND_MODE.get()
    if mode not in env.FIND_MODES:
        raise ArgumentError(f"mode {mode!r} does not exist; known: {', '.join(env.FIND_MODES)}")
    return mode
