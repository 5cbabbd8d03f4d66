"""Groups of rows beside cuBLAS in a loop and ``torch._grouped_mm``, each recorded as a CUDA graph.

    python benchmarks/gpu/probes/groups.py FILE.jsonl       prints what such a run has written
    python benchmarks/gpu/probes/groups.py [LIST] [--configs N] [--seconds S] [--out FILE]

For each problem of benchmarks/problems/LIST.txt (default: gemm_grouped), with even and with skewed groups: the untuned
config and the N others of the least estimate against a ``torch.mm`` for each group that has rows, whose sizes the graph
knows beforehand, and ``torch._grouped_mm``. Numbers are compared with those of the loop. Times are of calls in a row:
the median of seven, all ways interleaved. FILE gets a JSON line for each problem and kind of groups.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[2] / "src")]
from checks_worker import CACHE  # noqa: E402
from configs import build_all  # noqa: E402
from gpu_cases import listed  # noqa: E402

from tilesmith.plan.assemble import assemble  # noqa: E402
from tilesmith.plan.records import Source  # noqa: E402
from tilesmith.problems.keys import parse_key  # noqa: E402
from tilesmith.runtime.executable import Executable  # noqa: E402
from tilesmith.solvers.cuda.row_groups.solver import RowGroupsSolver  # noqa: E402
from tilesmith.solvers.solver import Config, parse_config  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_target_of  # noqa: E402
from tilesmith.targets.names import parse_target  # noqa: E402

SOLVER = RowGroupsSolver()
RIVALS = ("loop", "grouped_mm")
ROUNDS = 7
FIRST = "sm_90a:132:h200"  # of the first files, whose rows name no target


def sizes_of(kind: str, rows: int, groups: int) -> np.ndarray:
    """Rows of each group: as even as can be, or as a power of a group's random rank."""
    if kind == "even":
        return np.diff(np.arange(groups + 1) * rows // groups)
    rng = np.random.default_rng(3)
    share = rng.permutation(1.0 / np.arange(1, groups + 1) ** 0.8)
    return rng.multinomial(rows, share / share.sum())


def built(signature, config, target) -> Executable:
    draft = SOLVER.draft(signature.geometry, config, target)
    made = [CACHE.get_or_build(source, target) for source in draft.sources]
    plan = assemble(draft, signature, SOLVER.name, str(config), target, [artifact.digest for artifact in made])
    return Executable(plan, [artifact.path for artifact in made])


def configs_of(signature, count: int, target) -> list[Config]:
    """The untuned config, and ``count`` others of the least estimate."""
    return list(SOLVER.ranked(signature.geometry, target)[: count + 1])


def sources_of(signature, count: int, target) -> Iterator[Source]:
    for config in configs_of(signature, count, target):
        yield from SOLVER.draft(signature.geometry, config, target).sources


def timed(calls: dict, count: int) -> dict[str, float]:
    """Median microseconds of a call."""
    import torch

    graphs, found = {}, {name: [] for name in calls}
    for name, call in calls.items():
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            for _ in range(count):
                call()
        graphs[name].replay()
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            events[0].record()
            graph.replay()
            events[1].record()
            found[name].append(events)
    torch.cuda.synchronize()
    median = {name: statistics.median(a.elapsed_time(b) for a, b in pairs) for name, pairs in found.items()}
    return {name: 1e3 * ms / count for name, ms in median.items()}


def measured(signature, a, b, kind: str, target, configs: int) -> dict:
    import torch

    ends = np.cumsum(sizes_of(kind, signature.m, signature.groups)).astype(np.int32)
    on_device = torch.from_numpy(ends).cuda()
    result, other = (torch.empty(signature.c_shape, dtype=a.dtype, device="cuda") for _ in range(2))

    def loop() -> None:
        for first, end, matrix in zip([0, *ends.tolist()], ends.tolist(), b, strict=False):
            if end > first:
                torch.mm(a[first:end], matrix, out=other[first:end])

    def runner(executable):
        slots = [tensor.data_ptr() for tensor in (a, b, on_device, result)]
        return lambda: executable.run_on(0, torch.cuda.current_stream().cuda_stream, slots, 0, 0)

    loop()
    calls = {"loop": loop, "grouped_mm": lambda: torch._grouped_mm(a, b, offs=on_device)}
    calls["grouped_mm"]()
    wrong = []
    for config in configs_of(signature, configs, target):
        call = runner(built(signature, config, target))
        result.fill_(float("nan"))
        call()
        difference = (result.float() - other.float()).abs().max() / other.float().abs().max()
        if float(difference) < 0.01:  # not so where it is NaN
            calls[str(config)] = call
        else:
            wrong.append(str(config))
    count = 5 if signature.m * signature.n * signature.k < 4e11 else 2
    row = {"key": signature.key(), "target": target.name, "kind": kind}
    return row | {"us": timed(calls, count), "wrong": wrong}


def show(row: dict) -> list[tuple[float, float]]:
    """Prints a line. Returns the rivals' times over those of the untuned config (today's if it was timed), and over
    the fastest's."""
    signature, us, target = parse_key(row["key"]), dict(row["us"]), parse_target(row.get("target", FIRST))
    theirs = [us.pop(name) for name in RIVALS]
    space = SOLVER.search_space(signature.geometry, target)
    tried = {config: t for config, t in us.items() if space.contains(parse_config(config))}
    untuned = str(SOLVER.default_config(signature.geometry, target))
    # Bands change nothing where no group has so many tiles, and were not all timed there.
    alike = [config for config in tried if config.rpartition(" ")[0] == untuned.rpartition(" ")[0]]
    first = next(iter(tried))  # the untuned config of the day on which they were timed
    ours = tried[untuned if untuned in tried else next(iter(alike), first)]
    best = min(tried.values())
    print(f"{signature.groups:4} groups, {signature.m:6} rows, n {signature.n:5}, k {signature.k:5}, {row['kind']:6}: "
          f"untuned {ours:7.1f} us, {2e-6 * signature.m * signature.n * signature.k / ours:4.0f} TFLOP/s; over it "
          f"{', '.join(f'{name} {t / ours:.3f}' for name, t in zip(RIVALS, theirs, strict=True))}; fastest {best:.1f}",
          flush=True)  # fmt: skip
    return [(t / ours, t / best) for t in theirs]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", default="gemm_grouped", metavar="LIST")
    parser.add_argument("--configs", type=int, default=0, metavar="N")
    parser.add_argument("--seconds", type=float, default=600.0, help="after which no problem is begun")
    parser.add_argument("--out", default="groups.jsonl")
    args = parser.parse_args()
    ratios = []
    if args.what.endswith(".jsonl"):
        ratios = [show(json.loads(line)) for line in Path(args.what).read_text().splitlines()]
    else:
        import torch

        target = cuda_target_of(0)
        signatures = [signature for _, _, signature in listed(args.what)]
        build_all((source for each in signatures for source in sources_of(each, args.configs, target)), target)
        until = time.monotonic() + args.seconds
        for signature in signatures:
            shapes = signature.a_shape, signature.b_shape
            a, b = (torch.randn(shape, dtype=torch.bfloat16, device="cuda") for shape in shapes)
            for kind in ("even", "skewed") if time.monotonic() < until else ():
                row = measured(signature, a, b, kind, target, args.configs)
                with open(args.out, "a") as out:
                    out.write(json.dumps(row) + "\n")
                ratios.append(show(row))
            del a, b
    for name, each in zip(RIVALS, zip(*ratios, strict=True), strict=True):
        untuned, best = zip(*each, strict=True)
        words = [f"{statistics.geometric_mean(r):.3f} (least {min(r):.3f})" for r in (untuned, best)]
        print(f"{name} over ours, geometric mean of {len(untuned)}: untuned {words[0]}, the fastest config {words[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
