"""What Nsight Compute says of kernels: how busy each unit was, and what warps waited for.

    python benchmarks/gpu/probes/profiled.py [FILE]

FILE has lines KEY|SOLVER|CONFIG, with what differs from the untuned choice (default: three kernels of deconv.txt).
Each is compiled, run twice, and its second run is measured by `ncu`, which must be on the path.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2] / "src"), str(HERE)]
from configs import CACHE, accepted, compiled, cuda_target_of, parse_key, sample_args  # noqa: E402

from tilesmith.measure.device_bench import DeviceBench  # noqa: E402
from tilesmith.solvers.old_names import read_config  # noqa: E402

_BF16 = "conv1;{0};x=bf16,NHWC,{1};w=bf16,NHWC,{2};y=bf16,NHWC;stride={3};pad={4};dil=1x1;groups=1;acc=fp32"
SHOWN = (
    _BF16.format("bwd", "8x512x512x21", "21x16x16x21", "8x8", "4x4")
    + "|wgmma_phases@wide|tile_h=4 tile_w=13 warps_m=4",
    _BF16.format("fwd", "4x360x480x1", "56x9x9x1", "3x3", "4x4") + "|first_layer|",
    _BF16.format("fwd", "8x128x128x128", "256x3x3x128", "2x2", "1x1") + "|wgmma_conv|",
)
METRICS = {
    "gpu__time_duration.sum": "ns",
    "launch__registers_per_thread": "registers",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "% warps",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "% issue slots",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "% DRAM",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "% L2",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed": "% shared memory",
    **{
        f"smsp__average_warps_issue_stalled_{why}_per_issue_active.ratio": f"waits: {why}"
        for why in ("barrier", "long_scoreboard", "short_scoreboard", "mio_throttle", "wait", "math_pipe_throttle",
                    "lg_throttle", "membar", "gmma", "branch_resolve", "no_instruction", "sleeping")
    },
}  # fmt: skip


def ran(line: str) -> None:
    """The process under `ncu`: the kernels of a line twice, their numbers unchecked."""
    key, solver, config = line.split("|")
    target, signature = cuda_target_of(0), parse_key(key).canonical
    candidate = next(each for each in accepted(signature, target) if each.name == solver)
    default = candidate.solver.default_config(candidate.geometry, target)
    chosen = default.replace(**dict(read_config(solver, config).values)) if config else default
    bench = DeviceBench(signature, sample_args(signature), lambda: None, target, 0, CACHE)
    plan = bench.checker.plan(compiled(signature, (candidate, chosen, 0.0), target))
    plan.prepare()
    for _ in range(2):
        plan.run()
    bench.checker.finish()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--line", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.line:
        ran(args.line)
        return 0
    for line in args.file.read_text().splitlines() if args.file else SHOWN:
        words = ["ncu", "--csv", "--page", "raw", "--kernel-name", "regex:^ts_", "--metrics", ",".join(METRICS),
                 sys.executable, str(HERE / "profiled.py"), "--line", line]  # fmt: skip
        said = subprocess.run(words, capture_output=True, text=True, check=False)
        head, *rows = [row for row in csv.reader(said.stdout.splitlines()) if len(row) > 5] or [[]]
        if not rows:
            print(line, said.stdout[-600:], said.stderr[-600:], sep="\n", flush=True)
        # The second run of each; those that check numbers run too.
        named = ((row[head.index("Kernel Name")], row) for row in rows)
        last = {name: row for name, row in named if name and not name.startswith(("ts_reference", "ts_check"))}
        for kernel, row in last.items():
            print(f"{line}\n  {kernel}", flush=True)
            for name, told in METRICS.items():
                if name in head:
                    print(f"  {row[head.index(name)]:>12} {told}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
