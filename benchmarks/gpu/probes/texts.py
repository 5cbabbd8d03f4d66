"""The kernels of another tree beside this tree's: the same problems and configs, checked, and timed in turns.

    OTHER/.venv/bin/python benchmarks/gpu/probes/texts.py FILE --write DRAFTS [--target NAME]     needs no GPU
    python benchmarks/gpu/probes/texts.py FILE DRAFTS ... [--calls N] [--seconds S] [--limit S] [--lock FILE]
                                                          [--every N]

OTHER is a checkout after `make setup` there, whose texts the first command writes to DRAFTS. A line of FILE is a
problem's key, a tab, a solver, a space and a config. The second command compiles the kernels of all DRAFTS and of this
tree; then, while the lock is held, those of a line are checked against the device's reference and timed, interleaved,
in rows of calls (of N: 1 for single ones). Prints a line for each: its times, and those of DRAFTS over this tree's; at
the end the geometric mean and the least by solver. The exit status is 1 when numbers are wrong or a line could not be
measured.
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
from tilesmith.targets.names import parse_target  # noqa: E402
from tilesmith.targets.target import CudaTarget  # noqa: E402

ROUNDS = 31
THIS = "here"
Line = tuple[str, str, str]  # key, solver, config


def lines_of(path: str) -> list[Line]:
    found = [line.split("\t") for line in Path(path).read_text().splitlines() if "\t" in line]
    return [(key, *pick.split(" ", 1)) for key, pick in found]


def drafts(lines: list[Line], target: CudaTarget) -> list[Draft | str]:
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
    parser.add_argument("drafts", nargs="*", type=Path)
    parser.add_argument("--write", type=Path, metavar="DRAFTS")
    parser.add_argument("--target", default="sm_90a:132:h100", help="of the drafts that are written")
    parser.add_argument("--every", type=int, default=1, help="each Nth line alone")
    parser.add_argument("--calls", type=int, help="in a row, if not as many as the problem's other times have")
    parser.add_argument("--seconds", type=float, default=0.5, help="of timing, for each line")
    parser.add_argument("--limit", type=float, default=200.0, help="seconds on the device after which none is begun")
    parser.add_argument("--lock", default="/tmp/gpu.lock", help="held while the device is used")
    args = parser.parse_args()
    lines = lines_of(args.file)
    if args.write:
        args.write.write_bytes(pickle.dumps(drafts(lines, parse_target(args.target))))
        return 0
    from configs import build_all

    target = cuda_target_of(0)
    made = {path.stem: pickle.loads(path.read_bytes()) for path in args.drafts} | {THIS: drafts(lines, target)}
    rows = [(line, {n: d[i] for n, d in made.items()}) for i, line in enumerate(lines)][:: args.every]
    build_all(
        (s for _, texts in rows for draft in texts.values() if isinstance(draft, Draft) for s in draft.sources), target
    )
    ratios, failed = dict[tuple[str, str], list[float]](), 0
    with open(args.lock, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        until = time.monotonic() + args.limit
        for number, (line, texts) in enumerate(rows):
            if time.monotonic() > until:
                print(f"the limit is reached before line {number + 1}")
                break
            told, times = measured(line, texts, target, args.seconds, args.calls)
            print(f"{told}  {line[1]} {line[2]} {line[0]}"[:240], flush=True)
            failed += not times
            for name in times.keys() - {THIS}:
                ratios.setdefault((line[1].partition("@")[0], name), []).append(times[name] / times[THIS])
    for (solver, name), found in sorted(ratios.items()):
        print(
            f"{solver}: {name} / {THIS} {statistics.geometric_mean(found):.4f} (geometric mean of {len(found)}), "
            f"least {min(found):.3f}, most {max(found):.3f}"
        )
    print(f"{failed} of {len(rows)} lines failed")
    return 1 if failed else 0


def measured(
    line: Line, texts: dict[str, Draft | str], target: CudaTarget, seconds: float, in_row: int | None
) -> tuple[str, dict[str, float]]:
    """What to print, and the median microseconds by the name of the text; none where numbers are wrong."""
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
    for name, draft in texts.items():
        if isinstance(draft, str):
            return f"FAILED {name}: {draft}"[:300], {}
        made = [CACHE.get_or_build(source, target) for source in draft.sources]
        plan = assemble(draft, signature, line[1], line[2], target, [artifact.digest for artifact in made])
        executable = Executable(plan, [next(a.path for a in made if a.digest == d) for d in plan.artifacts])
        verdict = bench.check(executable)
        if not verdict.ok:
            return f"WRONG {name}: {verdict.message}", {}
        calls[name] = bench.timed.plan(executable).run
    timing = bench.time(calls, budget_s=seconds, rounds=ROUNDS, calls=in_row)
    us = {name: timing[name].median_us for name in texts}
    ratios = " ".join(f"{us[name] / us[THIS]:.3f}" for name in us if name != THIS)
    return f"{ratios} of {us[THIS]:9.2f} us", us


if __name__ == "__main__":
    sys.exit(main())
