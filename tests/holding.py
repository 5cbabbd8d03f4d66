"""Another process that has a database open, and holds it: with a lock, or stopped in the middle of its work."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HOLDER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(sys.argv[2])
if sys.argv[2] == "BEGIN IMMEDIATE":
    connection.execute("UPDATE results SET seal = seal")
print("held", flush=True)
time.sleep(600)
"""
KINDS = {"exclusive": "BEGIN EXCLUSIVE", "stopped": "BEGIN EXCLUSIVE", "stopped while it writes": "BEGIN IMMEDIATE"}


@contextlib.contextmanager
def held(path: Path, kind: str) -> Iterator[None]:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path), KINDS[kind]], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        if kind != "exclusive":
            os.kill(holder.pid, signal.SIGSTOP)
        yield
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
