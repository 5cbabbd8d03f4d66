"""The race of all ways of a rival to compute a problem on a GPU, whose order is kept for later processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from tilesmith.compare.bench_records import FOREIGN_TOLERANCE, NEAR
from tilesmith.compare.places import keep, read_kept
from tilesmith.compare.rival import HungError
from tilesmith.errors import LaunchError
from tilesmith.measure.device_flush import WAIT_CYCLES, Flush
from tilesmith.measure.device_timing import interleave_on_device
from tilesmith.runtime.device import Event, Stream
from tilesmith.targets.target import CudaTarget

FASTEST = 4  # of a contest, which run beside ours
ROUNDS = 3
RACE_S = 30.0
# Ways that a few calls show to be this much slower than the fastest one are not raced, nor more than so many: a library
# has hundreds for a small product.
HOPELESS, MOST, QUICK_CALLS = 1.6, 32, 3
HANGS_S = 20.0  # after which a call counts as one that never ends

Compute = Callable[[], torch.Tensor]


def hold_contest(
    path: Path, makers: Mapping[str, Callable[[], Compute | None]], truth: torch.Tensor, stream: Stream,
    target: CudaTarget, **more: object,
) -> tuple[list[tuple[str, float]], list[str]]:  # fmt: skip
    """``contest``, whose order is kept in the file ``path``, with ``more`` for readers.

    A call that hung in a process before, as the file says, is left out, and counts as one that fails.

    Raises:
        HungError: A call hung. The file says which, and the caller's process should end.
    """
    hung = list((read_kept(path) or {}).get("hung", ()))
    try:
        order, wrong = contest({name: make for name, make in makers.items() if name not in hung}, truth, stream, target)
    except HungError as error:
        keep(path, {"hung": [*hung, error.name]})
        raise
    wrong += [name for name in makers if name in hung]
    keep(path, {"order": order, "wrong": wrong, **({"hung": hung} if hung else {}), **more})
    return order, wrong


def contest(
    makers: Mapping[str, Callable[[], Compute | None]], truth: torch.Tensor, stream: Stream, target: CudaTarget
) -> tuple[list[tuple[str, float]], list[str]]:
    """Race calls that compute the same product.

    Args:
        makers: By name what makes a call, or None where it does not compute the product.
        truth: The product.
        stream: Where the calls are queued.
        target: The device.

    Returns:
        Names and microseconds of those with right numbers that were raced (``worth_racing``), the fastest first; and
        names of those that fail.

    Raises:
        LaunchError: One of them took the device's context along, so that nothing is known of those behind it.
        HungError: One of them did not end within ``HANGS_S``; it has its name.
    """
    calls: dict[str, Compute] = {}
    quick: dict[str, float] = {}
    wrong = []
    flush = Flush(stream.device, target.l2_bytes, target.cores)
    for name, make in makers.items():
        try:
            call = make()
            right = True
            if call is not None:
                found = call()
                _require_end(stream, name)
                right = is_near(found, truth)
            if right and call is not None:
                quick[name], calls[name] = _quick_us(call, stream, flush, name), call
        except HungError:
            raise
        except Exception:  # a compiler's, or the device's
            right = False
            _require_context(stream, name)
        if not right:
            wrong.append(name)
    if not calls:
        return [], wrong
    timings = interleave_on_device(
        {name: _on_row(calls[name]) for name in worth_racing(quick)}, stream, flush, calls=1,
        budget_s=RACE_S, rounds=ROUNDS, drop_ratio=NEAR,
    )  # fmt: skip
    order = sorted(timings, key=lambda name: timings[name].median_us)
    return [(name, timings[name].median_us) for name in order], wrong


def _require_context(stream: Stream, name: str) -> None:
    try:
        stream.synchronize()
    except LaunchError as error:
        raise LaunchError(f"{name} took the device's context along: {error}") from None


def _require_end(stream: Stream, name: str) -> None:
    """Wait for what is queued."""
    end, until = Event(stream.device), time.monotonic() + HANGS_S
    end.record(stream)
    while not end.passed:
        if time.monotonic() > until:
            raise HungError(f"{name} did not end within {HANGS_S:.0f} s", name)
        time.sleep(0.0002)


def kept_order(path: Path) -> list[str] | None:
    """The names of the fastest of a contest; None if it was not held."""
    held = read_kept(path)
    try:
        return [str(name) for name, _ in held["order"][:FASTEST]]
    except (TypeError, KeyError, ValueError):
        return None


def is_near(found: torch.Tensor, truth: torch.Tensor) -> bool:
    """Whether a result is that of the same product; NaN is not."""
    worst = (found.float() - truth.float()).abs().amax()
    return bool(worst <= FOREIGN_TOLERANCE * truth.float().abs().amax())


def worth_racing(quick_us: Mapping[str, float]) -> list[str]:
    """The ways that may be the fastest, by microseconds of a few calls."""
    least = min(quick_us.values())
    near = [name for name, us in quick_us.items() if us <= HOPELESS * least]
    return sorted(near, key=quick_us.__getitem__)[:MOST]


def _quick_us(call: Compute, stream: Stream, flush: Flush, name: str) -> float:
    begin, end = Event(stream.device), Event(stream.device)
    flush.queue(stream, WAIT_CYCLES)  # the host queues the calls meanwhile
    begin.record(stream)
    held = [call() for _ in range(QUICK_CALLS)]
    end.record(stream)
    _require_end(stream, name)
    del held
    return end.microseconds_since(begin) / QUICK_CALLS


def _on_row(call: Compute) -> Callable[[int], torch.Tensor]:
    return lambda place: call()
