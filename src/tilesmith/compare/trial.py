"""Rivals that are tried in a process of their own before they are measured: one that crashes or hangs costs itself.

    python -m tilesmith.compare.trial RIVAL KEY DEVICE THREADS

What a trial compiles or finds is kept by the rival; the process that measures calls only what has run once. A rival
that knows which of its kernels hung says so (``HungError``): its trial is held again without that one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from tilesmith import env
from tilesmith.compare.commands import follow
from tilesmith.compare.rival import HungError, Rival, Setting, TriedRival, rivals_of
from tilesmith.dispatch.locations import target_of
from tilesmith.errors import TilesmithError, shortened
from tilesmith.problems.keys import parse_key
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.samples import sample_args
from tilesmith.targets.cuda_driver import device_ordinal
from tilesmith.targets.target import CudaTarget, Target
from tilesmith.toolchain.python_process import child_environment

Tell = Callable[[str], None]
_TOLD = "tell: "
HUNG = 75  # exit status of a trial in which a kernel did not end


def quiet(line: str) -> None:
    """Tells nobody."""


def untried(rivals: Sequence[Rival], signature: Signature, target: Target, ordinal: int, tell: Tell) -> dict[str, str]:
    """Try every rival that has not been tried on a problem.

    Args:
        rivals: The rivals.
        signature: The problem.
        target: Where it runs.
        ordinal: Of a CUDA device.
        tell: Called with lines of progress.

    Returns:
        Those that cannot be measured, by name, with the reason.
    """
    found = {}
    for rival in rivals:
        try:
            tries = isinstance(rival, TriedRival) and rival.needs_trial(signature, target)
            reason = _try_alone(rival.name, signature, target, ordinal, tell) if tries else ""
        except TilesmithError as error:
            reason = str(error)
        if reason:
            found[rival.name] = reason
    return found


def _try_alone(name: str, signature: Signature, target: Target, ordinal: int, tell: Tell) -> str:
    """Why the rival cannot be measured; empty if it can."""
    seconds = env.RIVAL_SECONDS.get()
    on_gpu = isinstance(target, CudaTarget)
    where = [f"cuda:{ordinal}", "0"] if on_gpu else ["cpu", str(target.cores)]
    last = ""

    def heard(line: str) -> None:
        nonlocal last
        if line.startswith(_TOLD):
            tell(line.removeprefix(_TOLD))
        else:
            last = line.strip() or last

    command = [sys.executable, "-m", "tilesmith.compare.trial", name, signature.key(), *where]
    until, status = time.monotonic() + seconds, HUNG
    try:
        while status == HUNG:
            status = follow(command, max(1.0, until - time.monotonic()), heard, environment=child_environment())
            if status == HUNG:
                tell(last)
    except subprocess.TimeoutExpired:
        return f"its trial took more than {seconds:.0f} s (TILESMITH_RIVAL_SECONDS)"
    if status == 0:
        return ""
    how = f"{signal.Signals(-status).name} in its trial" if status < 0 else "its trial failed"
    return shortened(f"{how}: {last}" if last else how)


def main(name: str, key: str, device: str, threads: int) -> None:
    """Try one rival on one problem."""
    target = target_of(None, threads or None, device)
    signature, rival = parse_key(key).canonical, rivals_of(target)[name]
    assert isinstance(rival, TriedRival)

    def tell(line: str) -> None:
        print(f"{_TOLD}{line}", flush=True)

    values = sample_args(signature)
    if not isinstance(target, CudaTarget):
        rival.trial(Setting(signature, values, target), None, tell)
        return
    from tilesmith.runtime.device import Stream
    from tilesmith.runtime.device import device as place_of
    from tilesmith.solvers.external.library import on_stream, uses_tf32

    ordinal = max(0, device_ordinal(device))
    stream = Stream(place_of(ordinal))
    with on_stream(ordinal, stream.handle, uses_tf32(signature)):
        rival.trial(Setting(signature, values, target, ordinal, stream.handle), stream, tell)
    stream.synchronize()


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
    except HungError as error:
        print(error, flush=True)
        os._exit(HUNG)  # the interpreter's own end waits for the device
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}")
