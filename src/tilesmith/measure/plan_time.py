"""The time of a plan's ``run`` on sample arguments, its filter packed before: what records hold."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tilesmith.measure.arrays import aligned_arrays
from tilesmith.measure.device_bench import DeviceBench
from tilesmith.measure.device_oracle import device_oracle
from tilesmith.measure.oracle import Oracle
from tilesmith.measure.timing import Timing, interleave
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.samples import sample_args
from tilesmith.runtime.executable import Executable
from tilesmith.targets.target import CudaTarget, Target
from tilesmith.toolchain.cache import ArtifactCache

FILTER = 1  # which argument is the filter: what ``prepare`` packs


def time_plan(
    executable: Executable, signature: Signature, target: Target, cache: ArtifactCache, ordinal: int = 0, *,
    budget_s: float = 0.5, rounds: int = 21, seed: int = 0,
) -> Timing:  # fmt: skip
    """The median time of a plan of ``signature``, on the CUDA device ``ordinal`` for a target of that family."""
    problem = signature.canonical
    values = sample_args(problem, seed)
    if isinstance(target, CudaTarget):
        bench = device_bench(problem, values, target, cache, ordinal)
        return bench.time({"": bench.timed.plan(executable).run}, budget_s=budget_s, rounds=rounds)[""]
    arrays = aligned_arrays(problem, values)
    packed = executable.prepare(arrays[FILTER]) if executable.prepares else None
    call = executable.hold(arrays, packed)
    return interleave({"ours": call}, budget_s=budget_s, rounds=rounds, threads=target.cores)["ours"]


def device_bench(
    problem: Signature, values: tuple[Any, ...], target: CudaTarget, cache: ArtifactCache, ordinal: int,
    truth: Oracle | None = None,
) -> DeviceBench:  # fmt: skip
    """A canonical problem on its device; ``truth`` is the oracle's answer for ``values`` (default: found there)."""
    find: Callable[[], Oracle] = partial(device_oracle, problem, values, target, ordinal, cache)
    return DeviceBench(problem, values, find if truth is None else truth, target, ordinal, cache)
