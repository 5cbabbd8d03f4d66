"""All checks of one plan in a process that may die of it."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from tilesmith.errors import LaunchError
from tilesmith.measure.accuracy import Accuracy
from tilesmith.measure.oracle import Oracle, write_oracle
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.work import flops
from tilesmith.targets.detect import usable_cores
from tilesmith.toolchain.files import scratch
from tilesmith.tune.messages import Refused, Verified, Verify
from tilesmith.tune.process import WorkerDiedError, Workers

_CPU: Final = -1
_LEAST_S: Final = 120.0  # for all checks of a small problem on a busy machine
_RUNS: Final = 60  # of the slowest kernel that is one (0.1 GFLOP/s), and the oracles


def verify_apart(
    plan: bytes, artifacts: Sequence[Path], signature: Signature, seed: int = 0, truth: Oracle | None = None,
    specials: bool = False,
) -> Accuracy:  # fmt: skip
    """``measure.host_check.verify_plan`` of a CPU plan for a canonical problem.

    Raises ``LaunchError`` where the plan cannot be loaded, crashes, or does not end.
    """
    limit_s = _LEAST_S + _RUNS * flops(signature) / 1e8
    with scratch() as folder:
        path = folder / "oracle.npz"
        if truth is not None:
            write_oracle(path, truth)
        request = Verify(
            signature.key(), seed, plan, tuple(map(str, artifacts)), str(path) if truth is not None else "", specials
        )
        workers = _workers()
        worker = workers.take(_CPU)
        try:
            worker.send(request)
            reply = worker.receive(limit_s)
        except WorkerDiedError as death:
            worker.kill()
            raise LaunchError(f"the kernel {death}") from None
        except BaseException:
            worker.kill()  # it owes a reply
            raise
    workers.give(_CPU, worker)
    if isinstance(reply, Refused):
        raise LaunchError(reply.reason)
    assert isinstance(reply, Verified)
    return Accuracy(reply.ok, reply.error, reply.bound, reply.worst_index, reply.message)


@lru_cache(maxsize=1)
def _workers() -> Workers:
    """Those of this process: one for each core at most, so that several threads find one each."""
    found = Workers(usable_cores())
    atexit.register(found.close)
    return found
