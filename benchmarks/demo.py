"""`make demo`: find the best kernels for real problems here, check them, compare with PyTorch's, remember them.

On a machine with an NVIDIA GPU the problems run there, beside cuDNN and cuBLAS; elsewhere on the CPU, beside oneDNN.
The first run tunes (a few seconds a problem); a later one finds everything in the database and only measures. What was
found is drawn as one page, `build/demo-report.html`.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tilesmith import __version__
from tilesmith.cli.problem_list import Item, read_problems
from tilesmith.compare.bench_records import DISTURBED, FAILED, OK, Bench
from tilesmith.compare.benchmark import bench
from tilesmith.compare.rival import Rival, chosen_rivals
from tilesmith.dispatch.launchable import Launchable, get_launchable
from tilesmith.dispatch.locations import open_cache, open_databases, target_of
from tilesmith.errors import OutOfTimeError, TilesmithError
from tilesmith.measure.host import moment
from tilesmith.measure.machine import machine_of
from tilesmith.problems.work import flops
from tilesmith.report.databases import source_of
from tilesmith.report.gather import gather
from tilesmith.report.measured import measured_source
from tilesmith.report.page import page, write_page
from tilesmith.report.payload import page_data, trial_data
from tilesmith.report.records import Source
from tilesmith.targets.detect_cuda import has_cuda
from tilesmith.targets.target import Target
from tilesmith.tune.session import INTERRUPTED, tune

FOLDER = Path(__file__).parent / "problems"
REPORT = Path(__file__).parents[1] / "build" / "demo-report.html"
console = Console(width=None if sys.stdout.isatty() else 120)


def short(item: Item) -> str:
    """A problem in a few words, from its driver command."""
    words = item.command.split()
    flags = dict(zip(words[1::2], words[2::2], strict=False))
    if words[0].startswith("gemm"):
        return f"gemm {flags['--a_h']}x{flags['--b_w']}x{flags['--a_w']}"
    kind = "transposed" if flags.get("-m") == "trans" else "conv"
    groups = f" groups {flags['-g']}" if "-g" in flags else ""
    stride = f" stride {flags['-u']}" if "-u" in flags else ""
    weights = {"wrw": " (weights)", "bwd": " (data)"}.get(item.direction, "")
    size = f"{flags['-c']}x{flags['-H']}x{flags['-W']} to {flags['-k']}"
    return f"{kind} {flags['-y']}x{flags['-x']}{stride}{groups}, {size}{weights}"


@dataclass(frozen=True)
class Demo:
    """What runs where, and beside what."""

    device: str
    problems: str
    title: str
    tune_seconds: float
    bench_seconds: float


CPU = Demo("cpu", "demo.txt", "oneDNN", 15.0, 0.35)
GPU = Demo("cuda", "demo_gpu.txt", "cuDNN or cuBLAS", 10.0, 0.3)


def place() -> Demo:
    """The GPU where there is one that Tilesmith runs on."""
    if not has_cuda():
        return CPU
    try:
        target_of(None, None, GPU.device)
    except TilesmithError as error:
        console.print(f"the GPU is left alone: {error}", highlight=False)
        return CPU
    return GPU


def find(items: tuple[Item, ...], target: Target, seconds: float) -> int:
    """Tune what the database does not hold; returns how many were tuned."""
    layers, cache = open_databases(), open_cache()
    new = 0
    for item in items:
        key = item.signature.key()
        held = layers.writable.search(key, target.name)
        if held is not None and held.strategy != "defaults" and held.ended != INTERRUPTED:
            continue
        new += 1
        try:
            with console.status(f"tuning {short(item)} ..."):
                result = tune(
                    item.signature, target, database=layers.writable, cache=cache, max_seconds=seconds,
                    external=False,
                )  # fmt: skip
        except OutOfTimeError as error:  # on a very slow machine what is known without a search is shown
            console.print(f"  {short(item)}: {error}", highlight=False)
            continue
        console.print(
            f"  {short(item)}: {result.new_trials} kernels checked and timed in {result.seconds:.1f} s, "
            f"best {result.record.solver} {result.record.config}", highlight=False,
        )  # fmt: skip
    return new


def row(item: Item, launch: Launchable, found: Bench) -> list[str]:
    if found.status == FAILED or not found.time_us:
        return [short(item), launch.solver, found.reason, "", "", "", "", ""]
    library, them = next(iter(found.against.items()), ("", None))
    return [
        short(item), launch.solver, f"{found.time_us:.0f}", f"{flops(item.signature) / found.time_us * 1e-3:.0f}",
        f"{(found.roofline or 0) * 100:.0f} %", f"{found.error:.1e} < {found.bound:.1e}",
        f"{them.time_us:.0f}" if them else "-",
        DISTURBED if found.status == DISTURBED else f"{found.ratio[library]:.2f}x" if them else "-",
    ]  # fmt: skip


def beside(target: Target) -> tuple[Rival, ...]:
    """The libraries that are installed here, without those that compile or tune for minutes."""
    return chosen_rivals((), target)


def draw(items: tuple[Item, ...], target: Target, measured: Source) -> str:
    """Write the report; returns its path, or why there is none."""
    database = open_databases().writable
    keys = {item.signature.canonical.key() for item in items}
    found = gather([source_of(database, database.name), measured], {"demo": keys}, target.name)
    trials = trial_data(found.results)
    about = {"command": "make demo", "made": f"Made {moment()} by Tilesmith {__version__}"}
    try:
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        write_page(str(REPORT), page(f"Demo on {target.name}", {**page_data(found, trials), **about}, trials))
    except (OSError, TilesmithError) as error:
        return f"no report: {error}"
    return f"report: {os.path.relpath(REPORT)}"


def main() -> int:
    start = time.perf_counter()
    demo = place()
    items = read_problems([str(FOLDER / demo.problems)]).items
    target = target_of(None, None, demo.device)
    rivals = beside(target)
    versions = "; ".join(rival.version() for rival in rivals)
    console.print(f"Tilesmith on {target.name}: {len(items)} problems, against {versions}", highlight=False)
    new = find(items, target, demo.tune_seconds)
    machine = machine_of(target, open_cache())
    table = Table()
    for name in ("problem", "solver", "us", "GFLOP/s", "roofline", "error < bound", f"{demo.title} us", "faster"):
        table.add_column(name, justify="left" if name in ("problem", "solver") else "right", overflow="fold")
    ratios, failed, disturbed, measured = [], 0, 0, []
    with console.status(f"measuring beside {demo.title} ..."):
        for item in items:
            launch = get_launchable(item.signature, target=target, external=False)
            found = bench(launch, machine, rivals, seconds=demo.bench_seconds)
            table.add_row(*row(item, launch, found))
            measured.append((launch, found))
            failed += found.status == FAILED
            disturbed += found.status == DISTURBED
            ratios += found.ratio.values() if found.status == OK else []
    console.print(table)
    mean = (
        f"geomean {statistics.geometric_mean(ratios):.2f}x the best of {demo.title}" if ratios else "nothing to compare"
    )
    remembered = f"{len(items) - new} of {len(items)} remembered, {new} tuned"
    console.print(
        f"every result checked against float64; {mean}; {remembered}; {time.perf_counter() - start:.1f} s",
        highlight=False,
    )
    if disturbed:
        console.print(
            f"{disturbed} of {len(items)} left out of the mean: other processes took the cores; run it again when "
            "they rest.", highlight=False,
        )  # fmt: skip
    named = {rival.name: rival.version() for rival in rivals}
    source = measured_source("measured beside the library", target, machine, measured, named)
    console.print(draw(items, target, source), highlight=False, soft_wrap=True)
    if new:
        console.print("Run it again: what was found is remembered.", highlight=False)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TilesmithError as error:
        print(f"tilesmith: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        print("tilesmith: stopped; what was found is kept", file=sys.stderr)
        sys.exit(130)
