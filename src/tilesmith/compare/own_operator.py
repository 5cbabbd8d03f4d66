"""The time of PyTorch's own operator for a problem, on tensors that lie as the problem's do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tilesmith.compare.kept_times import keep_times, kept_times, path_of_times
from tilesmith.compare.rival import RIVALS, Setting, Way
from tilesmith.loading import import_whole
from tilesmith.measure.device_bench import device_bench
from tilesmith.measure.memory import keep_freed_memory
from tilesmith.measure.timing import Timing, interleave
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.samples import sample_args
from tilesmith.targets.target import CudaTarget, Target
from tilesmith.toolchain.cache import ArtifactCache

SECONDS, ROUNDS = 0.2, 9
# NOTE: another process on one of the cores makes PyTorch's threads wait for each other: 67 ms were measured for 0.3 ms.
ATTEMPTS = 3


def remembered_operator(signature: Signature, target: Target, cache: ArtifactCache) -> float | None:
    """Microseconds that an earlier process measured with this version of PyTorch; nothing is loaded for it."""
    place = _place(signature, target, cache)
    found = None if place is None else kept_times(place[1], 1)
    return None if found is None else found[0]


def remember_operator(signature: Signature, target: Target, cache: ArtifactCache, time_us: float) -> None:
    """Keep a time for ``remembered_operator``."""
    place = _place(signature, target, cache)
    if place is not None:
        keep_times(*place, [time_us])


def _place(signature: Signature, target: Target, cache: ArtifactCache) -> tuple[Path, Path] | None:
    try:
        name = f"{signature.canonical.key()} {target.name} {version('torch')}"
    except PackageNotFoundError:
        return None
    root = Path(cache.directory)
    return root, path_of_times(root, "pytorch", name)


def load_pytorch(target: Target) -> None:
    """Load PyTorch, if it is installed, so that no later measurement waits for it."""
    if find_spec("torch") is None:
        return
    torch = import_whole("torch")
    if isinstance(target, CudaTarget) and torch.cuda.is_available():
        torch.cuda.init()


def time_own_operator(signature: Signature, target: Target, cache: ArtifactCache, ordinal: int = 0) -> Timing | None:
    """Time what a PyTorch program calls for this problem; its numbers are not checked.

    None if PyTorch is not installed, has no operator for the problem, or was disturbed by other processes all the time.
    Of PyTorch's CUDA libraries the faster counts.
    """
    if find_spec("torch") is None:
        return None
    import_whole("torch")
    if isinstance(target, CudaTarget):
        return _time_on_device(signature.canonical, target, cache, ordinal)
    keep_freed_memory()
    with ExitStack() as held:
        ways = _ways(held, Setting(signature, sample_args(signature), target))
        calls: dict[str, Callable[[], Any]] = {way.name: way.calls[0] for way in ways}
        for _ in range(ATTEMPTS if calls else 0):
            timing = _fastest(interleave(calls, budget_s=SECONDS, rounds=ROUNDS, threads=target.cores, patient=True))
            if timing is not None and timing.disturbed <= timing.samples / 2:
                return timing
    return None


def _time_on_device(signature: Signature, target: CudaTarget, cache: ArtifactCache, ordinal: int) -> Timing | None:
    import torch

    if not torch.cuda.is_available():  # a build for CPUs alone
        return None
    values = sample_args(signature)
    place = device_bench(signature, values, target, cache, ordinal)
    setting = Setting(signature, values, target, ordinal, place.checker.stream.handle, place.calls)
    with ExitStack() as held:
        calls = {way.name: _on_row(way) for way in _ways(held, setting)}
        return _fastest(place.time(calls, budget_s=SECONDS, rounds=ROUNDS)) if calls else None


def _ways(held: ExitStack, setting: Setting) -> list[Way]:
    """The ways of a program that prepares nothing: of each library one."""
    found = []
    for rival in RIVALS:
        if setting.target.family in rival.families:
            way = own_way(setting.signature, held.enter_context(rival.ways(setting)))
            found += [] if way is None else [way]
    return found


def own_way(signature: Signature, ways: Sequence[Way]) -> Way | None:
    """The way that PyTorch takes for tensors that lie as the signature says, with the filter as it lies."""
    if isinstance(signature, GemmSignature):
        wanted = ["linear", "mm"] if signature.epilogue.bias else ["mm"]
    else:
        form = "channels_last" if signature.input_layout.endswith("C") else "contiguous"
        wanted = [f"backward {form}", form] if signature.mode == "bwd" else [form]
    named = {way.name: way for way in ways}
    return next((named[name] for name in wanted if name in named), ways[0] if ways else None)


def _on_row(way: Way) -> Callable[[int], Any]:
    return lambda place: way.calls[place]()


def _fastest(timings: dict[str, Timing]) -> Timing | None:
    return min(timings.values(), key=lambda timing: timing.median_us) if timings else None
