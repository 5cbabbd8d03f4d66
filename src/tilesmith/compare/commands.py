"""Commands in processes of their own, heard line by line, with a deadline."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress


def follow(
    command: Sequence[str], seconds: float, heard: Callable[[str], None], *, given: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:  # fmt: skip
    """Run a command to its end.

    Args:
        command: The program and its arguments.
        seconds: After these the command and everything that it began are killed.
        heard: Called with each line of its output, errors included.
        given: Its input.
        environment: Its variables; default those of this process.

    Returns:
        Its exit status, negative for a signal.

    Raises:
        subprocess.TimeoutExpired: It was killed for its time.
        OSError: It cannot be begun.
    """
    late = threading.Event()
    with subprocess.Popen(
        list(command), stdin=subprocess.PIPE if given is not None else subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        env=dict(environment) if environment is not None else None,
    ) as process:  # fmt: skip

        def end() -> None:
            late.set()
            _kill(process.pid)

        watch = threading.Timer(max(0.0, seconds), end)
        watch.daemon = True
        watch.start()
        try:
            if process.stdin is not None and given is not None:
                with suppress(BrokenPipeError):
                    process.stdin.write(given)
                    process.stdin.close()
            for line in process.stdout or ():
                heard(line.rstrip())
            status = process.wait()
        except BaseException:  # Ctrl-C: what the command has begun goes with it
            _kill(process.pid)
            raise
        finally:
            watch.cancel()
    if late.is_set():
        raise subprocess.TimeoutExpired(list(command), seconds)
    return status


def _kill(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
