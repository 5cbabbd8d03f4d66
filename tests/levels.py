"""Which targets the tests of kernels run on: every level that this processor has, up to ``TILESMITH_CPU_LEVEL``.

Each level has the caches of its record, not this machine's, so that a kernel's text is the same wherever it is tested.
"""

from __future__ import annotations

from collections import Counter

from tilesmith.env import CPU_LEVELS
from tilesmith.targets.cpu import CPU_TARGETS, archs_within
from tilesmith.targets.detect import hidden_arch, host_target

HERE = tuple(CPU_TARGETS[arch] for arch in archs_within(host_target(1).arch))
HIGHEST = HERE[-1]


def told(ran: Counter[str]) -> str:
    """One line for the end of a run: the levels with the number of their tests, and those that were left out."""
    counts = [f"{target.arch} {ran[target.arch]}" for target in HERE]
    absent = [arch for arch in CPU_LEVELS if arch not in {target.arch for target in HERE}]
    why = "TILESMITH_CPU_LEVEL leaves them out" if hidden_arch() else "this processor lacks them"
    return f"tests by level: {', '.join(counts)}" + (f"; none for {', '.join(absent)}: {why}" if absent else "")
