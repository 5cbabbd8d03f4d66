"""Compiles the kernels of many drafts in few compiler calls, each kernel once a session."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tilesmith.errors import CompileError
from tilesmith.plan.records import Draft, Source
from tilesmith.targets.target import Target
from tilesmith.toolchain.build import COMPILE_S, Toolchain, build_unit
from tilesmith.toolchain.cache import ArtifactCache


class UnitBuilder:
    """``build`` may be called from one thread at a time; ``parallel`` is the number of compilers that it runs.

    A kernel that ``cache`` holds is not compiled again.
    """

    def __init__(
        self, folder: Path, target: Target, compiler: Toolchain, parallel: int, cache: ArtifactCache | None = None
    ) -> None:
        self._folder = folder
        self._target = target
        self._compiler = compiler
        self._parallel = parallel
        self._cache = cache
        self._units: dict[str, Path] = {}  # by symbol
        self._errors: dict[str, str] = {}
        self._digests: dict[Path, str] = {}
        self._count = 0

    def build(self, drafts: Sequence[Draft], limit_s: float = COMPILE_S) -> list[tuple[Path, ...] | str]:
        """For each draft its sources' binaries, or why one does not compile (within ``limit_s`` seconds)."""
        fresh = {
            source.symbol: source
            for draft in drafts
            for source in draft.sources
            if source.symbol not in self._units and source.symbol not in self._errors
        }
        sources = [source for source in fresh.values() if not self._take(source)]
        groups = [group for group in (sources[i :: self._parallel] for i in range(self._parallel)) if group]
        paths = [self._next_path() for _ in groups]
        if groups:
            with ThreadPoolExecutor(len(groups)) as pool:
                list(pool.map(self._build_group, groups, paths, [limit_s] * len(groups)))
        return [self._outcome(draft) for draft in drafts]

    def _take(self, source: Source) -> bool:
        """Copy a kernel from the cache; it stays here, whatever happens there."""
        held = self._cache.lookup(source, self._target, self._compiler) if self._cache is not None else None
        if held is None:
            return False
        path = self._next_path()
        try:
            shutil.copyfile(held.path, path)
        except OSError:
            return False
        self._units[source.symbol] = path
        return True

    def digest(self, path: Path) -> str:
        """The sha256 (hex) of a unit."""
        if path not in self._digests:
            self._digests[path] = hashlib.sha256(path.read_bytes()).hexdigest()
        return self._digests[path]

    def _outcome(self, draft: Draft) -> tuple[Path, ...] | str:
        for source in draft.sources:
            if source.symbol in self._errors:
                return self._errors[source.symbol]
        return tuple(self._units[source.symbol] for source in draft.sources)

    def _build_group(self, group: Sequence[Source], path: Path, limit_s: float) -> None:
        try:
            build_unit(group, self._target, path, self._compiler, limit_s)
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

    def _next_path(self) -> Path:
        self._count += 1
        return self._folder / f"unit{self._count}.so"
