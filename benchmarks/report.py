"""What a report costs: a database of 250 problems and 40,000 configs is written through the store, drawn and opened.

    python benchmarks/report.py                                # the figures; exit status 1 if one is missed
    python benchmarks/report.py --problems 20 --trials 2000 --keep FOLDER

The configs are those that the solvers rank for real problems of an H200, with times from the cost model and noise; the
browser is headless Chromium. Needs `pip install vl-convert-python playwright axe-playwright-python` and Chromium.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tilesmith.db.opening import open_database
from tilesmith.db.records import TUNE, UNTUNED, Record, Search
from tilesmith.errors import ProblemError
from tilesmith.measure.machine import roofline_seconds
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.keys import parse_key
from tilesmith.problems.rewrite import Signature
from tilesmith.report.places import peaks_of
from tilesmith.solvers.solver import Accepted
from tilesmith.solvers.table import candidates
from tilesmith.targets.names import parse_target
from tilesmith.targets.target import Target

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "report"))
from browser import browser, opened

TARGET = "sm_90a:132:h200"
MOST_BYTES, MOST_OPEN_S, MOST_MADE_S = 8 << 20, 2.0, 10.0
BEGAN = datetime(2026, 11, 23, 8, 0, 0, tzinfo=UTC)
FAILURES = (
    "wrong numbers: element 1234 is off by 0.25, more than its bound 0.0625",
    "nvrtc: error: too many resources requested: 255 registers a thread",
    "hung: no answer after 3.2 s; the worker was ended",
)


def problems(count: int, rng: random.Random) -> list[Signature]:
    """Different convolutions and products, of the sizes that networks have."""
    found: dict[str, Signature] = {}
    while len(found) < count:
        signature = _drawn(rng)
        if signature is not None:
            found.setdefault(signature.canonical.key(), signature.canonical)
    return list(found.values())


def _drawn(rng: random.Random) -> Signature | None:
    dtype = rng.choice(("bf16", "bf16", "fp16", "fp32"))
    if rng.random() < 0.25:
        m, n, k = (rng.choice((16, 64, 128, 512, 1024, 2048, 4096)) for _ in "mnk")
        return GemmSignature(m=m, n=n, k=k, dtype=dtype)
    size, taps = rng.choice((7, 14, 28, 56)), rng.choice((1, 1, 3, 3, 5))
    c, k, stride = rng.choice((32, 64, 128, 256)), rng.choice((32, 64, 128, 256)), rng.choice((1, 1, 1, 2))
    try:
        return ConvSignature(
            (rng.choice((1, 8, 64)), size, size, c), (k, taps, taps, c), stride=(stride, stride), dtype=dtype,
            padding=(taps // 2, taps // 2), mode=rng.choice(("fwd", "bwd", "wrw")), shared_layout="NHWC",
        )  # fmt: skip
    except ProblemError:
        return None


def trials_of(signature: Signature, target: Target, count: int, began: datetime, rng: random.Random) -> list[Record]:
    """Configs of the two solvers that are predicted fastest, in an order that gets better as a search does."""
    machine = peaks_of(target.name, "")
    least = roofline_seconds(signature, target, machine) * 1e6
    known = [each for each in candidates(signature, target) if isinstance(each.verdict, Accepted)]
    priced = sorted(
        (each.solver.predict(each.geometry, each.solver.default_config(each.geometry, target), target), n)
        for n, each in enumerate(known)
    )
    records: list[Record] = []
    date, untuned = began, True
    for place, (predicted, number) in enumerate(priced[:2]):
        each, seen = known[number], set()
        solver, geometry = each.solver, each.geometry
        default = solver.default_config(geometry, target)
        space = solver.search_space(geometry, target)
        names = list(space.axes)
        weight = {name: rng.choice((0.0, 0.02, 0.05, 0.3)) for name in names}
        base = max(predicted * 1e6, 1.05 * least) if math.isfinite(predicted) else 20 * least
        wanted = count - len(records) if place else count * 3 // 4
        config, tries = default, 0
        while len(seen) < wanted and tries < 20 * wanted:
            tries += 1
            if str(config) not in seen:
                seen.add(str(config))
                slower = sum(
                    weight[name] * abs(space.axes[name].index(config[name]) - len(space.axes[name]) // 2)
                    / len(space.axes[name]) for name in names
                )  # fmt: skip
                us = base * math.exp(slower + abs(rng.gauss(0, 0.05)))
                date += timedelta(seconds=rng.choice((0, 0, 0, 1)))
                record = Record(
                    signature.key(), target.name, each.name, str(config), solver.revision, us, us * 0.004, 21,
                    error=0.01, bound=0.06, method="device events around rows of calls, cold L2, median",
                    compiler="nvrtc 13.0", generator="tilesmith 0.1.0 0123456789abcdef",
                    host="NVIDIA H200, driver 13.0", date=date.strftime("%Y-%m-%dT%H:%M:%SZ"),
                    origin=UNTUNED if untuned else TUNE,
                )  # fmt: skip
                failed = not untuned and rng.random() < 0.03
                records.append(record.failed(rng.choice(FAILURES)) if failed else record)
                untuned = False
            moved = rng.sample(names, min(4, len(names)))
            config = default.replace(**{name: rng.choice(space.axes[name]) for name in moved})
        if len(records) >= count:
            break
    return records


def write_database(path: Path, count: int, trials: int, seed: int = 1) -> tuple[int, int]:
    """Problems and configs written."""
    rng, target, database = random.Random(seed), parse_target(TARGET), open_database(path)
    began, written = BEGAN, 0
    for number, signature in enumerate(problems(count, rng)):
        wanted = (trials - written) // (count - number)
        records = trials_of(signature, target, wanted, began, rng)
        good = [record for record in records if record.ok]
        best: dict[str, Record] = {}
        for record in sorted(good, key=lambda each: each.time_us or 0.0):
            best.setdefault(record.solver, record)
        database.record_trials(records)
        database.put_results(best.values())
        date = records[0].date
        database.put_search(Search(records[0].problem, TARGET, "model", 0, len(records), 15.0, "converged", date))
        began += timedelta(seconds=20)
        written += len(records)
    database.close()
    return count, written


def write_results(path: Path, database: Path, seed: int = 2) -> None:
    """A result file of `bench` for the same problems: ours as the database has it, and another library beside it."""
    rng, held = random.Random(seed), open_database(database, readonly=True)
    rows = []
    for problem, target in held.problems():
        best = held.best(problem, target)
        if best is not None and best.time_us:
            least = roofline_seconds(parse_key(problem), parse_target(target), peaks_of(target, "")) * 1e6
            other = max(1.02 * least, best.time_us * math.exp(rng.gauss(0.18, 0.22)))
            rows.append(
                {"key": problem, "solver": best.solver, "config": best.config, "time_us": best.time_us,
                 "spread_us": best.spread_us, "status": "ok",
                 "against": {"cublas" if problem.startswith("gemm") else "cudnn": {"time_us": other, "spread_us": 0.1}}}
            )  # fmt: skip
    held.close()
    path.write_text(json.dumps({"target": TARGET, "host": {"gpu": "NVIDIA H200"}, "results": rows}))


@dataclass(frozen=True)
class Seen:
    """What the browser saw of the page."""

    open_s: tuple[float, ...]
    cpu_s: tuple[float, ...]  # of the page's process
    drawn: dict[str, str]
    blank: list[str]
    messages: list[str]
    requests: list[str]
    violations: list[str]


def look(file: Path, pictures: Path | None) -> Seen:
    """Open the page twice in light colours and once in dark ones."""
    open_s, cpu_s, messages, requests, violations = [], [], [], [], []
    with browser() as running:
        session = running.new_browser_cdp_session()
        for name, dark in (("first", False), ("light", False), ("dark", True)):
            with opened(running, file, dark=dark) as seen:
                open_s.append(seen.seconds)
                processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
                cpu_s.append(max(each["cpuTime"] for each in processes if each["type"] == "renderer"))
                drawn, blank = seen.drawn(), seen.blank()
                violations += [] if name == "first" else seen.violations()
                if pictures is not None and name != "first":
                    seen.page.screenshot(path=str(pictures / f"{name}.png"), full_page=True)
                messages += seen.messages
                requests += seen.requests
    return Seen(tuple(open_s), tuple(cpu_s), drawn, blank, messages, requests, violations)


def judged(count: int, trials: int, made_s: float, made_cpu_s: float, nbytes: int, seen: Seen) -> int:
    """Print every figure beside its limit; 1 if one is missed."""
    drawn = sum(state == "yes" for state in seen.drawn.values())
    others = [url for url in seen.requests if not url.startswith(("file:", "data:", "blob:"))]
    rows = (
        ("problems, configs", f"{count}, {trials}", "", True),
        ("load, cores", f"{os.getloadavg()[0]:.1f}, {os.cpu_count()}", "", True),
        ("made in", f"{made_s:.2f} s", f"< {MOST_MADE_S:g} s", made_s < MOST_MADE_S),
        ("  processor time", f"{made_cpu_s:.2f} s", "", True),
        ("size", f"{nbytes / 2**20:.2f} MiB", f"< {MOST_BYTES >> 20} MiB", nbytes < MOST_BYTES),
        ("opened, all drawn, in", ", ".join(f"{each:.2f} s" for each in seen.open_s), f"< {MOST_OPEN_S:g} s",
         max(seen.open_s) < MOST_OPEN_S),
        ("  processor time", ", ".join(f"{each:.2f} s" for each in seen.cpu_s), "", True),
        ("plots drawn", f"{drawn} of {len(seen.drawn)}, {len(seen.blank)} blank", "all",
         drawn == len(seen.drawn) and not seen.blank),
        ("console messages", str(len(seen.messages)), "0", not seen.messages),
        ("requests to a network", str(len(others)), "0", not others),
        ("violations of axe-core", str(len(seen.violations)), "0", not seen.violations),
    )  # fmt: skip
    for name, value, limit, holds in rows:
        print(f"{name:24}{value:28}{limit:10}{'' if holds else 'MISSED'}")
    for line in (*seen.messages, *others, *seen.violations):
        print(f"  {line}")
    return 0 if all(holds for *_, holds in rows) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=250)
    parser.add_argument("--trials", type=int, default=40_000)
    parser.add_argument("--keep", type=Path, help="a folder for the database, the results, the page and pictures of it")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        database, results, file = folder / "report.db", folder / "bench.json", folder / "report.html"
        database.unlink(missing_ok=True)
        count, trials = write_database(database, asked.problems, asked.trials)
        write_results(results, database)
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        words = [sys.executable, "-m", "tilesmith", "report", str(database), str(results), "-o", str(file)]
        subprocess.run(words, check=True, timeout=120, stdout=subprocess.DEVNULL)
        made_s = time.monotonic() - began
        made_cpu_s = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        return judged(count, trials, made_s, made_cpu_s, file.stat().st_size, look(file, asked.keep))


if __name__ == "__main__":
    sys.exit(main())
