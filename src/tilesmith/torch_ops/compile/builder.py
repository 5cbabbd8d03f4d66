"""Compiles kernels in the background: those of a graph while Inductor compiles the rest, and a layer's gradients."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from tilesmith.dispatch.background import ahead
from tilesmith.dispatch.launchable import get_launchable
from tilesmith.dispatch.locations import target_of
from tilesmith.errors import TilesmithError
from tilesmith.problems.rewrite import Signature
from tilesmith.targets.detect import usable_cores
from tilesmith.torch_ops.compile.decide import request_of

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_jobs: dict[tuple[Signature, str, str, bool], Future[None]] = {}
_begun: set[Future[None]] = set()  # and not done
_log = logging.getLogger("tilesmith.compile")


def prepare_kernels(signatures: Iterable[Signature], device: str, mode: str, packed: bool) -> None:
    """Begin to compile and load the kernels; a call that needs one earlier waits for it alone.

    Args:
        signatures: Of the graph's problems.
        device: ``"cpu"`` or ``"cuda:N"``.
        mode: In which the calls find kernels.
        packed: Whether the calls have their filters packed once, as ``Decider`` is told.
    """
    with _lock:
        pool = _threads()
        for signature in signatures:
            key = (signature, device, mode, packed)
            if key not in _jobs:
                _jobs[key] = pool.submit(_prepare, *key)


def begin(work: Callable[[], object]) -> Future[None]:
    """Call a function that finds and compiles kernels; what it raises, the call that needs them raises again."""

    def run() -> None:
        try:
            work()
        except TilesmithError as error:
            _log.info("%s", error)

    with _lock:
        job = _threads().submit(run)
        _begun.add(job)
    job.add_done_callback(_begun.discard)
    return job


def _threads() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(max_workers=usable_cores(), thread_name_prefix="tilesmith-compile")
    return _pool


def wait_for_kernels(seconds: float) -> bool:
    """Wait until all that was begun is done; False if the time is over before."""
    from concurrent.futures import wait

    with _lock:
        jobs = [*_jobs.values(), *_begun]
    return not wait(jobs, seconds).not_done


def _prepare(signature: Signature, device: str, mode: str, packed: bool) -> None:
    try:
        if ahead.runs():  # this thread waits, and leaves the interpreter to others
            ahead.build_ahead(request_of(signature, target_of(None, None, device), mode, packed)).result()
        get_launchable(signature, device=None if device == "cpu" else device, mode=mode, frozen=packed)
    except TilesmithError as error:
        _log.warning("%s: %s", signature.key(), error)
