"""Configs of solvers on problems: compiled, checked on the device, and timed beside the libraries.

    python benchmarks/gpu/probes/configs.py FILE.jsonl [--each] [--of LIST] [--ways WORD]
                                                                             prints what such a run has written
    python benchmarks/gpu/probes/configs.py FILE.jsonl --before FILE ...     compares it with runs of earlier kernels
    python benchmarks/gpu/probes/configs.py PROBLEMS [--solver NAME ...] [--configs N] [--also CONFIG ...]
        [--hopeless N] [--seconds S] [--limit S] [--dtype NAME] [--every N] [--alone] [--lock FILE] [--out FILE]
    python benchmarks/gpu/probes/configs.py CHANGED.json ...                 these configs of each problem, no others

PROBLEMS is a list of benchmarks/problems, or a file of driver commands and keys; --dtype takes those of bf16 in
another dtype, --every each Nth alone, --alone leaves the libraries out; ``benchmarks/choices.py`` writes CHANGED.json.
For each problem and solver (default: all that accept it and whose default is estimated at most N times the best one's;
NAME may be the beginning of a name) the untuned config, the N others of the least estimate among those that the solver
proposes or that are drawn, and each CONFIG inside the space are compiled, all problems at once. Then, while FILE is
locked, each is checked against the device's reference; those whose numbers are right are timed with the libraries'
ways, interleaved, in rows of calls. Prints a line for each config (a star: the untuned choice over all solvers that
were asked), one for each problem, and the geometric mean of the libraries' least time over ours. FILE of --out gets
JSON lines that ``benchmarks/fit.py`` reads. A kernel that kills its process costs its problem alone. --before compares
times of the same problem, solver and config, the least of each where a FILE has several: those of the earlier kernels
over those of FILE.jsonl.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2] / "src")]
from checks_worker import CACHE  # noqa: E402
from gpu_cases import accepted, listed  # noqa: E402

from tilesmith.compare.rival import Setting, rivals_of  # noqa: E402
from tilesmith.errors import LaunchError, TilesmithError  # noqa: E402
from tilesmith.measure.device_bench import DeviceBench  # noqa: E402
from tilesmith.measure.device_oracle import device_oracle  # noqa: E402
from tilesmith.plan.assemble import assemble  # noqa: E402
from tilesmith.plan.records import Source  # noqa: E402
from tilesmith.problems.keys import parse_key  # noqa: E402
from tilesmith.problems.rewrite import Signature  # noqa: E402
from tilesmith.problems.samples import sample_args  # noqa: E402
from tilesmith.runtime.executable import Executable  # noqa: E402
from tilesmith.solvers.external import library  # noqa: E402
from tilesmith.solvers.solver import Config, parse_config  # noqa: E402
from tilesmith.solvers.table import Candidate  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_target_of  # noqa: E402
from tilesmith.tune.space import SolverSpace  # noqa: E402

ROUNDS, DRAWN = 21, 200
LIBRARIES = ("cudnn", "cublas")
Tried = tuple[Candidate, Config, float]  # with the estimate in seconds


def problems_of(name: str, dtype: str = "bf16", every: int = 1) -> dict[str, Signature]:
    """Canonical problems by their keys, those of bf16 with ``dtype`` in its place; each of ``every``."""
    path = Path(name)
    if path.suffix == ".json":
        keys = list(json.loads(path.read_text()))
    elif path.suffix == ".keys":
        keys = [line.strip() for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    else:
        keys = [signature.canonical.key() for _, _, signature in listed(name)]
    keys = [key.replace("bf16", dtype) for key in keys]
    return {key: parse_key(key).canonical for key in list(dict.fromkeys(keys))[::every]}


def tried(
    signature: Signature, target, solvers: list[str], most: int, also: list[str], hopeless: float
) -> Iterator[Tried]:
    spaces = []
    for candidate in accepted(signature, target):
        if "reference" in candidate.name or (solvers and not candidate.name.startswith(tuple(solvers))):
            continue
        solver, geometry = candidate.solver, candidate.geometry
        predict = partial(solver.predict, geometry, target=target)
        space, default = solver.search_space(geometry, target), solver.default_config(geometry, target)
        walk = SolverSpace(candidate.name, space, default, predict, partial(solver.ranked, geometry, target))
        spaces.append((predict(default), candidate, walk))
    least = min((estimate for estimate, *_ in spaces), default=0.0)
    for estimate, candidate, walk in spaces:
        if estimate > hopeless * least:
            continue
        others = walk.promising(random.Random(1), DRAWN) if most else []
        best = sorted((config for config in others if config != walk.default), key=walk.predict)[:most]
        more = [config for config in map(parse_config, also) if walk.space.contains(config)]
        for config in dict.fromkeys([walk.default, *best, *more]):
            yield candidate, config, walk.predict(config)


def asked(args: argparse.Namespace, signature: Signature, target) -> list[Tried]:
    """What the command line asks of a problem."""
    if not args.problems.endswith(".json"):
        return list(tried(signature, target, args.solver, args.configs, args.also, args.hopeless))
    able, found = {each.name: each for each in accepted(signature, target)}, []
    for solver, text in json.loads(Path(args.problems).read_text())[signature.key()]:
        config = parse_config(text)
        found.append((able[solver], config, able[solver].solver.predict(able[solver].geometry, config, target)))
    return found


def compiled(signature: Signature, each: Tried, target) -> Executable:
    candidate, config, _ = each
    draft = candidate.solver.draft(candidate.geometry, config, target)
    made = [CACHE.get_or_build(source, target) for source in draft.sources]
    plan = assemble(draft, signature, candidate.name, str(config), target, [artifact.digest for artifact in made])
    return Executable(plan, [next(a.path for a in made if a.digest == digest) for digest in plan.artifacts])


def measured(
    signature: Signature, all_tried: list[Tried], target, seconds: float, libraries: Sequence[str] = LIBRARIES
) -> dict:
    """What --out gets of a problem; its lines are printed."""
    values = sample_args(signature)
    truth = partial(device_oracle, signature, values, target, 0, CACHE)
    bench = DeviceBench(signature, values, truth, target, 0, CACHE)
    calls, names, estimates, wrong = {}, {}, {}, []
    for each in all_tried:
        name = f"{each[0].name} {each[1]}"
        try:
            verdict = bench.check(executable := compiled(signature, each, target))
        except TilesmithError as error:
            print(f"  FAILED {name}: {error}"[:600], flush=True)
            wrong.append(name)
            if isinstance(error, LaunchError):  # the context may be lost: the next problem has another process
                sys.exit(3)
            continue
        if not verdict.ok:
            print(f"  WRONG {name}: {verdict.message}", flush=True)
            wrong.append(name)
            continue
        calls[name], names[name], estimates[name] = bench.timed.plan(executable).run, each, each[2]
    setting = Setting(signature, values, target, 0, bench.checker.stream.handle, bench.calls)
    with ExitStack() as held:
        for rival_name in libraries:
            try:
                rival = rivals_of(target)[rival_name]
                for way in held.enter_context(rival.ways(setting)):
                    calls[f"{rival_name}: {way.name}"] = partial(lambda ways, place: ways[place](), way.calls)
            except Exception as error:
                print(f"  {rival_name}: {type(error).__name__}: {error}"[:300], flush=True)
        timing = bench.time(calls, budget_s=seconds, rounds=ROUNDS, drop_ratio=2.0)
    library.empty_cache()
    us = {name: round(found.median_us, 3) for name, found in timing.items()}
    ours = {name: time_us for name, time_us in us.items() if name in names}
    theirs = {name: time_us for name, time_us in us.items() if name not in names}
    return {"key": signature.key(), "ours": ours, "theirs": theirs, "wrong": wrong,
            "estimates": {name: round(1e6 * estimate, 3) for name, estimate in estimates.items()}}  # fmt: skip


def show(row: dict) -> None:
    ours, theirs, estimates = row["ours"], row["theirs"], row["estimates"]
    untuned = min(estimates, key=estimates.__getitem__, default=None)
    for name in sorted(ours, key=ours.__getitem__):
        print(f"  {'*' if name == untuned else ' '} {ours[name]:9.2f} us (estimate {estimates[name]:9.2f})  {name}")
    for name in sorted(theirs, key=theirs.__getitem__)[:2]:
        print(f"    {theirs[name]:9.2f} us {name}")
    if ours and theirs:
        best, rival = min(ours.values()), min(theirs.values())
        print(f"  = {rival / best:.3f} of the libraries, untuned {rival / ours[untuned]:.3f}", flush=True)


def work(args: argparse.Namespace) -> int:
    """The process that uses the device, from problem ``args.start`` on."""
    target, libraries = cuda_target_of(0), () if args.alone else LIBRARIES
    found = problems_of(args.problems, args.dtype, args.every)
    for number, (key, signature) in enumerate(found.items()):
        if number < args.start or time.time() > args.until:
            continue
        Path(args.at).write_text(str(number))
        print(f"{number + 1}/{len(found)} {key}", flush=True)
        try:
            if not (each := asked(args, signature, target)):
                continue
            row = measured(signature, each, target, args.seconds, libraries)
        except TilesmithError as error:
            print(f"  FAILED: {error}"[:600], flush=True)
            continue
        show(row)
        with open(args.out, "a") as out:
            for solver in sorted({name.split()[0] for name in row["ours"]}):
                mine = {n.partition(" ")[2]: us for n, us in row["ours"].items() if n.split()[0] == solver}
                estimates = {config: row["estimates"][f"{solver} {config}"] for config in mine}
                line = {"key": key, "solver": solver, "all": mine, "estimates": estimates, "theirs": row["theirs"],
                        "wrong": row["wrong"]}  # fmt: skip
                out.write(json.dumps(line) + "\n")
    return 0


def compile_all(args: argparse.Namespace) -> None:
    target = cuda_target_of(0)
    build_all(
        (
            source
            for signature in problems_of(args.problems, args.dtype, args.every).values()
            for candidate, config, _ in asked(args, signature, target)
            for source in candidate.solver.draft(candidate.geometry, config, target).sources
        ),
        target,
    )


def build_all(sources: Iterable[Source], target) -> None:
    """Compile what is not compiled yet, on all cores."""
    began, found = time.monotonic(), {source.text: source for source in sources}

    def build(source: Source) -> None:
        try:
            CACHE.get_or_build(source, target)
        except TilesmithError as error:
            print(f"  does not compile: {error}"[:600], flush=True)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(build, found.values()))
    print(f"{len(found)} sources compiled in {time.monotonic() - began:.1f} s", flush=True)


def rows_in_time(tasks: Iterable[Callable[[], dict]], seconds: float, out: Path | None) -> list[dict]:
    """What tasks give, one after the other, of which none begins after ``seconds``; ``out`` gets each as a line."""
    until, rows = time.monotonic() + seconds, []
    for task in tasks:
        if time.monotonic() > until:
            break
        rows.append(task())
        if out is not None:
            with out.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    return rows


def summary(path: Path, rows: bool, each: bool = False, of: str = "", word: str = "") -> None:
    """The libraries' least time over ours, of the fastest config and of the one with the least estimate.

    ``each``: every config too, with its estimate of then, and every way of the libraries. ``of``: this list alone.
    ``word``: the libraries' ways of this name alone.
    """
    within = problems_of(of) if of else None
    problems: dict[str, list[dict]] = {}
    for line in map(json.loads, path.read_text().splitlines() if path.exists() else []):
        problems.setdefault(line["key"], []).append(line)
    found: list[tuple[float, float]] = []
    for key, lines in problems.items():
        ours = {(line["solver"], config): us for line in lines for config, us in line["all"].items()}
        guess = {(line["solver"], config): us for line in lines for config, us in line["estimates"].items()}
        theirs = {name: us for name, us in lines[0]["theirs"].items() if word in ("", name.rpartition(": ")[2])}
        if not ours or (word and not theirs) or (within is not None and key not in within):
            continue
        fastest, untuned = min(ours, key=ours.__getitem__), min(guess, key=guess.__getitem__)
        best = min(theirs.values(), default=math.nan)  # none was timed with --alone
        ratios = best / ours[fastest], best / ours[untuned]
        found += [ratios] * bool(theirs)
        if rows:
            print(f"{ratios[0]:7.3f} {ratios[1]:7.3f} {ours[fastest]:9.2f} us {fastest[0]:22} {key}")
        if rows and each:
            for tried, us in sorted(ours.items(), key=lambda one: one[1]):
                print(f"{'':16}{us:9.2f} us (estimate {guess.get(tried, math.nan):9.2f})  {tried[0]} {tried[1]}")
            for name, us in theirs.items():
                print(f"{'':16}{us:9.2f} us {name}")
    if not found:
        beside = f" with a way of {word!r} beside it" if word else ""
        print(f"{path}: no problem" + (f" of {of}" if of else "") + beside)
    else:
        tuned, untuned = (statistics.geometric_mean(each) for each in zip(*found, strict=True))
        print(f"{len(found)} problems, {sum(len(lines[0]['wrong']) for lines in problems.values())} wrong kernels: "
              f"{tuned:.3f} of the libraries (geometric mean), least {min(found)[0]:.3f}; untuned {untuned:.3f}, "
              f"least {min(each[1] for each in found):.3f}")  # fmt: skip


def times_of(paths: Sequence[Path]) -> dict[tuple[str, str, str], float]:
    """The least microseconds of each problem, solver and config."""
    found: dict[tuple[str, str, str], float] = {}
    for line in (json.loads(text) for path in paths for text in path.read_text().splitlines()):
        for config, us in line["all"].items():
            name = (line["key"], line["solver"], config)
            found[name] = min(us, found.get(name, us))
    return found


def compare(after: Path, before: Sequence[Path]) -> None:
    """Each problem's fastest config, the time of the earlier kernel over that of the later one."""
    new, old = times_of([after]), times_of(before)
    problems: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for name in new.keys() & old.keys():
        problems.setdefault(name[:2], []).append((new[name], old[name]))
    for (key, solver), pairs in sorted(problems.items()):
        earlier, later = min(old for _, old in pairs), min(new for new, _ in pairs)
        print(f"{earlier / later:7.3f} {earlier:9.2f} us before, {later:9.2f} us  {solver} {key}")
    if problems:
        fastest = [min(old for _, old in each) / min(new for new, _ in each) for each in problems.values()]
        every = [old / new for each in problems.values() for new, old in each]
        print(f"before / after, geometric mean (least): fastest config {statistics.geometric_mean(fastest):.3f} "
              f"({min(fastest):.3f}) on {len(fastest)} problems, each of {len(every)} configs "
              f"{statistics.geometric_mean(every):.3f} ({min(every):.3f})")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems")
    parser.add_argument("--solver", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--configs", type=int, default=0, metavar="N")
    parser.add_argument("--also", nargs="+", default=[], metavar="CONFIG", help="each as 'name=value name=value'")
    parser.add_argument("--hopeless", type=float, default=10.0, metavar="N")
    parser.add_argument("--seconds", type=float, default=0.3, help="of timing, for each problem")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds on the device after which none is begun")
    parser.add_argument("--dtype", default="bf16", metavar="NAME", help="in place of bf16")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth problem alone")
    parser.add_argument("--alone", action="store_true", help="without the libraries")
    parser.add_argument("--lock", default="/tmp/gpu.lock", help="held while the device is used")
    parser.add_argument("--out", default="configs.jsonl")
    parser.add_argument("--before", nargs="+", default=[], type=Path, metavar="FILE", help="of the earlier kernels")
    parser.add_argument("--each", action="store_true", help="of FILE.jsonl, print every config and every way")
    parser.add_argument("--of", default="", metavar="LIST", help="of FILE.jsonl, this list's problems alone")
    parser.add_argument("--ways", default="", metavar="WORD", help="of FILE.jsonl, the libraries' ways so named alone")
    parser.add_argument("--start", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--at", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.problems.endswith(".jsonl") and args.before:
        compare(Path(args.problems), args.before)
        return 0
    if args.problems.endswith(".jsonl"):
        summary(Path(args.problems), True, args.each, args.of, args.ways)
        return 0
    if args.start is not None:
        return work(args)
    compile_all(args)
    count, start, at = len(problems_of(args.problems, args.dtype, args.every)), 0, Path(f"{args.out}.at")
    with open(args.lock, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        until = time.time() + args.limit
        while start < count and time.time() < until:
            at.write_text(str(start))
            words = [*sys.argv[1:], "--start", str(start), "--until", str(until), "--at", str(at)]
            if subprocess.run([sys.executable, __file__, *words], check=False).returncode == 0:
                break
            start = int(at.read_text()) + 1
            print("  the process died: the next problem has another", flush=True)
    at.unlink(missing_ok=True)
    summary(Path(args.out), False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
