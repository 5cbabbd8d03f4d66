"""Prints what a fleet must hold: speed with two workers, losses, what the scheduler adds, whether the plan is right.

    python benchmarks/fleet.py [--problems 1000] [--workers 64] [--scale 0.25] [--only speed,losses,scheduler]

Scheduler, workers, client, databases and outboxes are the real ones; only the searches sleep (``simulated_search``),
for the seconds that searches on an H100 took (benchmarks/results/gpu_budgets_h100.json), times ``--scale``. The
workers' folders lie in memory where /dev/shm is there: in a fleet each machine has a disk of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH", ""))))

os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "error")

import simulated_search as simulated

from tilesmith.db.opening import open_database
from tilesmith.db.records import Search
from tilesmith.fleet.dask_cluster import DaskExecutor
from tilesmith.fleet.estimate import wall_seconds
from tilesmith.fleet.executor import Wanted
from tilesmith.fleet.outbox import own_folder
from tilesmith.fleet.session import FleetOptions, FleetRun, NotTuned, Tuned
from tilesmith.problems.gemm import GemmSignature

HERE = Path(__file__)
HOSTED = 8  # simulated GPUs of one process
DEADLINE_S = 1200.0


def recorded_seconds(count: int) -> dict[str, float]:
    """Problems, and for each the seconds that one search on an H100 took."""
    rows = json.loads((HERE.parent / "results" / "gpu_budgets_h100.json").read_text())["rows"]
    took = itertools.cycle([row["wall_s"] for row in rows if row["problems"] == 1 and not row["status"]])
    return {GemmSignature(m=8 + index, n=64, k=64).canonical.key(): next(took) for index in range(count)}


@contextmanager
def simulation(**settings):
    """A folder for one simulation, whose settings the processes that are started inside find."""
    shared = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=shared) as fleet, tempfile.TemporaryDirectory() as folder:
        changed = {"TILESMITH_FLEET_DIR": fleet, simulated.SETTINGS: json.dumps(settings)}
        before = {name: os.environ.get(name) for name in changed}
        os.environ.update(changed)
        try:
            yield Path(folder)
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


@contextmanager
def cluster(workers: int, hosted: int):
    """The address of a scheduler with so many workers, ``hosted`` of them in one process (1: with a nanny)."""
    with ExitStack() as held:
        scheduler = started(held, "scheduler")
        address = scheduler.stdout.readline().strip()
        for first in range(0, workers, hosted):
            names = ",".join(str(name) for name in range(first, min(workers, first + hosted)))
            started(held, "workers", address, names)
        yield address


def started(held: ExitStack, *words: str) -> subprocess.Popen:
    """This program in another role; it ends with the block."""
    process = subprocess.Popen([sys.executable, str(HERE), "--role", *words], stdout=subprocess.PIPE, text=True)
    held.callback(ended, process)
    return process


def ended(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def schedule() -> None:
    from distributed import Scheduler

    async with Scheduler(dashboard_address=None, port=0, host="127.0.0.1") as scheduler:
        print(scheduler.address, flush=True)
        await scheduler.finished()


async def work(address: str, names: list[str]) -> None:
    from distributed import Nanny, Worker

    kind = Nanny if len(names) == 1 else Worker
    more = {"memory_limit": 0, "dashboard_address": None}
    async with AsyncAll([kind(address, nthreads=1, name=name, **more) for name in names]) as workers:
        await asyncio.gather(*(each.finished() for each in workers))


class AsyncAll:
    def __init__(self, items) -> None:
        self.items = items

    async def __aenter__(self):
        await asyncio.gather(*self.items)
        return self.items

    async def __aexit__(self, *raised) -> None:
        await asyncio.gather(*(each.close() for each in self.items), return_exceptions=True)


def client(address: str, path: str, workers: int, problems: list[str]) -> dict:
    """Tune a list; prints each answer as it is kept."""
    executor = DaskExecutor(Wanted(address, simulated.run, "cuda", look=simulated.look))
    try:
        while len(executor.places()) < workers:
            time.sleep(0.05)
        run = FleetRun(problems, executor, open_database(path), FleetOptions(seconds=60.0, check=0.0))
        began, answers, failed = time.monotonic(), {}, []
        for result in run.results():
            if isinstance(result, Tuned):
                answers[result.problem] = (result.record.config, result.record.time_us)
                print(json.dumps([result.problem, *answers[result.problem]]), flush=True)
            elif isinstance(result, NotTuned):
                failed.append(result)
        return {"wall": time.monotonic() - began, "answers": answers, "failed": failed, "twice": run.twice}
    finally:
        executor.close()


def quietly(address: str, path: Path, workers: int, problems: list[str]) -> dict:
    held = sys.stdout
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    try:
        return client(address, str(path), workers, problems)
    finally:
        sys.stdout.close()
        sys.stdout = held


def speed(arguments) -> None:
    """One worker, two, and sixteen: the time, and the answers."""
    seconds = recorded_seconds(24)
    found = {}
    for workers in (1, 2, 16):
        with simulation(seconds=seconds, scale=arguments.scale / 2) as folder, cluster(workers, 1) as address:
            found[workers] = quietly(address, folder / "client.db", workers, list(seconds))
    ratio = found[1]["wall"] / found[2]["wall"]
    print(
        f"speed: 24 problems in {found[1]['wall']:.1f} s with 1 worker, {found[2]['wall']:.1f} s with 2: {ratio:.3f}x"
    )
    same = found[1]["answers"] == found[2]["answers"] == found[16]["answers"]
    print(f"speed: answers with 1, 2 and 16 workers are {'the same' if same else 'DIFFERENT'}")
    assert ratio >= 1.8
    assert same


def losses(arguments) -> None:
    """Sixteen workers that are killed in one task of twenty, and a client that is killed twice."""
    seconds = recorded_seconds(arguments.lossy)
    told: list[dict[str, list]] = []
    with simulation(seconds=seconds, scale=arguments.scale / 4, noise=0.3, deaths=0.05) as folder:
        path = folder / "client.db"
        with cluster(16, 1) as address:
            for stop in (len(seconds) // 3, len(seconds) // 3, None):
                told.append(one_client(address, path, seconds, stop))
        check_losses(seconds, told, path, Path(os.environ["TILESMITH_FLEET_DIR"]))


def one_client(address: str, path: Path, seconds: dict[str, float], stop: int | None) -> dict[str, list]:
    """A client in a process of its own, killed after ``stop`` answers; what it has told."""
    listing = path.with_name("problems.json")
    listing.write_text(json.dumps(list(seconds)))
    words = [sys.executable, str(HERE), "--role", "client", address, str(path), str(listing)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    answers: dict[str, list] = {}
    ends = time.monotonic() + DEADLINE_S
    for line in process.stdout:
        problem, *answer = json.loads(line)
        answers[problem] = answer
        assert time.monotonic() < ends, "the client did not end"
        if stop is not None and len(answers) >= stop:
            os.kill(process.pid, signal.SIGKILL)
            break
    assert process.wait(60) == (0 if stop is None else -signal.SIGKILL)
    return answers


def check_losses(seconds, told, path: Path, fleet: Path) -> None:
    database = open_database(path, readonly=True)
    answers = {record.problem: record for record in database.records("results")}
    held = {(each.problem, each.solver, each.config) for each in database.records("trials")}
    lost, found = 0, 0
    for place in fleet.glob("*/*.db"):
        for record in open_database(place, readonly=True).records("trials"):
            found += 1
            lost += (record.problem, record.solver, record.config) not in held
    times = Counter(problem for each in told for problem in each)
    other = sum(
        [answers[problem].config, answers[problem].time_us] != answer
        for each in told
        for problem, answer in each.items()
    )
    left = sum(1 for _ in fleet.glob("*/outbox/*/*"))
    untuned = [problem for problem in seconds if problem not in answers]
    print(
        f"losses: {len(seconds)} problems, 16 workers, 5 % of tasks killed, the client killed after "
        f"{', '.join(str(len(each)) for each in told[:-1])} answers: {len(seconds) - len(untuned)} tuned"
    )
    print(f"losses: {lost} of {found} records lost, {left} parcels left behind")
    twice = sum(count > 1 for count in times.values())
    print(f"losses: {twice} problems told twice, {other} told answers that are not the kept one")
    assert not untuned
    assert lost == other == left == 0


def scheduler(arguments) -> None:
    """Many problems on many GPUs: what everything but the searches adds, and what the plan said.

    The client knows the past searches, as for a list that is tuned again: without them it begins with the problems in
    the list's order, and the last worker waits for whatever search comes last.
    """
    seconds = recorded_seconds(arguments.problems)
    scaled = [each * arguments.scale for each in seconds.values()]
    ideal, planned = wall_seconds(scaled, arguments.workers, 0.0), wall_seconds(scaled, arguments.workers)
    with simulation(seconds=seconds, scale=arguments.scale) as folder, cluster(arguments.workers, HOSTED) as address:
        date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        open_database(folder / "client.db").put_searches(
            Search(key, simulated.TARGET, "model", 0, 40, took, "converged", date)
            for key, took in zip(seconds, scaled, strict=True)
        )
        made = quietly(address, folder / "client.db", arguments.workers, list(seconds))
        busy = [float(line) for line in (own_folder() / simulated.BUSY).read_text().split()]
    wall, worked = made["wall"], wall_seconds(busy, arguments.workers, 0.0)
    print(
        f"scheduler: {len(seconds)} problems of {statistics.median(scaled):.2f} s (median), {arguments.workers} "
        f"simulated GPUs: {wall:.2f} s; what workers did takes {worked:.2f} s: {100 * (wall / worked - 1):.2f} % added"
    )
    print(
        f"scheduler: the sleeps alone {ideal:.2f} s: the rest is what all workers together write and compute on the "
        f"{os.cpu_count()} cores here (load {os.getloadavg()[0]:.1f})"
    )
    listed = [0.0] * arguments.workers
    for each in scaled:
        heapq.heapreplace(listed, listed[0] + each)
    print(f"in the order of the list, as where no search is known, the sleeps alone take {max(listed):.2f} s")
    print(f"plan: {planned:.2f} s foretold, {wall:.2f} s taken: {100 * (wall / planned - 1):+.2f} %")
    assert len(made["answers"]) == len(seconds)
    assert wall / worked - 1 < 0.02


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--lossy", type=int, default=160, help="problems of the run with losses")
    parser.add_argument("--scale", type=float, default=0.25)
    parser.add_argument("--only", default="speed,losses,scheduler")
    parser.add_argument("--role", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role:
        role, *words = arguments.role
        if role == "scheduler":
            asyncio.run(schedule())
        elif role == "workers":
            asyncio.run(work(words[0], words[1].split(",")))
        else:
            made = client(words[0], words[1], 1, json.loads(Path(words[2]).read_text()))
            assert not made["failed"], made["failed"]
        return
    for name in arguments.only.split(","):
        {"speed": speed, "losses": losses, "scheduler": scheduler}[name](arguments)


if __name__ == "__main__":
    main()
