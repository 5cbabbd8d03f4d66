"""The rivals that are known: those that come with the package, and those of other packages.

A package adds one by an entry point of the group ``tilesmith.rivals`` that names an object with the methods of
``rival.Rival``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

from tilesmith.compare.rival import Rival, Setting, Way
from tilesmith.errors import ArgumentError
from tilesmith.targets.target import Target


@dataclass(frozen=True)
class PyTorchRival:
    """One of them; ``module`` of this folder imports PyTorch."""

    name: str
    families: tuple[str, ...]
    module: str

    def is_here(self) -> bool:
        return find_spec("torch") is not None

    def version(self) -> str:
        return str(self._side().version(self.name))

    def ways(self, setting: Setting) -> AbstractContextManager[Sequence[Way]]:
        found: AbstractContextManager[Sequence[Way]] = self._side().ways(self.name, setting)
        return found

    def _side(self) -> Any:
        try:
            return import_module(f"tilesmith.compare.{self.module}")
        except ImportError as error:
            text = f"{self.name} is measured through PyTorch ({error}); install it: pip install torch"
            raise ArgumentError(text) from None


RIVALS = (
    PyTorchRival("onednn", ("cpu",), "onednn"),
    PyTorchRival("cudnn", ("cuda",), "cuda_libraries"),
    PyTorchRival("cublas", ("cuda",), "cuda_libraries"),
)


GROUP = "tilesmith.rivals"
_log = logging.getLogger("tilesmith.compare")


def rivals_of(target: Target) -> dict[str, Rival]:
    """By name, those that run on the target's family: the package's own, then those of entry points."""
    found: dict[str, Rival] = {rival.name: rival for rival in RIVALS}
    for entry in entry_points(group=GROUP):
        try:
            rival: Rival = entry.load()
            found[rival.name] = rival
        except Exception as error:  # whatever another package does when it is loaded
            _log.warning(
                "rival %s of %s cannot be loaded (%s: %s)", entry.name, entry.value, type(error).__name__, error
            )
    return {name: rival for name, rival in found.items() if target.family in rival.families}
