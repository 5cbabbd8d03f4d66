"""Products by the wgmma kernel with constants of ``wgmma/tile.py`` changed, beside cuBLAS, in rows and in single calls.

    python benchmarks/gpu/probes/variants.py WHAT PROBLEMS [--configs N] [--seconds S] [--limit S] [--out FILE]
    python benchmarks/gpu/probes/variants.py FILE.jsonl [--of V ... --over V ...]    prints what such a run has written

PROBLEMS is a file of lines ``M N K nn|nt|tn|tt [DTYPE]``, fp16 if none is named. WHAT is ``clusters``: each size of
clusters (``cluster_m``); or ``early``: the next kernel may begin when blocks have ended, or when their last copies are
under way. Of each variant the N configs of the least estimates are compiled, checked on the
device, and timed, interleaved. With --of and --over, prints how much faster the fastest of the former variants is than
that of the latter, and of how many products.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[2] / "src")]
from configs import CACHE, build_all, rows_in_time  # noqa: E402

from tilesmith.compare.rival import Setting, rivals_of  # noqa: E402
from tilesmith.errors import TilesmithError  # noqa: E402
from tilesmith.measure.device_bench import DeviceBench  # noqa: E402
from tilesmith.measure.device_oracle import device_oracle  # noqa: E402
from tilesmith.plan.assemble import assemble  # noqa: E402
from tilesmith.plan.records import Draft  # noqa: E402
from tilesmith.problems.gemm import GemmSignature  # noqa: E402
from tilesmith.problems.rewrite import Signature  # noqa: E402
from tilesmith.problems.samples import sample_args  # noqa: E402
from tilesmith.runtime.executable import Executable  # noqa: E402
from tilesmith.solvers.cuda.wgmma import tile as tiles  # noqa: E402
from tilesmith.solvers.cuda.wgmma.solver import GemmSm90Solver  # noqa: E402
from tilesmith.solvers.cuda.wgmma.space import Space  # noqa: E402
from tilesmith.solvers.cuda.wgmma.tile import CLUSTERS  # noqa: E402
from tilesmith.solvers.external import library  # noqa: E402
from tilesmith.solvers.solver import Config  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_target_of  # noqa: E402

ROUNDS, ENDLESS, BEST = 21, 10**9, 2


@dataclass(frozen=True)
class Variant:
    """Constants of ``wgmma/tile.py``, and the sizes of clusters that are timed with them."""

    constants: dict[str, int] = field(default_factory=dict)
    clusters: tuple[int, ...] = (1, 4, 42)


VARIANTS: dict[str, dict[str, Variant]] = {
    "clusters": {str(size): Variant(clusters=(size,)) for size in CLUSTERS},
    "early": {
        "never": Variant({"SHORT_SUMS": 0, "NARROW": ENDLESS}, (1,)),
        "last": Variant({"NARROW": 0}, (1,)),
    },
}
Found = dict[str, tuple[Config, Draft]]
SOLVER = GemmSm90Solver()


@contextmanager
def changed(constants: dict[str, int]) -> Iterator[None]:
    before = {name: getattr(tiles, name) for name in constants}
    try:
        for name, value in constants.items():
            setattr(tiles, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(tiles, name, value)


def problems(path: str) -> list[Signature]:
    found = []
    for line in Path(path).read_text().splitlines():
        m, n, k, order, dtype = (*line.split(), "fp16")[:5]
        trans_a, trans_b = (of == "t" for of in order)
        found.append(GemmSignature(int(m), int(n), int(k), dtype=dtype, trans_a=trans_a, trans_b=trans_b).canonical)
    return found


def drafts(what: str, most: int, target, signature: Signature) -> Found:
    """By ``VARIANT|CONFIG``: of each size of clusters, the configs of the least estimates, of different tiles."""
    found: Found = {}
    geometry = signature.geometry
    for name, variant in VARIANTS[what].items():
        with changed(variant.constants):
            seen: dict[int, set] = {size: set() for size in variant.clusters}
            for config in Space(SOLVER.forms(geometry), target).ranked(ENDLESS):
                tile = SOLVER.tile(geometry, config, target)
                of_cast = seen.get(config["cluster_m"])
                size = tile.block_m, tile.block_n, config["swap_mn"], config["cluster_k"], config["split_k"]
                if of_cast is None or len(of_cast) == most or size in of_cast or tile.parts > 1:
                    continue
                of_cast.add(size)
                words = [f"{key}={value}" for key, value in config.values if value != PLAIN.get(key, value)]
                found[f"{name}|{' '.join(words)}"] = config, SOLVER.draft(geometry, config, target)
    return found


PLAIN = {
    "warpgroups": 0, "products_m": 0, "block_n": 0, "pingpong": 0, "cluster_k": 1, "split_k": 1, "group_m": 0,
    "swap_mn": 0, "blocks_per_sm": 1, "cluster_m": 1, "stages": 0, "resident": 0,
}  # fmt: skip


def measured(what: str, signature: Signature, found: Found, target, seconds: float) -> dict:
    values = sample_args(signature)
    truth = partial(device_oracle, signature, values, target, 0, CACHE)
    bench = DeviceBench(signature, values, truth, target, 0, CACHE)
    calls, wrong = {}, []
    for name, (config, draft) in found.items():
        made = [CACHE.get_or_build(source, target) for source in draft.sources]
        plan = assemble(draft, signature, SOLVER.name, str(config), target, [artifact.digest for artifact in made])
        each = Executable(plan, [next(a.path for a in made if a.digest == digest) for digest in plan.artifacts])
        verdict = bench.check(each)
        if verdict.ok:
            calls[name] = bench.timed.plan(each).run
        else:
            wrong.append(name)
            print(f"  WRONG {name}: {verdict.message}", flush=True)
    setting = Setting(signature, values, target, 0, bench.checker.stream.handle, bench.calls)
    row: dict = {"key": signature.key(), "wrong": wrong}
    with ExitStack() as held:
        for way in held.enter_context(rivals_of(target)["cublas"].ways(setting)):
            calls[f"cublas: {way.name}"] = partial(lambda ways, place: ways[place](), way.calls)
        for kind, count in (("rows", bench.calls), ("single", 1)):
            timing = bench.time(calls, budget_s=seconds, rounds=ROUNDS, drop_ratio=1.6, calls=count)
            row[kind] = {name: round(each.median_us, 3) for name, each in timing.items()}
            if kind == "rows":
                kept = [
                    name
                    for variant in (*(f"{each}|" for each in VARIANTS[what]), "cublas:")
                    for name in sorted((n for n in row[kind] if n.startswith(variant)), key=row[kind].__getitem__)[
                        :BEST
                    ]
                ]
                calls = {name: calls[name] for name in kept}
    library.empty_cache()
    show(row)
    return row


def least(times: dict[str, float], variant: str) -> tuple[float, str]:
    return min(((us, name) for name, us in times.items() if name.startswith(variant)), default=(float("nan"), ""))


def show(row: dict) -> None:
    print(row["key"])
    for kind in ("rows", "single"):
        theirs = least(row[kind], "cublas:")[0]
        for variant in dict.fromkeys(name.partition("|")[0] for name in row[kind] if "|" in name):
            us, name = least(row[kind], f"{variant}|")
            print(f"  {kind:6} {us:8.2f} us, {theirs / us:5.3f} of cuBLAS  {name}", flush=True)


def summary(rows: list[dict]) -> None:
    for kind in ("rows", "single"):
        variants = list(dict.fromkeys(name.partition("|")[0] for row in rows for name in row[kind] if "|" in name))
        for variant in variants:
            pairs = [
                (least(row[kind], "cublas:")[0] / least(row[kind], f"{variant}|")[0],
                 least(row[kind], f"{variants[0]}|")[0] / least(row[kind], f"{variant}|")[0])
                for row in rows if least(row[kind], f"{variant}|")[1] and least(row[kind], f"{variants[0]}|")[1]
            ]  # fmt: skip
            if pairs:
                theirs, first = (statistics.geometric_mean(each) for each in zip(*pairs, strict=True))
                print(f"{kind} {variant}: {theirs:.3f} of cuBLAS (least {min(pairs)[0]:.3f}), {first:.3f} times as "
                      f"fast as {variants[0]} (least {min(each for _, each in pairs):.3f}), {len(pairs)} problems",
                      flush=True)  # fmt: skip


def gains(rows: list[dict], of: list[str], over: list[str]) -> None:
    for kind in ("rows", "single"):
        found = [
            [
                min(least(row[kind], f"{each}|")[0] for each in some if least(row[kind], f"{each}|")[1])
                for some in (over, of)
            ]
            for row in rows
        ]
        ratios = [before / after for before, after in found]
        gained = [each for each in ratios if each > 1.01]
        print(f"{kind} {' '.join(of)} over {' '.join(over)}: {statistics.geometric_mean(ratios):.3f} (least "
              f"{min(ratios):.3f}), {len(ratios)} problems; {statistics.geometric_mean(gained):.3f} (most "
              f"{max(gained):.3f}) of {len(gained)} that gain more than 1 %")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what")
    parser.add_argument("problems", nargs="?")
    parser.add_argument("--configs", type=int, default=8, metavar="N")
    parser.add_argument("--seconds", type=float, default=0.5, help="of timing rows, and single calls, of a problem")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds on the device after which none is begun")
    parser.add_argument("--of", nargs="+", metavar="VARIANT")
    parser.add_argument("--over", nargs="+", metavar="VARIANT")
    parser.add_argument("--out", type=Path, default=Path("variants.jsonl"))
    args = parser.parse_args()
    if args.what.endswith(".jsonl"):
        rows = [json.loads(line) for line in Path(args.what).read_text().splitlines()]
        for row in rows:
            show(row)
        summary(rows)
        if args.of and args.over:
            gains(rows, args.of, args.over)
        return 0
    target, all_problems = cuda_target_of(0), problems(args.problems)
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        made = list(pool.map(partial(drafts, args.what, args.configs, target), all_problems))
    build_all((source for some in made for _, draft in some.values() for source in draft.sources), target)
    pairs = zip(all_problems, made, strict=True)
    tasks = (partial(attempt, args.what, each, found, target, args.seconds) for each, found in pairs)
    summary([row for row in rows_in_time(tasks, args.limit, args.out) if "rows" in row])
    return 0


def attempt(what: str, signature: Signature, found: Found, target, seconds: float) -> dict:
    try:
        return measured(what, signature, found, target, seconds)
    except TilesmithError as error:
        print(f"  FAILED {signature.key()}: {error}"[:600], flush=True)
        return {"key": signature.key(), "failed": str(error)[:600]}


if __name__ == "__main__":
    sys.exit(main())
