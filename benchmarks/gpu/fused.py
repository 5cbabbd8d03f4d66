"""Fused problems on a GPU: what bias, activation and residual cost beside the plain problem, and the rivals' times.

    python benchmarks/gpu/fused.py [--time-limit SECONDS] [--tune-seconds S] [--seconds S] [--sample N] [--first I]
                                   [--again] [--without FILE ...] [--out FILE]
    python benchmarks/gpu/fused.py --shown FILE ...      prints the figures of these results together

Each problem of benchmarks/problems/fused.txt, and the same problem without its epilogue, is tuned and measured. Rivals
of a fused problem are cuDNN's fused call, a convolution with one generated pass behind it, and PyTorch's operators one
after another. benchmarks/results/gpu_fused_<card>.json holds what is done, so that a run that was stopped goes on.

``bias_activation`` is the time of a fused problem without residual over that of the plain one. A problem with a
residual is allowed 1.03 times the plain one's time, and the time of the residual's bytes at 4.3 TB/s (an H200's memory;
an H100's has 3.35): ``residual_over_allowed``, and ``residuals_within``, the share of them that keep to it.
``library_over_ours`` is the time of the fastest rival over that of the fused problem. All but the share are geometric
means.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src")]
import tables  # noqa: E402
from bench_worker import Problems  # noqa: E402
from gpu_cases import listed  # noqa: E402

from tilesmith.errors import TilesmithError  # noqa: E402
from tilesmith.plan.slots import arguments  # noqa: E402
from tilesmith.problems.epilogue import IDENTITY  # noqa: E402
from tilesmith.problems.keys import parse_key  # noqa: E402
from tilesmith.problems.rewrite import Signature  # noqa: E402
from tilesmith.solvers.generation import generator_digest  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_devices  # noqa: E402

FOLDER = ROOT / "build" / "gpu-fused"
RESIDUAL_SPEED = 4.3e12  # bytes a second that reading a residual may take
SLACK = 1.03
NEEDED_S = 10.0  # of a problem, beside its tuning and
NEEDED_EACH_S = 5e-8  # of each element of its result


def measured(problems: Problems, signature: Signature, options: argparse.Namespace, against: bool) -> dict:
    tune = {"trials": 0, "speedup": None}
    if options.tune_seconds:
        tune = problems.tuned(signature, options.tune_seconds)
    rivals, problems.rivals = problems.rivals, problems.rivals if against else ()
    try:
        found = problems.benched(problems.launchable(signature, external=False), options.seconds)
    finally:
        problems.rivals = rivals
    return found | {"trials": tune["trials"], "untuned": tune["speedup"]}


def row_of(problems: Problems, signature: Signature, plains: dict[str, dict], options: argparse.Namespace) -> dict:
    plain, name = plain_of(signature), plain_of(signature).key()
    began = time.monotonic()
    if name not in plains:
        plains[name] = measured(problems, plain, options, False)
    first = time.monotonic()
    fused, result = measured(problems, signature, options, True), arguments(signature)[-1]
    more = result.nbytes / RESIDUAL_SPEED * 1e6 if signature.epilogue.residual else 0.0
    fused["allowed_us"] = plains[name]["time_us"] * SLACK + more
    seconds = {"plain": round(first - began, 1), "fused": round(time.monotonic() - first, 1)}
    return {"key": signature.key(), "plain": plains[name], "fused": fused, "generator": generator_digest("cuda"),
            "seconds": seconds}  # fmt: skip


def needed_s(signature: Signature) -> float:
    """About what a problem takes, beside its tuning."""
    return NEEDED_S + NEEDED_EACH_S * math.prod(arguments(signature)[-1].shape)


def line_of(row: dict) -> str:
    key, plain, fused = row["key"], row["plain"], row["fused"]
    against = ", ".join(f"{name} {them['mode']} {them['time_us']:.1f}" for name, them in fused["against"].items())
    times = f"plain {plain['time_us'] or 0:.1f}, fused {fused['time_us'] or 0:.1f}, {against}"
    if has_residual(row):
        times += f", allowed {fused['allowed_us']:.1f}"
    chosen = f"{fused['solver']} {fused['config']} {fused['status']} {fused['reason'][:90]}"
    took = sum(row["seconds"].values())
    return f"{' '.join(key.split(';')[2:4])} {key.rpartition('epi=')[2]}: {times}; {chosen}; {took:.0f} s"


def has_residual(row: dict) -> bool:
    return "residual" in row["key"].rpartition("epi=")[2]


def summary(rows: list[dict]) -> dict[str, float]:
    """The figures, geometric means over the rows that have both times."""
    good = [row for row in rows if "ok" == row["fused"]["status"] == row["plain"]["status"]]
    split: dict[str, list[float]] = {"bias_activation": [], "residual_over_allowed": [], "library_over_ours": []}
    for row in good:
        fused, plain = row["fused"], row["plain"]
        if has_residual(row):
            split["residual_over_allowed"].append(fused["time_us"] / fused["allowed_us"])
        else:
            split["bias_activation"].append(fused["time_us"] / plain["time_us"])
        split["library_over_ours"] += list(fused["ratio"].values())
    found = {name: statistics.geometric_mean(values) for name, values in split.items() if values}
    worst = {f"worst_{name}": max(values) for name, values in split.items() if values and name != "library_over_ours"}
    least = {"least_library_over_ours": min(split["library_over_ours"])} if split["library_over_ours"] else {}
    residuals = split["residual_over_allowed"]
    within = {"residuals_within": sum(each <= 1.0 for each in residuals) / len(residuals)} if residuals else {}
    return {"problems": len(good), **found, **within, **worst, **least}


def show(rows: list[dict]) -> None:
    for name, value in summary(rows).items():
        print(f"{name}: {value:.3f}")


def rows_of_files(paths: list[Path]) -> dict[str, dict]:
    """Rows by problem."""
    return {row["key"]: row for path in paths for row in json.loads(path.read_text())["rows"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds; what is left is left")
    parser.add_argument("--tune-seconds", type=float, default=8.0, help="of a problem; 0: untuned choices")
    parser.add_argument("--seconds", type=float, default=0.5, help="measuring time of a problem")
    parser.add_argument("--sample", type=int, default=1, help="every n-th problem alone")
    parser.add_argument("--first", type=int, default=0, help="index of the first: GPUs may share the list")
    parser.add_argument(
        "--without", nargs="+", type=Path, default=[], metavar="FILE", help="not what these results hold"
    )
    parser.add_argument("--shown", nargs="+", type=Path, default=[], metavar="FILE", help="a later file's rows count")
    parser.add_argument("--out", type=Path, help="the file of results, if not the card's own")
    parser.add_argument("--again", action="store_true", help="measure anew what is there")
    options = parser.parse_args()
    if options.shown:
        show(list(rows_of_files(options.shown).values()))
        return 0
    deadline = time.monotonic() + options.time_limit
    FOLDER.mkdir(parents=True, exist_ok=True)
    os.environ |= {"TILESMITH_DB_PATH": str(FOLDER / "tilesmith.db"), "TILESMITH_CACHE_DIR": str(FOLDER / "cache")}
    path = options.out or tables.RESULTS / f"gpu_fused_{tables.slug(cuda_devices()[0].name)}.json"
    held = json.loads(path.read_text())["rows"] if path.exists() and not options.again else []
    rows = {row["key"]: row for row in held if row["generator"] == generator_digest("cuda")}
    plains = {plain_of(parse_key(key)).key(): row["plain"] for key, row in rows.items()}
    others = rows_of_files(options.without)
    asked = [signature for _, _, signature in listed("fused") if signature.key() not in others]
    todo = [signature for signature in asked[options.first :: options.sample] if signature.key() not in rows]
    problems, left, failed = Problems(), 0, 0
    with problems.workers:
        for signature in todo:
            if time.monotonic() + options.tune_seconds * 2 + needed_s(signature) > deadline:
                left += 1
                continue
            try:
                row = row_of(problems, signature, plains, options)
            except TilesmithError as error:
                failed += 1
                print(f"FAILED {signature.key()}: {error}", flush=True)
                continue
            rows[signature.key()] = row
            data = {
                "machine": tables.facts(" ".join(["python", *sys.argv])), "target": problems.target.name,
                **problems.about, "summary": summary(list(rows.values())), "rows": list(rows.values()),
            }  # fmt: skip
            tables.write_json(path, data)
            print(line_of(row), flush=True)
    show(list(rows.values()))
    bad = [row for row in rows.values() if "failed" in (row["fused"]["status"], row["plain"]["status"])]
    failed += len(bad)
    print(f"{left} left, {failed} failed; {path}")
    return int(failed > 0)


def plain_of(signature: Signature) -> Signature:
    return replace(signature, epilogue=IDENTITY)


if __name__ == "__main__":
    sys.exit(main())
