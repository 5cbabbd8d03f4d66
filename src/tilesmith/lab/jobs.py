"""Work that survives the terminal: a process of its own, whose output goes to a file.

A job is a folder: what was typed, the process, its output, and its exit status once it has ended. A job that ended or
died is begun again by the same words: what it had measured is kept among the results.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tilesmith.errors import ArgumentError, DatabaseError
from tilesmith.lab.results import results_folder
from tilesmith.toolchain.python_process import child_environment

RUNNING, ENDED, DIED = "running", "ended", "died"
_JOB, _LOG, _STATUS = "job.json", "log", "status"
_MOST_LOG = 1 << 20  # bytes of its end that are shown
STOP_S = 20.0  # from Ctrl-C to the end of the process, which writes what it holds
_KILL_S = 5.0


@dataclass(frozen=True)
class Job:
    """One job.

    Args:
        number: Counts from 1.
        words: What was typed behind ``tilesmith gemm``.
        begun: When, as ISO 8601 in UTC.
        process: Its number.
        born: When the system began that process, so that another one with its number is not taken for it.
        state: ``running``, ``ended`` or ``died``.
        status: Its exit status; None unless it has ended.
    """

    number: int
    words: tuple[str, ...]
    begun: str
    process: int
    born: str
    state: str = field(default=RUNNING)
    status: int | None = None


def begin_job(words: Sequence[str], command: Sequence[str]) -> Job:
    """Begin a command in the background.

    Args:
        words: What was typed, for the list of jobs.
        command: The program and its arguments.

    Raises:
        DatabaseError: The folder of jobs cannot be written.
    """
    folder = _new_folder()
    try:
        with (folder / _LOG).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tilesmith.lab.background", str(folder), *command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                env=child_environment(),
            )  # fmt: skip
        begun = datetime.now(UTC).isoformat(timespec="seconds")
        job = Job(int(folder.name), tuple(words), begun, process.pid, _born(process.pid))
        (folder / _JOB).write_text(json.dumps(asdict(job)))
    except OSError as error:
        raise DatabaseError(f"{folder}: a job cannot be begun: {error.strerror or error}") from None
    return job


def end_job(folder: Path, status: int) -> None:
    """Write down the exit status of a job; its process calls this last."""
    (folder / _STATUS).write_text(str(status))


def jobs() -> list[Job]:
    """All jobs, the oldest first."""
    try:
        numbers = sorted(int(name) for name in os.listdir(_place()) if name.isdecimal())
    except OSError:
        return []
    return [job for number in numbers if (job := _read(number)) is not None]


def job_of(number: int) -> Job:
    """The job of this number; ``ArgumentError`` if there is none."""
    job = _read(number)
    if job is None:
        known = ", ".join(str(each.number) for each in jobs()) or "none"
        raise ArgumentError(f"there is no job {number}; known: {known}")
    return job


def log_of(job: Job) -> str:
    """The end of what a job has printed."""
    try:
        with (_place() / str(job.number) / _LOG).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _MOST_LOG))
            return file.read(_MOST_LOG).decode(errors="replace")
    except OSError as error:
        raise DatabaseError(f"the log of job {job.number} cannot be read: {error.strerror or error}") from None


def stop_job(job: Job, seconds: float = STOP_S) -> Job:
    """Interrupt a job as Ctrl-C does, and wait until it has ended; one that does not end is killed."""
    for number, patience in ((signal.SIGINT, seconds), (signal.SIGKILL, _KILL_S)):
        if job_of(job.number).state != RUNNING:
            break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.process, number)
        end = time.monotonic() + patience
        while job_of(job.number).state == RUNNING and time.monotonic() < end:
            time.sleep(0.05)
    return job_of(job.number)


def _place() -> Path:
    return results_folder() / "jobs"


def _new_folder() -> Path:
    """A folder of the next number; two processes never get the same one."""
    place = _place()
    try:
        place.mkdir(parents=True, exist_ok=True)
        while True:
            number = 1 + max((int(name) for name in os.listdir(place) if name.isdecimal()), default=0)
            with contextlib.suppress(FileExistsError):
                (place / str(number)).mkdir()
                return place / str(number)
    except OSError as error:
        raise DatabaseError(f"{place}: a job cannot be begun: {error.strerror or error}") from None


def _read(number: int) -> Job | None:
    folder = _place() / str(number)
    try:
        values = json.loads((folder / _JOB).read_text())
        job = Job(**{**values, "words": tuple(values["words"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    with contextlib.suppress(OSError, ValueError):
        status = int((folder / _STATUS).read_text())
        return Job(job.number, job.words, job.begun, job.process, job.born, ENDED, status)
    alive = _born(job.process) == job.born != ""
    return Job(job.number, job.words, job.begun, job.process, job.born, RUNNING if alive else DIED)


def _born(process: int) -> str:
    """The moment at which the system began a process, in its own count; empty if there is none, or it is over."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]
