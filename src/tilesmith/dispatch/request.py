"""The request: one record that every step from a call to its plan takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tilesmith.db.layers import Layers
from tilesmith.db.store import Database
from tilesmith.dispatch.locations import DatabasePaths, open_databases
from tilesmith.problems.rewrite import Signature
from tilesmith.targets.target import Target
from tilesmith.toolchain.cache import ArtifactCache


@dataclass(frozen=True)
class Request:
    """A problem on a target, with all that its answer may depend on.

    ``databases`` are opened when they are first read. ``only`` names the one solver that may be used (empty: any).
    ``device`` is the ordinal of the CUDA device that measures. ``external`` says whether the kernels of other
    libraries take part.
    """

    signature: Signature
    target: Target
    mode: str
    databases: Layers | Database | DatabasePaths
    cache: ArtifactCache
    only: str = ""
    device: int = 0
    external: bool = False

    @property
    def strict(self) -> bool:
        """Nothing is compiled, measured or written."""
        return self.mode == "strict"

    @cached_property
    def layers(self) -> Layers:
        return open_databases(self.databases, readonly=self.strict)

    @property
    def problem(self) -> str:
        """The key of databases and of the cache."""
        return self.signature.canonical.key()
