"""``tilesmith tune``: search the best config of each problem and remember it."""

from __future__ import annotations

import statistics
from dataclasses import asdict

import click

from tilesmith.cli.options import (
    PROBLEMS,
    Number,
    device_option,
    dtype_option,
    external_option,
    json_flag,
    problems_argument,
    seed_option,
    threads_option,
)
from tilesmith.cli.problem_list import Item, read_problems
from tilesmith.cli.terminal import budget_start, complain, note, print_json, progress
from tilesmith.dispatch.locations import lasting_databases, open_cache, target_of
from tilesmith.errors import CompileError, LaunchError, NoSolutionError
from tilesmith.targets.cuda_driver import device_ordinal
from tilesmith.tune.process import Workers
from tilesmith.tune.session import STRATEGIES, TuneResult, tune


@click.command("tune", help="Search the best config of each problem and remember it.", **PROBLEMS)
@problems_argument
@click.option("--strategy", type=click.Choice(list(STRATEGIES)), default="model", help="How the space is searched.")
@click.option("--trials", type=click.IntRange(1), help="Configs of a problem at most (default: no limit).")
@click.option("--seconds", type=Number(0.1), default=15.0, help="Seconds of a problem at most (default 15).")
@external_option
@device_option
@threads_option
@seed_option
@dtype_option
@json_flag
def command(
    words: tuple[str, ...], strategy: str, trials: int | None, seconds: float, external: bool | None, device: str,
    threads: int | None, seed: int, dtype: str | None, as_json: bool,
) -> int:  # fmt: skip
    listing = read_problems(words, dtype or "")
    target, layers, cache = target_of(None, threads, device), lasting_databases(), open_cache()
    failed, results = 0, []
    with progress(len(listing.items), "tune") as step, Workers() as workers:
        for item in listing.items:
            try:
                with step.search(f"{item}", seconds) as listener:
                    result = tune(
                        item.signature, target, database=layers.writable, cache=cache, strategy=strategy,
                        max_trials=trials, max_seconds=seconds, seed=seed, progress=listener,
                        device=max(0, device_ordinal(device)), external=external, workers=workers,
                        started=budget_start(),
                    )  # fmt: skip
            except (NoSolutionError, CompileError, LaunchError) as error:
                complain(f"{item}: {error}")
                failed += 1
                continue
            results.append(result)
            step(_line(item, result))
            if as_json:
                print_json(_record(item, result))
            else:
                click.echo(f"{item.signature.key()} {result.record.solver} {result.record.config}")
    if results:
        good = [result for result in results if not result.disturbed]
        speedups = [result.speedup for result in good if result.speedup]
        gain = f", {statistics.geometric_mean(speedups):.3f}x over untuned" if speedups else ""
        if len(good) < len(results):
            gain += f" ({len(results) - len(good)} left out: disturbed by other processes)"
        middle = statistics.median(result.seconds for result in results)
        note(f"{len(results)} problems tuned, median {middle:.1f} s a problem{gain}")
    return listing.status or (1 if failed else 0)


def _record(item: Item, result: TuneResult) -> dict[str, object]:
    return {
        **item.row, "target": result.target,
        "solver": result.record.solver, "config": result.record.config, "time_us": result.record.time_us,
        "spread_us": result.record.spread_us, "speedup": result.speedup, "trials": result.trials,
        "new_trials": result.new_trials, "failed": result.failed, "disturbed": result.disturbed,
        "seconds": result.seconds, "ended": result.ended,
        "stages": dict(result.stages),
        "ranking": [asdict(record) for record in result.ranking],
    }  # fmt: skip


def _line(item: Item, result: TuneResult) -> str:
    gain = f", {result.speedup:.2f}x the untuned" if result.speedup else ""
    return (
        f"{item}: {result.record.solver} {result.record.config} "
        f"{result.record.time_us:.1f} us{gain}; {result.new_trials} new trials in {result.seconds:.1f} s"
    )
