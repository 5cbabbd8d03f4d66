"""Races against PyTorch's kernels on this CPU, remembered for later decisions.

A search on a GPU lets PyTorch's kernels compete and records who won. On a CPU a search knows ours alone, so the race
comes behind it: our launchable with its filter packed against every way of PyTorch, interleaved, on the same values.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch

from tilesmith.compare.kept_times import keep_times, kept_times, path_of_times
from tilesmith.dispatch.locations import open_cache
from tilesmith.problems.rewrite import Signature
from tilesmith.targets.target import Target
from tilesmith.toolchain.files import exclusive

ROUNDS, RACE_S = 9, 0.5
LOCK, PATIENCE_S = "race", 60.0  # seconds that a process waits for the race of another one, at most
_OURS = "ours"


def race(signature: Signature, target: Target) -> tuple[float, float] | None:
    """Microseconds of our kernel and of PyTorch's fastest way, remembered; None where PyTorch has none.

    Of the processes that share a cache folder one races at a time, because two would measure each other. A process that
    waited for a race of the same problem takes over its result.
    """
    root, path = _place(signature, target)
    asked = time.time()
    with exclusive(root, LOCK, PATIENCE_S):
        if _written_s(path) > asked:
            found = remembered_race(signature, target)
            if found is not None:
                return found
        return _race(signature, target)


def _written_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _race(signature: Signature, target: Target) -> tuple[float, float] | None:
    # Here: most processes ask for earlier results alone.
    from tilesmith.compare.rival import RIVALS, Setting
    from tilesmith.dispatch.launchable import get_launchable
    from tilesmith.dispatch.measuring import steady_call
    from tilesmith.measure.timing import interleave
    from tilesmith.problems.samples import sample_args, torch_args

    launch = get_launchable(signature, mode="fast")
    values = sample_args(signature, 0)
    (rival,) = (each for each in RIVALS if target.family in each.families)
    with rival.ways(Setting(signature, values, target)) as ways:
        calls = {_OURS: steady_call(launch, torch_args(values, "cpu")), **{way.name: way.calls[0] for way in ways}}
        if len(calls) == 1:
            return None
        timings = interleave(
            calls, budget_s=RACE_S, rounds=ROUNDS, threads=target.cores, patient=True,
            owners={name: "" if name == _OURS else "torch" for name in calls},
        )  # fmt: skip
    mine = timings.pop(_OURS).median_us
    found = mine, min(timing.median_us for timing in timings.values())
    _remember(signature, target, found)
    return found


def remembered_race(signature: Signature, target: Target) -> tuple[float, float] | None:
    """The result of an earlier race of this problem with this version of PyTorch."""
    found = kept_times(_place(signature, target)[1], 2)
    return None if found is None else (found[0], found[1])


def _remember(signature: Signature, target: Target, found: tuple[float, float]) -> None:
    keep_times(*_place(signature, target), found)


def _place(signature: Signature, target: Target) -> tuple[Path, Path]:
    root = Path(open_cache().directory)
    name = f"{signature.canonical.key()} {target.name} {torch.__version__}"
    return root, path_of_times(root, "races", name)
