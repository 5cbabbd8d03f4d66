"""``CachePopulator`` makes a list of problems ready, so that another process can run them in ``strict`` mode.

First it compiles the candidates of many problems in parallel. Then it decides the problems one after the other, so that
nothing disturbs a measurement. A second run continues where the first one stopped.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

from tilesmith import env
from tilesmith.db.layers import Layers
from tilesmith.db.store import Database
from tilesmith.dispatch.answers import answers_of
from tilesmith.dispatch.choice import PACKAGES, Choice
from tilesmith.dispatch.choose import Option, choose
from tilesmith.dispatch.facts import options_of
from tilesmith.dispatch.launchable import BACKGROUND
from tilesmith.dispatch.locations import (
    check_mode,
    lasting_databases,
    open_cache,
    open_databases,
    strict_cache,
    target_of,
)
from tilesmith.dispatch.packages import installed_packages
from tilesmith.dispatch.planning import existing_config, held_plan
from tilesmith.dispatch.request import Request
from tilesmith.dispatch.resolve import decide, from_package, resolve
from tilesmith.dispatch.spec.choice import spec_choice
from tilesmith.env import takes_part
from tilesmith.errors import (
    ArgumentError,
    CommandError,
    FileFormatError,
    InterruptedSearchError,
    NoSolutionError,
    TilesmithError,
)
from tilesmith.problems.driver import parse_problem, read_commands
from tilesmith.problems.rewrite import Signature
from tilesmith.ready.sources import write_sources
from tilesmith.targets.detect import usable_cores
from tilesmith.targets.names import as_target
from tilesmith.targets.target import Target
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.toolchain.processes import Processes
from tilesmith.toolchain.trust import why_distrusted
from tilesmith.tune.space import HOPELESS

SOURCES = "sources"  # of the cache folder: what ``device=""`` writes
COMPILED, READY, FAILED = "compiled", "ready", "failed"
Listener = Callable[["Step"], None]
_log = logging.getLogger("tilesmith.dispatch")


@dataclass(frozen=True)
class Step:
    """Progress of one problem on one device.

    ``phase`` is ``compiled`` (the kernels that it may need are in the cache), ``ready`` or ``failed``; ``reason`` says
    why it failed. If only sources are written, ``device`` is empty and ``folder`` holds the sources.
    """

    signature: Signature
    device: str
    phase: str
    reason: str = ""
    choice: Choice | None = None
    folder: Path | None = None


class CachePopulator:
    """Makes problems ready: decides them, compiles their kernels, and fills the cache.

    Problems come from ``signatures``, ``commands`` and ``commands_file``, in this order. Duplicates are removed.

    Args:
        cache_dir: A path or an ``ArtifactCache``. None: TILESMITH_CACHE_DIR.
        devices: Devices to prepare: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``. The empty name ``""`` writes sources only.
        signatures: Problems.
        commands: Driver commands, or keys (``signature.key()``).
        commands_file: File with one driver command or key on each line. A line that cannot be read is added to
            ``bad_lines``; the other lines are used.
        mode: As for ``get_launchable``. ``"fast"`` measures nothing, so the process that runs the problems must use
            ``"fast"`` too. ``"strict"`` compiles nothing and only checks which problems are ready. ``"background"`` is
            ``"hybrid"`` here.
        threads: Number of CPU threads, from 1 to 1024. None: TILESMITH_NUM_THREADS, else all usable cores.
        database: A path, a ``Database`` or ``Layers``. None: the layers of TILESMITH_DB_PATH.
        out: Folder for the sources of device ``""``, with one subfolder for each problem. None: ``sources`` in the
            cache folder.
        target: Target of the sources of device ``""``, or its name. None: this machine.

    Attributes:
        signatures: The problems, without duplicates.
        bad_lines: One ``CommandError`` for each line of ``commands_file`` that cannot be read.

    Raises:
        CommandError: One of ``commands`` is neither a command nor a key.
        FileFormatError: ``commands_file`` cannot be read.
        ArgumentError: ``mode`` does not exist, or TILESMITH_CACHE_ON=0 switches the cache off.

    Examples:
        >>> import tilesmith
        >>> problem = tilesmith.GemmSignature(m=8, n=8, k=8)
        >>> populator = tilesmith.CachePopulator(signatures=[problem], threads=1)
        >>> populator.run()
        >>> populator.get_cache_status(problem.get_func_name())
        {'cpu': True}
    """

    def __init__(
        self, *, cache_dir: ArtifactCache | Path | str | None = None, devices: Sequence[str] = ("cpu",),
        signatures: Iterable[Signature] = (), commands: Iterable[str] = (), commands_file: Path | str | None = None,
        mode: str | None = None, threads: int | None = None,
        database: Layers | Database | str | os.PathLike[str] | None = None, out: Path | str | None = None,
        target: Target | str | None = None,
    ) -> None:  # fmt: skip
        found = list(signatures)
        self.bad_lines: list[CommandError] = []
        for text in commands:
            found += [signature for _, signature in parse_problem(text).signatures]
        for line in read_commands(commands_file) if commands_file is not None else ():
            if line.command is None:
                assert line.error is not None
                self.bad_lines.append(line.error)
                _log.warning("%s", line.error)
            else:
                found += [signature for _, signature in line.command.signatures]
        self.signatures: list[Signature] = list(dict.fromkeys(found))
        self.devices = tuple(dict.fromkeys(devices))
        asked = check_mode(mode)
        self.mode = "hybrid" if asked == BACKGROUND else asked
        self._threads, self._database, self._out = threads, database, out
        self._target = None if target is None else as_target(target)
        self._cache = strict_cache(cache_dir) if self.mode == "strict" else open_cache(cache_dir)
        if cache_dir is None and not env.CACHE_ON.get() and any(devices):
            raise ArgumentError("TILESMITH_CACHE_ON=0 switches off the cache that is to be filled; unset it")
        self._ready: dict[str, set[str]] = {}
        self._failures: dict[str, dict[str, str]] = {}

    @property
    def steps(self) -> int:
        """The largest number of ``Step`` records that one run makes."""
        return len(self.signatures) * sum(2 if device and self.mode != "strict" else 1 for device in self.devices)

    def run(self, max_processes: int | None = None, listener: Listener | None = None) -> None:
        """Make every problem ready. If one fails, ``get_failures`` names it, and the run continues with the others.

        Args:
            max_processes: Number of compilers that run at the same time. None: one for each usable core.
            listener: Function that is called with each ``Step``. None: no calls.

        Raises:
            DatabaseError: The database cannot be written, so the results would be lost.
            TargetError: A device does not exist or does not run here.
            InterruptedSearchError: Ctrl-C stopped a measurement. (Ctrl-C at another moment raises
                ``KeyboardInterrupt``.) Finished problems are kept.
        """
        tell = listener or (lambda step: None)
        for device in self.devices:
            if not device:
                self._write_all(tell)
                continue
            target = target_of(None, self._threads, device)
            # Before anything is compiled for a database that forgets.
            layers = self._layers()
            packages = installed_packages()
            only, ordinal, external = env.ONLY_SOLVER.get(), int(device.partition(":")[2] or 0), takes_part()
            requests = [
                Request(signature, target, self.mode, layers, self._cache, only, ordinal, external, packages)
                for signature in self.signatures
            ]
            if self.mode != "strict":
                self._compile_all(device, requests, max_processes or usable_cores(), tell)
            for request in requests:
                self._settle(request, device, tell)

    def get_cache_status(self, func_name: str) -> dict[str, bool]:
        """For each device, whether a problem is ready there; for ``""``, whether its sources were written.

        Args:
            func_name: ``get_func_name()`` of the problem.

        Raises:
            ArgumentError: None of the problems has this name.
        """
        if func_name not in {signature.get_func_name() for signature in self.signatures}:
            raise ArgumentError(f"{func_name!r} is the get_func_name() of none of the {len(self.signatures)} problems")
        return {device: device in self._ready.get(func_name, ()) for device in self.devices}

    def get_failures(self) -> dict[str, str]:
        """The reason for each problem that is not ready, by its ``get_func_name()``. The reason names the device."""
        return {
            name: "; ".join(f"{device or 'sources'}: {reason}" for device, reason in reasons.items())
            for name, reasons in self._failures.items()
        }

    # --- steps --------------------------------------------------------------------------------------------------------

    def _layers(self) -> Layers:
        if self._database is None and self.mode not in ("fast", "strict"):
            return lasting_databases()
        return open_databases(self._database, readonly=self.mode == "strict")

    def _compile_all(self, device: str, requests: Sequence[Request], workers: int, tell: Listener) -> None:
        """Compile the candidates of the problems. An error is only logged here; ``_settle`` meets and reports it."""

        compilers = Processes()

        def one(request: Request) -> None:
            target = request.target
            for option in _wanted(request):
                candidate = option.candidate
                if held_plan(request, candidate, option.config) is None:
                    config = existing_config(candidate, option.config, target)
                    draft = candidate.solver.draft(candidate.geometry, config, target)
                    for source in draft.sources:
                        with compilers:
                            self._cache.get_or_build(source, target)

        pool = ThreadPoolExecutor(workers)
        try:
            waiting: dict[Future[None], Signature] = {pool.submit(one, each): each.signature for each in requests}
            while waiting:
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    signature, error = waiting.pop(future), future.exception()
                    if error is not None:
                        _log.info("%s: %s", signature.get_func_name(), error)
                    tell(Step(signature, device, COMPILED, "" if error is None else str(error)))
        except BaseException:
            compilers.end()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _settle(self, request: Request, device: str, tell: Listener) -> None:
        signature = request.signature
        name = signature.get_func_name()
        try:
            choice = resolve(request).choice
            if not self._cache.lasts and choice.basis not in PACKAGES:
                raise NoSolutionError(
                    f"the cache folder {self._cache.directory} cannot be written, or others can: see the warning"
                )
            if self.mode not in ("fast", "strict"):
                # Look the problem up as another process will.
                resolve(replace(request, mode="strict"))
        except InterruptedSearchError:
            raise
        except (TilesmithError, OSError, MemoryError) as error:
            self._fail(signature, device, error, tell)
            return
        self._done(name, device)
        tell(Step(signature, device, READY, choice=choice))

    def _write_all(self, tell: Listener) -> None:
        root = Path(self._out) if self._out is not None else self._cache.directory / SOURCES
        target = self._target or target_of(None, self._threads)
        layers, only = open_databases(self._database, readonly=True), env.ONLY_SOLVER.get()
        distrusted = why_distrusted(root) or why_distrusted(root.parent) if self._out is None else None
        if distrusted is not None:
            raise FileFormatError(f"{root}: nothing is written there: {distrusted}")
        for signature in self.signatures:
            name = signature.get_func_name()
            try:
                choice, folder = write_sources(Request(signature, target, "fast", layers, self._cache, only), root)
            except (TilesmithError, OSError) as error:
                self._fail(signature, "", error, tell)
                continue
            self._done(name, "")
            tell(Step(signature, "", READY, choice=choice, folder=folder))

    def _done(self, name: str, device: str) -> None:
        self._ready.setdefault(name, set()).add(device)
        self._failures.get(name, {}).pop(device, None)
        if not self._failures.get(name, True):
            del self._failures[name]

    def _fail(self, signature: Signature, device: str, error: BaseException, tell: Listener) -> None:
        name = signature.get_func_name()
        reason = str(error) or type(error).__name__
        self._ready.get(name, set()).discard(device)
        self._failures.setdefault(name, {})[device] = reason
        tell(Step(signature, device, FAILED, reason))


def _wanted(request: Request) -> list[Option]:
    """The candidates that may need compiling: the known answer, else the defaults that will be measured."""
    if from_package(request) is not None:
        return []
    signature, target, mode, only = request.signature, request.target, request.mode, request.only
    options = options_of(signature, target)
    known = None if only else spec_choice(signature, target, options)
    if known is None and mode == "fast":
        known = decide(request)
    if known is None:
        found = choose(options, answers_of(request), mode=mode, only=only)
        known = found if isinstance(found, Choice) else None
    if known is not None:
        return [Option(option.candidate, known.config) for option in options if option.candidate.name == known.solver]
    accepted = [option for option in options if option.accepted]
    least = min((option.predicted_s or 0.0 for option in accepted), default=0.0)
    return [option for option in accepted if (option.predicted_s or 0.0) <= HOPELESS * least]
