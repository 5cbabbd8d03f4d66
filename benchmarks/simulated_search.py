"""Searches that only take their time: the workers of ``benchmarks/fleet.py`` and of tests run them.

A search sleeps for its recorded seconds, scaled, and leaves records as a real one does: trials, answers, how it went.
Its times depend on the problem and config, and (``noise``) on the moment, so that two searches of a problem differ.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import time
from types import SimpleNamespace

import msgspec

from tilesmith.db.records import Record, Search
from tilesmith.fleet.outbox import own_folder
from tilesmith.fleet.survey import Survey
from tilesmith.fleet.worker import run_with
from tilesmith.solvers.generation import generator_digest
from tilesmith.tune.progress import DONE, SEARCH, Progress

SETTINGS = "FLEET_SIMULATION"  # environment: JSON of ``scale``, ``noise``, ``seconds`` (problem -> recorded seconds)
BUSY = "busy.txt"  # in a machine's folder: seconds of each task, from its begin on the worker to its reply
TARGET = "sm_90a:132:h200"


def settings() -> dict:
    """``deaths``: the share of tasks in which the worker is killed, at half of the search or before its reply."""
    return {"scale": 1.0, "noise": 0.0, "seconds": {}, "trials": 40, "deaths": 0.0} | json.loads(
        os.environ.get(SETTINGS, "{}")
    )


def look(device: str, threads: int | None) -> bytes:
    """Each worker of a Dask cluster has a simulated GPU of its own."""
    from distributed import get_worker

    name = f"simulated-{get_worker().name}"
    return msgspec.json.encode(Survey(own_folder().name, name, TARGET, generator_digest("cuda")))


def run(device: str, payload: bytes, tell) -> bytes:
    began = time.monotonic()
    reply = run_with(search, device, payload, tell)
    if b'"kind":"tune"' in payload:
        with (own_folder() / BUSY).open("a") as file:
            file.write(f"{time.monotonic() - began}\n")
        die(settings()["deaths"] / 2)
    return reply


def die(chance: float) -> None:
    """Kill this process with some chance."""
    if random.SystemRandom().random() < chance:
        os.kill(os.getpid(), signal.SIGKILL)


def search(task, device, database, listen):
    """One problem: half of the sleep, some trials, the other half."""
    given = settings()
    seconds = given["seconds"].get(task.problem, 1.0) * given["scale"]
    chance = random.Random(f"{device} {time.time_ns()}" if given["noise"] else task.problem)
    began = time.monotonic()
    time.sleep(seconds / 2)
    die(given["deaths"] / 2)
    listen(Progress(task.problem, SEARCH, given["trials"] // 2, 0, seconds / 2, task.seconds))
    known = {record.config for record in database.trials(task.problem, task.target)}
    trials = [
        _record(task, f"tile={index}", given["noise"] * chance.random())
        for index in range(given["trials"])
        if f"tile={index}" not in known
    ]
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    database.record_trials(trials)
    best = database.trials(task.problem, task.target)[0]
    database.put_result(best)
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    spent = time.monotonic() - began
    database.put_search(
        Search(task.problem, task.target, task.strategy, task.seed, len(trials), spent, "converged", date)
    )
    listen(Progress(task.problem, DONE, given["trials"], 0, spent, task.seconds, str(best.config), best.time_us))
    return SimpleNamespace(
        problem=task.problem, target=task.target, ranking=database.ranking(task.problem, task.target),
        new_trials=len(trials), failed=0, disturbed=0, seconds=spent, ended="converged",
        default=SimpleNamespace(time_us=2 * best.time_us),
    )  # fmt: skip


def _record(task, config: str, noise: float) -> Record:
    digest = hashlib.sha256(f"{task.problem} {config}".encode()).digest()
    base = 10.0 + int.from_bytes(digest[:4], "little") / 2**32 * 90.0
    return Record(
        task.problem, task.target, "simulated", config, time_us=base * (1.0 + noise), spread_us=0.1, samples=9,
        host="simulated", compiler="none", date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )  # fmt: skip
