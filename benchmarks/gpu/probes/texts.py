"""The kernels of another tree beside this tree's: the same problems and configs, checked, and timed in turns.

    OTHER/.venv/bin/python benchmarks/gpu/probes/texts.py FILE --write DRAFTS [--target NAME]     needs no GPU
    python benchmarks/gpu/probes/texts.py FILE DRAFTS [--seconds S] [--limit S] [--lock FILE] [--every N]

OTHER is a checkout after `make setup` there, whose texts the first command writes to DRAFTS. A line of FILE is a
problem's key, a tab, a solver, a space and a config. The second command compiles all kernels of both trees; then, while
the lock is held, both kernels of a line are checked against the device's reference and timed, interleaved, in rows of
calls. Prints a line for each: both times, and the time before over the time after; at the end the geometric mean and
the least by solver. The exit status is 1 when numbers are wrong or a line could not be measured.
"""

from __future__ import annotations

import argparse
import fcntl
import pickle
import statistics
import sys
import time
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from gpu_cases import accepted  # noqa: E402

from tilesmith.plan.records import Draft  # noqa: E402
from tilesmith.problems.keys import parse_key  # noqa: E402
from tilesmith.solvers.solver import parse_config  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_target_of  # noqa: E402
from tilesmith.targets.names import as_target  # noqa: E402

ROUNDS = 31
Line = tuple[str, str, str]  # key, solver, config


def lines_of(path: str) -> list[Line]:
    found = [line.split("\t") for line in Path(path).read_text().splitlines() if "\t" in line]
    return [(key, *pick.split(" ", 1)) for key, pick in found]


def drafts(lines: list[Line], target) -> list[Draft | str]:
    """Of the tree that is imported; why there is none."""
    made = list[Draft | str]()
    for key, solver, config in lines:
        try:
            candidate = next(c for c in accepted(parse_key(key).canonical, target) if c.name == solver)
            made.append(candidate.solver.draft(candidate.geometry, parse_config(config), target))
        except Exception as error:  # a line that is told, and the others go on
            made.append(f"{type(error).__name__}: {error}")
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("drafts", nargs="?", type=Path)
    parser.add_argument("--write", type=Path, metavar="DRAFTS")
    parser.add_argument("--target", default="sm_90a:132:h100", help="of the drafts that are written")
    parser.add_argument("--every", type=int, default=1, help="each Nth line alone")
    parser.add_argument("--seconds", type=float, default=0.5, help="of timing, for each line")
    parser.add_argument("--limit", type=float, default=200.0, help="seconds on the device after which none is begun")
    parser.add_argument("--lock", default="/tmp/gpu.lock", help="held while the device is used")
    args = parser.parse_args()
    lines = lines_of(args.file)
    if args.write:
        args.write.write_bytes(pickle.dumps(drafts(lines, as_target(args.target))))
        return 0
    from configs import build_all

    target = cuda_target_of(0)
    before = pickle.loads(args.drafts.read_bytes())
    rows = list(zip(lines, zip(before, drafts(lines, target), strict=True), strict=True))[:: args.every]
    build_all((s for _, pair in rows for draft in pair if isinstance(draft, Draft) for s in draft.sources), target)
    ratios, failed = dict[str, list[float]](), 0
    with open(args.lock, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        until = time.monotonic() + args.limit
        for number, (line, pair) in enumerate(rows):
            if time.monotonic() > until:
                print(f"the limit is reached before line {number + 1}")
                break
            told, ratio = measured(line, pair, target, args.seconds)
            print(f"{told}  {line[1]} {line[2]} {line[0]}"[:240], flush=True)
            if ratio is None:
                failed += 1
            else:
                ratios.setdefault(line[1].partition("@")[0], []).append(ratio)
    for solver, found in sorted(ratios.items()):
        print(
            f"{solver}: before / after {statistics.geometric_mean(found):.4f} (geometric mean of {len(found)}), "
            f"least {min(found):.3f}, most {max(found):.3f}"
        )
    print(f"{failed} of {len(rows)} lines failed")
    return 1 if failed else 0


def measured(line: Line, pair: tuple[Draft | str, Draft | str], target, seconds: float) -> tuple[str, float | None]:
    """What to print, and the time before over the time after; None where numbers are wrong."""
    from checks_worker import CACHE

    from tilesmith.measure.device_bench import DeviceBench
    from tilesmith.measure.device_oracle import device_oracle
    from tilesmith.plan.assemble import assemble
    from tilesmith.problems.samples import sample_args
    from tilesmith.runtime.executable import Executable

    signature = parse_key(line[0]).canonical
    values = sample_args(signature)
    bench = DeviceBench(
        signature, values, partial(device_oracle, signature, values, target, 0, CACHE), target, 0, CACHE
    )
    calls = {}
    for name, draft in zip(("before", "after"), pair, strict=True):
        if isinstance(draft, str):
            return f"FAILED {name}: {draft}"[:300], None
        made = [CACHE.get_or_build(source, target) for source in draft.sources]
        plan = assemble(draft, signature, line[1], line[2], target, [artifact.digest for artifact in made])
        executable = Executable(plan, [next(a.path for a in made if a.digest == d) for d in plan.artifacts])
        verdict = bench.check(executable)
        if not verdict.ok:
            return f"WRONG {name}: {verdict.message}", None
        calls[name] = bench.timed.plan(executable).run
    timing = bench.time(calls, budget_s=seconds, rounds=ROUNDS)
    before, after = timing["before"].median_us, timing["after"].median_us
    return f"{before:9.2f} us before, {after:9.2f} us after, {before / after:.3f}", before / after


if __name__ == "__main__":
    sys.exit(main())
