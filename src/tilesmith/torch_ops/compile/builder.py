"""Compiles the kernels of a graph in the background, while Inductor compiles the rest."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from tilesmith.dispatch.launchable import get_launchable
from tilesmith.errors import TilesmithError
from tilesmith.problems.rewrite import Signature
from tilesmith.targets.detect import usable_cores

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_jobs: dict[tuple[Signature, str, str], Future[None]] = {}
_log = logging.getLogger("tilesmith.compile")


def prepare_kernels(signatures: Iterable[Signature], device: str, mode: str) -> None:
    """Begin to compile and load the kernels; a call that needs one earlier waits for it alone."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(max_workers=usable_cores(), thread_name_prefix="tilesmith-compile")
        for signature in signatures:
            key = (signature, device, mode)
            if key not in _jobs:
                _jobs[key] = _pool.submit(_prepare, signature, device, mode)


def wait_for_kernels(seconds: float) -> bool:
    """Wait until every kernel that was begun is here; False if the time is over before."""
    from concurrent.futures import wait

    with _lock:
        jobs = list(_jobs.values())
    return not wait(jobs, seconds).not_done


def _prepare(signature: Signature, device: str, mode: str) -> None:
    try:
        get_launchable(signature, device=None if device == "cpu" else device, mode=mode)
    except TilesmithError as error:
        _log.warning("%s: %s", signature.key(), error)
