"""The process that works beside the program: one job for each line of stdin, one answer for each on stdout.

It ends with its stdin, at once: whoever asked is gone then.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from dataclasses import replace
from typing import IO, Any

from tilesmith.dispatch import resolve
from tilesmith.dispatch.locations import DatabasePaths, open_cache
from tilesmith.dispatch.request import Request
from tilesmith.errors import InterruptedSearchError
from tilesmith.problems.keys import parse_key
from tilesmith.targets.target import target_from


def main() -> None:
    """Read problems and record their answers until stdin ends."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever is printed here is no answer
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_read, args=(sys.stdin.buffer, lines), daemon=True).start()
    try:
        while line := lines.get():
            answers.write(json.dumps({"error": _done(json.loads(line))}).encode() + b"\n")
    except (KeyboardInterrupt, InterruptedSearchError, BrokenPipeError):
        os._exit(0)


def _read(stream: IO[bytes], lines: queue.SimpleQueue[bytes]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(b"")
    os.kill(os.getpid(), signal.SIGINT)  # a search that runs ends, and keeps what it has measured


def _done(job: dict[str, Any]) -> str:
    """Why a job was not done; empty if it was, and its result lies in the database or the cache."""
    try:
        family, facts = job["target"]
        request = Request(
            parse_key(job["key"]), target_from(family, facts), "hybrid" if job["work"] == "measure" else "fast",
            DatabasePaths(tuple(job["databases"]), job["system"]), open_cache(job["cache"]), job["only"],
            job["device"], job["external"], frozen=job["frozen"],
        )  # fmt: skip
        if job["work"] == "decide":
            resolve.explained(replace(request, databases=request.layers), kept=True)
        else:
            resolve.resolve(request)
    except (KeyboardInterrupt, InterruptedSearchError):
        raise
    except Exception as error:  # whatever happens costs this problem alone
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    main()
