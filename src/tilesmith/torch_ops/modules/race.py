"""PyTorch's own kernels against ours on a CPU: measured at the first call with each problem, and remembered.

One race at a time: a call that would begin another one meanwhile runs our kernel, and a later call measures. The times
are kept in the cache folder, so that later processes measure nothing. Their name says all that they depend on: the
problem as it lies, our kernel and what generated it, PyTorch's version and settings, and the number of threads.

On a GPU nothing is measured here (``tensors.find_mode`` says how kernels are found there). The find modes
``fast`` and ``strict`` never measure: then convolutions are ours, and linear layers PyTorch's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch

from tilesmith import env
from tilesmith.compare.kept_times import keep_times, kept_times, path_of_times
from tilesmith.dispatch.kept_calls import when_forgotten
from tilesmith.dispatch.launchable import Launchable
from tilesmith.dispatch.locations import open_cache
from tilesmith.toolchain.plans import maker_of

_FORMAT = "layer race 1"
_ROUNDS, _LEAST = 5, 2
_LONGEST_S = 0.1  # of one race: a slow problem gets fewer rounds, but more than one, because its times are kept
_LIMIT = 4096


@dataclass(frozen=True)
class Result:
    """The best times of one problem, in microseconds; ``x`` is the shape of the input."""

    x: tuple[int, ...]
    ours_us: float
    pytorchs_us: float

    @property
    def lost(self) -> bool:
        """Whether PyTorch's kernel runs the problem."""
        return self.pytorchs_us < self.ours_us

    def __str__(self) -> str:
        shape = "x".join(map(str, self.x))
        return f"{shape} in {self.ours_us:.0f} us, PyTorch's in {self.pytorchs_us:.0f} us"


_racing = threading.Lock()  # held by the thread that measures
_results: dict[Hashable, Result] = {}
_of_layers: WeakKeyDictionary[Any, dict[Hashable, Result]] = WeakKeyDictionary()
_since = 0.0  # times that were kept before are not used


def forget_races() -> None:
    """Measure again at the next calls, whatever earlier processes have kept."""
    global _since
    _since = time.time()
    _forget()


def _forget() -> None:
    """Know what a new process would know."""
    _results.clear()
    _of_layers.clear()


when_forgotten(_forget)


def results_of(layer: Any) -> tuple[Result, ...]:
    """What was measured for a layer."""
    return tuple(_of_layers.get(layer, {}).values())


def has_lost(layer: Any, key: Hashable) -> bool | None:
    """Whether PyTorch's kernel has won the race of a call with as many threads as now; None if there was none."""
    result = _of_layers.get(layer, {}).get((key, torch.get_num_threads()))
    return None if result is None else result.lost


def may_measure(layer: Any, x: torch.Tensor) -> bool:
    """Whether kernels race for this call: on a CPU, in evaluation, while nothing records or compiles."""
    return (
        x.device.type == "cpu"
        and not layer.training
        and not torch.compiler.is_compiling()
        and not torch.is_grad_enabled()
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._get_tracing_state() is None
        and torch._C._functorch.peek_interpreter_stack() is None
        and type(x) is torch.Tensor
        and env.FIND_MODE.get() not in ("fast", "strict")
    )


def run_faster(
    layer: Any, key: Hashable, x: torch.Tensor, ours: Callable[[], torch.Tensor], pytorchs: Callable[[], torch.Tensor],
    kernel: Callable[[], Launchable],
) -> torch.Tensor:  # fmt: skip
    """The result by the faster of the two.

    Args:
        key: Stands, with the number of threads, for all that times depend on in this process. Its ``repr`` says it.
        kernel: Gives what ``ours`` runs.
    """
    known = _of_layers.get(layer)
    if known is None:
        known = _of_layers.setdefault(layer, {})
    key = (key, torch.get_num_threads())
    result = known.get(key)
    if result is None:
        result = _results.get(key) or _raced(key, x, ours, pytorchs, kernel)
        if result is None:
            return ours()
        if len(known) >= _LIMIT:
            known.clear()
        known[key] = result
    return pytorchs() if result.lost else ours()


def _raced(
    key: Hashable, x: torch.Tensor, ours: Callable[[], torch.Tensor], pytorchs: Callable[[], torch.Tensor],
    kernel: Callable[[], Launchable],
) -> Result | None:  # fmt: skip
    """Measure both, or read the times that an earlier process has kept.

    None while another thread has one: two at once would measure each other.
    """
    if not _racing.acquire(blocking=False):
        return None
    try:
        result = _results.get(key)  # of a race that ended meanwhile
        if result is None:
            root, path = _place(key, kernel())
            result = _kept(path, x)
            if result is None:
                result = _race(x, ours, pytorchs)
                keep_times(root, path, (result.ours_us, result.pytorchs_us))
            if len(_results) >= _LIMIT:
                _results.clear()
            _results[key] = result
        return result
    finally:
        _racing.release()


def _place(key: Hashable, launch: Launchable) -> tuple[Path, Path]:
    """The cache folder, and where it has the times of this race."""
    root, choice = Path(open_cache().directory), launch.choice
    about = (
        _FORMAT, key, launch.signature.key(), choice.solver, choice.config, maker_of(launch.target), torch.__version__,
        torch.backends.cpu.get_cpu_capability(), torch._C._get_mkldnn_enabled(), torch.get_float32_matmul_precision(),
    )  # fmt: skip
    return root, path_of_times(root, "races", repr(about))


def _kept(path: Path, x: torch.Tensor) -> Result | None:
    """The times that an earlier process has kept."""
    try:
        if path.stat().st_mtime <= _since:
            return None
    except OSError:
        return None
    found = kept_times(path, 2)
    return None if found is None else Result(tuple(x.shape), *found)


def _race(x: torch.Tensor, ours: Callable[[], Any], pytorchs: Callable[[], Any]) -> Result:
    """Both in turns, so that a busy neighbour slows both; the first call of each makes what is kept."""
    calls, best = (ours, pytorchs), [float("inf")] * 2
    for call in calls:
        call()
    begin = time.perf_counter()
    for done in range(1, _ROUNDS + 1):
        for number, call in enumerate(calls):
            start = time.perf_counter()
            call()
            best[number] = min(best[number], time.perf_counter() - start)
        if done >= _LEAST and time.perf_counter() - begin > _LONGEST_S:
            break
    return Result(tuple(x.shape), best[0] * 1e6, best[1] * 1e6)
