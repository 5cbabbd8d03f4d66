"""Compiles the kernels of many drafts, each kernel once a session, on compilers that work while others measure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from tilesmith.errors import CompileError
from tilesmith.plan.records import Draft, Source
from tilesmith.targets.target import CpuTarget, Target
from tilesmith.toolchain.build import COMPILE_S, Toolchain, build_unit
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.toolchain.resources import KernelResources


class UnitBuilder:
    """``build`` and ``start`` may be called from one thread at a time; ``parallel`` is the number of compilers.

    A kernel that ``cache`` holds is not compiled again. C kernels share compiler calls. Those of a GPU have one each:
    a call costs a tenth of a second beside a compilation of half a second and more, and what is compiled alone is
    measured as soon as it is done, and is the very binary that the cache would hold (``keep``).
    """

    def __init__(
        self, folder: Path, target: Target, compiler: Toolchain, parallel: int, cache: ArtifactCache | None = None
    ) -> None:
        self._folder = folder
        self._target = target
        self._compiler = compiler
        self._parallel = parallel
        self._cache = cache
        self._pool = ThreadPoolExecutor(parallel)  # the work is done in processes
        self._units: dict[str, Path] = {}  # by symbol
        self._errors: dict[str, str] = {}
        self._work: dict[str, Future[None]] = {}
        self._alone: dict[str, tuple[Source, tuple[KernelResources, ...]]] = {}
        self._digests: dict[Path, str] = {}
        self._count = 0

    def close(self) -> None:
        """What waits for a compiler is dropped; those that run end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)

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
            and (source.symbol not in self._work or self._work[source.symbol].cancelled())
        }  # fmt: skip
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

    def digest(self, path: Path) -> str:
        """The sha256 (hex) of a unit."""
        if path not in self._digests:
            self._digests[path] = hashlib.sha256(path.read_bytes()).hexdigest()
        return self._digests[path]

    def keep(self, sources: Sequence[Source]) -> None:
        """Put binaries that were compiled here, each alone, into the cache."""
        for source in sources:
            if self._cache is not None and source.symbol in self._alone:
                text, resources = self._alone[source.symbol]
                if text == source:
                    self._cache.keep(source, self._target, self._compiler, self._units[source.symbol], resources)

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
        try:
            resources = build_unit(group, self._target, path, self._compiler, limit_s())
        except CompileError as error:
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

    def _next_path(self) -> Path:
        self._count += 1
        return self._folder / f"unit{self._count}.so"
