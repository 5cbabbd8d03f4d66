"""Compiles the kernels of many drafts, each kernel once a session, on compilers that work while others measure."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from tilesmith.errors import CompileError
from tilesmith.plan.records import Draft, Source
from tilesmith.targets.target import CpuTarget, Target
from tilesmith.toolchain.build import COMPILE_S, SlowCompilerError, build_unit
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.toolchain.processes import Processes
from tilesmith.toolchain.resources import KernelResources
from tilesmith.toolchain.toolchains import Toolchain
from tilesmith.tune.clock import Clock, TimeOverError

COLD_S = 30.0  # of compilers that begin before the first has ended
SLOW_TIMES = 4  # as long as the fastest compilation: a kernel that takes longer is too slow where all are slow


class UnitBuilder:
    """``build`` and ``start`` may be called from one thread at a time; ``parallel`` is the number of compilers.

    No compiler begins or is waited for beyond ``clock``. A kernel whose compiler had ``slow_s`` seconds and did not end
    has failed; of one that had less nothing is known. Where other work slows all compilers they have more
    (``SLOW_TIMES``), and those that begin before the first has ended have ``COLD_S``: on a fresh machine they all read
    the compiler's library from the disk at once, which took more than 5 s on one with 64 cores.

    A kernel that ``cache`` holds is not compiled again. C kernels share compiler calls. Those of a GPU have one each:
    a call costs a tenth of a second beside a compilation of half a second and more, and what is compiled alone is
    measured as soon as it is done, and is the very binary that the cache would hold (``keep``).
    """

    def __init__(
        self, folder: Path, target: Target, compiler: Toolchain, parallel: int, cache: ArtifactCache | None = None,
        clock: Clock | None = None, slow_s: float = COMPILE_S,
    ) -> None:  # fmt: skip
        self._folder = folder
        self._target = target
        self._compiler = compiler
        self._parallel = parallel
        self._cache = cache
        self.clock = clock or Clock()
        self._slow_s = slow_s
        self._processes = Processes()
        #: Seconds of the shortest compilation so far.
        self.least_s = math.inf
        self._pool = ThreadPoolExecutor(parallel)  # the work is done in processes
        self._units: dict[str, Path] = {}  # by symbol
        self._errors: dict[str, str] = {}
        self._cut: set[str] = set()  # for which there was no time: nothing is known of them
        self._work: dict[str, Future[None]] = {}
        self._alone: dict[str, tuple[Source, tuple[KernelResources, ...]]] = {}
        self._paths_alone: dict[str, Path] = {}
        self._digests: dict[Path, str] = {}
        self._count = 0

    def close(self) -> None:
        """Drops the units that wait for a compiler, and ends the compilers that run."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._processes.end()

    def build(self, drafts: Sequence[Draft], limit_s: float = COMPILE_S) -> list[tuple[Path, ...] | str]:
        """For each draft its sources' binaries, or why one does not compile (within ``limit_s`` seconds)."""
        for work in self.start(drafts, lambda: limit_s):
            wait(work)
        return [self.outcome(draft) for draft in drafts]

    def start(self, drafts: Sequence[Draft], limit_s: Callable[[], float]) -> list[list[Future[None]]]:
        """Begin to compile; for each draft what to wait for before its ``outcome``.

        ``limit_s`` is asked when a compiler starts.
        """
        fresh = {
            source.symbol: source
            for draft in drafts
            for source in draft.sources
            if source.symbol not in self._units and source.symbol not in self._errors
            and (source.symbol not in self._work or self._work[source.symbol].cancelled() or source.symbol in self._cut)
        }  # fmt: skip
        self._cut -= fresh.keys()
        sources = [source for source in fresh.values() if not self._take(source)]
        count = self._parallel if isinstance(self._target, CpuTarget) else max(1, len(sources))
        for group in (sources[i::count] for i in range(count)):
            if group:
                work = self._pool.submit(self._build_group, group, self._next_path(), limit_s)
                self._work.update(dict.fromkeys((source.symbol for source in group), work))
        return [[self._work[s.symbol] for s in draft.sources if s.symbol in self._work] for draft in drafts]

    def outcome(self, draft: Draft) -> tuple[Path, ...] | str:
        """The binaries of a draft that is compiled, or why there are none."""
        for source in draft.sources:
            if source.symbol in self._errors:
                return self._errors[source.symbol]
            if source.symbol not in self._units:
                return self._trouble(source)
        return tuple(self._units[source.symbol] for source in draft.sources)

    @property
    def patience_s(self) -> float:
        """Seconds after which a compiler that begins now is too slow."""
        return max(self._slow_s, COLD_S if math.isinf(self.least_s) else SLOW_TIMES * self.least_s)

    @property
    def has_cut(self) -> bool:
        """Whether something was not compiled because there was no time."""
        return bool(self._cut)

    def is_cut(self, draft: Draft | str) -> bool:
        """Whether there was no time to compile a draft: that says nothing about it."""
        return isinstance(draft, Draft) and any(source.symbol in self._cut for source in draft.sources)

    def digest(self, path: Path) -> str:
        """The sha256 (hex) of a unit."""
        if path not in self._digests:
            self._digests[path] = hashlib.sha256(path.read_bytes()).hexdigest()
        return self._digests[path]

    def keep(self, sources: Sequence[Source]) -> None:
        """Put binaries, each compiled alone, into the cache; what a compiler refuses is left to the cache to tell.

        Raises ``TimeOverError`` where there is no time to compile them.
        """
        cache = self._cache
        if cache is None:
            return
        held = {symbol: source for symbol, (source, _) in self._alone.items()}
        missing = [
            source for source in dict.fromkeys(sources)
            if held.get(source.symbol) != source and cache.lookup(source, self._target, self._compiler) is None
        ]  # fmt: skip
        for work in [self._pool.submit(self._build_alone, source, self._next_path()) for source in missing]:
            if not wait([work], self.clock.timeout).done:
                raise TimeOverError
            work.result()
        for source in sources:
            text, resources = self._alone.get(source.symbol, (None, ()))
            if text == source:
                path = self._paths_alone[source.symbol]
                cache.keep(source, self._target, self._compiler, path, resources)

    def _build_alone(self, source: Source, path: Path) -> None:
        try:
            resources = self._compile([source], path, self.clock.left_s())
        except SlowCompilerError:
            if self.clock.over:
                raise TimeOverError from None
            return
        except CompileError:
            return
        self._alone[source.symbol], self._paths_alone[source.symbol] = (source, resources), path

    def _trouble(self, source: Source) -> str:
        """Why a compilation that is over has left nothing."""
        work = self._work.get(source.symbol)
        error = work.exception() if work is not None and work.done() and not work.cancelled() else None
        return f"{source.symbol} was not compiled: {error or 'the search ended'}"

    def _take(self, source: Source) -> bool:
        """Copy a kernel from the cache; it stays here, whatever happens there."""
        held = self._cache.lookup(source, self._target, self._compiler) if self._cache is not None else None
        if held is None:
            return False
        path = self._next_path()
        try:
            path.write_bytes(held.data)
        except OSError:
            return False
        self._units[source.symbol] = path
        return True

    def _build_group(self, group: Sequence[Source], path: Path, limit_s: Callable[[], float]) -> None:
        patience, limit = self.patience_s, min(limit_s(), self.clock.left_s())
        try:
            resources = self._compile(group, path, limit)
        except CompileError as error:
            if isinstance(error, SlowCompilerError) and (limit < patience or self.clock.over):
                self._cut.update(source.symbol for source in group)
                return
            if len(group) == 1:
                self._errors[group[0].symbol] = str(error)
                return
            # One bad kernel must not cost the others.
            for number, source in enumerate(group):
                self._build_group([source], path.with_name(f"{path.stem}-{number}.so"), limit_s)
            return
        for source in group:
            self._units[source.symbol] = path
        if len(group) == 1:
            self._alone[group[0].symbol] = group[0], resources
            self._paths_alone[group[0].symbol] = path

    def _compile(self, group: Sequence[Source], path: Path, limit_s: float) -> tuple[KernelResources, ...]:
        if limit_s <= 0:
            raise SlowCompilerError("there is no time left to compile it")
        began = time.monotonic()
        with self._processes:
            resources = build_unit(group, self._target, path, self._compiler, min(limit_s, COMPILE_S))
        self.least_s = min(self.least_s, time.monotonic() - began)
        return resources

    def _next_path(self) -> Path:
        self._count += 1
        return self._folder / f"unit{self._count}.so"
