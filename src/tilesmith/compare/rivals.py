"""The rivals that are known: those that come with the package, and those of other packages.

A package adds one by an entry point of the group ``tilesmith.rivals`` that names an object with the methods of
``rival.Rival``.
"""

from __future__ import annotations

import logging
from importlib.metadata import entry_points

from tilesmith.compare.pytorch import RIVALS
from tilesmith.compare.rival import Rival
from tilesmith.targets.target import Target

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
