"""Whether kernels are faster when the next one may begin as soon as all of their own blocks have begun.

    python benchmarks/gpu/probes/sooner.py FILE.jsonl [FILE.jsonl ...] [--limit S] [--seconds S] [--out FILE]
    python benchmarks/gpu/probes/sooner.py --shown benchmarks/results/gpu_sooner_h100.jsonl   # what --out has written

FILE is what ``configs.py --out`` writes: the fastest config of each solver (of those within 1.2 of the fastest). Or it
is a result file of `make gpu-bench` (.json): each problem's winner. It is timed as it is, and with
`griddepcontrol.launch_dependents` in front of every wait for the kernel ahead; both kinds interleaved, in rows of
calls. Numbers of both are checked. The second kernel then stands on the SM and has read its arguments when the first
one ends, where there is room for it. Prints a line for each config, and geometric means of the time as it is over the
other one by solver.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2] / "src")]
from checks_worker import CACHE  # noqa: E402
from gpu_cases import accepted  # noqa: E402

from tilesmith.codegen.symbols import parse_symbol  # noqa: E402
from tilesmith.errors import TilesmithError  # noqa: E402
from tilesmith.measure.device_bench import DeviceBench  # noqa: E402
from tilesmith.measure.device_oracle import device_oracle  # noqa: E402
from tilesmith.plan.assemble import assemble  # noqa: E402
from tilesmith.plan.records import Draft, Source  # noqa: E402
from tilesmith.problems.driver import parse_problem  # noqa: E402
from tilesmith.problems.keys import parse_key  # noqa: E402
from tilesmith.problems.rewrite import Signature  # noqa: E402
from tilesmith.problems.samples import sample_args  # noqa: E402
from tilesmith.runtime.executable import Executable  # noqa: E402
from tilesmith.solvers.old_names import read_config  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_target_of  # noqa: E402

WAIT, NEAR, ROUNDS = '"griddepcontrol.wait;"', 1.2, 21
Choice = tuple[str, str]  # solver, config


def choices(paths: list[str]) -> dict[str, list[Choice]]:
    """By problem: the fastest config of each solver that is nearly as fast as the fastest."""
    found: dict[str, dict[str, tuple[float, str]]] = {}
    for path in (path for path in paths if path.endswith(".json")):
        for key, choice in winners(path):
            found[key] = {choice[0]: (1.0, choice[1])}
    for path in (path for path in paths if not path.endswith(".json")):
        for line in map(json.loads, Path(path).read_text().splitlines()):
            if line["all"]:
                config = min(line["all"], key=line["all"].__getitem__)
                found.setdefault(line["key"], {})[line["solver"]] = (line["all"][config], config)
    return {
        key: [(name, config) for name, (us, config) in of.items() if us <= NEAR * min(of.values())[0]]
        for key, of in found.items()
    }


def winners(path: str) -> list[tuple[str, Choice]]:
    """What `make gpu-bench` measured of each problem."""
    return [
        (
            dict(parse_problem(row["command"]).signatures)[row["direction"]].canonical.key(),
            (row["bench"]["solver"], row["bench"]["config"]),
        )
        for rows in json.loads(Path(path).read_text())["lists"].values()
        for row in rows
        if row.get("bench", {}).get("config")
    ]


def sooner(source: Source) -> Source:
    """The same kernel, of another name, that lets the next one begin."""
    if WAIT not in source.prelude + source.text:
        return source
    parts = parse_symbol(source.symbol)
    symbol = str(replace(parts, op=f"{parts.op}sooner"))
    changed = WAIT.replace("griddepcontrol.wait;", "griddepcontrol.launch_dependents; griddepcontrol.wait;")
    prelude, text = (each.replace(WAIT, changed) for each in (source.prelude, source.text))
    return replace(source, symbol=symbol, prelude=prelude, text=text.replace(source.symbol, symbol))


def drafts(signature: Signature, choice: Choice, target) -> dict[str, Draft]:
    solver, config = choice
    candidate = next((each for each in accepted(signature, target) if each.name == solver), None)
    if candidate is None:
        return {}
    made = candidate.solver.draft(candidate.geometry, read_config(candidate.name, config), target)
    names = {source.symbol: sooner(source).symbol for source in made.sources}
    run, prepare = (
        tuple(replace(step, symbol=names[step.symbol]) if hasattr(step, "symbol") else step for step in steps)
        for steps in (made.run, made.prepare)
    )
    other = replace(made, sources=tuple(map(sooner, made.sources)), run=run, prepare=prepare)
    return {"as it is": made, "sooner": other}


def executable(signature: Signature, choice: Choice, draft: Draft, target) -> Executable:
    made = [CACHE.get_or_build(source, target) for source in draft.sources]
    plan = assemble(draft, signature, *choice, target, [artifact.digest for artifact in made])
    return Executable(plan, [next(a.path for a in made if a.digest == digest) for digest in plan.artifacts])


def times(signature: Signature, pairs: dict[Choice, dict[str, Draft]], target, seconds: float) -> dict:
    """Microseconds by choice and kind; of kernels with right numbers."""
    values = sample_args(signature)
    truth = partial(device_oracle, signature, values, target, 0, CACHE)
    bench = DeviceBench(signature, values, truth, target, 0, CACHE)
    calls, names = {}, {}
    for choice, kinds in pairs.items():
        for kind, draft in kinds.items():
            made = executable(signature, choice, draft, target)
            verdict = bench.check(made)
            if verdict.ok:
                name = f"{kind} {' '.join(choice)}"
                calls[name], names[name] = bench.timed.plan(made).run, (choice, kind)
            else:
                print(f"  WRONG {kind} {choice}: {verdict.message}", flush=True)
    found = bench.time(calls, budget_s=seconds, rounds=ROUNDS)
    return {names[name]: timing.median_us for name, timing in found.items()}


def shown(lines: list[dict]) -> None:
    """Geometric means of the time as it is over the other one, by solver."""
    ratios: dict[str, list[float]] = {}
    for line in lines:
        ratios.setdefault(line["solver"].partition("@")[0], []).append(line["as_it_is"] / line["sooner"])
    for solver, each in sorted(ratios.items()):
        mean = statistics.geometric_mean(each)
        print(f"{solver}: {mean:.3f} times as fast sooner, least {min(each):.3f}, {len(each)} configs")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--shown", action="store_true", help="only print the means of files that --out has written")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds on the device after which none is begun")
    parser.add_argument("--seconds", type=float, default=0.15, help="of timing, for each problem")
    parser.add_argument("--out", default="sooner.jsonl")
    args = parser.parse_args()
    if args.shown:
        shown([json.loads(line) for path in args.files for line in Path(path).read_text().splitlines()])
        return 0
    target = cuda_target_of(0)
    found = {key: (parse_key(key).canonical, of) for key, of in choices(args.files).items()}
    all_drafts = {
        key: {choice: made for choice in of if (made := drafts(signature, choice, target))}
        for key, (signature, of) in found.items()
    }
    sources = {
        source.symbol: source
        for of in all_drafts.values()
        for kinds in of.values()
        for draft in kinds.values()
        for source in draft.sources
    }
    began = time.monotonic()
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda source: CACHE.get_or_build(source, target), sources.values()))
    print(f"{len(sources)} sources compiled in {time.monotonic() - began:.1f} s", flush=True)
    lines: list[dict] = []
    until = time.monotonic() + args.limit
    for key, of in all_drafts.items():
        if time.monotonic() > until:
            break
        try:
            us = times(found[key][0], of, target, args.seconds)
        except TilesmithError as error:
            print(f"  FAILED {key}: {error}"[:400], flush=True)
            continue
        for choice in of:
            pair = [us.get((choice, kind)) for kind in ("as it is", "sooner")]
            if None in pair:
                continue
            lines.append({"key": key, "solver": choice[0], "config": choice[1], "as_it_is": pair[0], "sooner": pair[1]})
            print(f"{pair[0]:9.2f} us, sooner {pair[1]:9.2f}  {choice[0]:22} {key}", flush=True)
            with open(args.out, "a") as out:
                out.write(json.dumps(lines[-1]) + "\n")
    shown(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
