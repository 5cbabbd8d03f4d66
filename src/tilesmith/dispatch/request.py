"""``Request``: the argument of every step from a call to its plan."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tilesmith.db.layers import Layers
from tilesmith.db.store import Database
from tilesmith.dispatch.locations import DatabasePaths, open_databases
from tilesmith.dispatch.packages import NONE, Packages
from tilesmith.problems.rewrite import Signature
from tilesmith.targets.target import Target
from tilesmith.toolchain.cache import ArtifactCache


@dataclass(frozen=True)
class Request:
    """A problem on a target, with everything that its answer depends on.

    ``databases`` are opened when they are first read. ``only`` names the one solver that may be used (empty: any).
    ``device`` is the ordinal of the CUDA device that measures. ``external`` says whether kernels of other
    libraries compete. ``packages`` are asked for plans, below team and user databases and above installed ones.
    ``frozen`` says that the filter is packed once for many calls; else the time to pack it counts.
    """

    signature: Signature
    target: Target
    mode: str
    databases: Layers | Database | DatabasePaths
    cache: ArtifactCache
    only: str = ""
    device: int = 0
    external: bool = False
    packages: Packages = NONE
    frozen: bool = True

    @property
    def strict(self) -> bool:
        """True if nothing may be compiled, measured or written."""
        return self.mode == "strict"

    @cached_property
    def layers(self) -> Layers:
        return open_databases(self.databases, readonly=self.strict)

    @property
    def problem(self) -> str:
        """The problem's key in the databases and the cache."""
        return self.signature.canonical.key()
