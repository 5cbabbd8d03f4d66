"""``tilesmith tune``: search the best config of each problem and remember it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

import click

from tilesmith.cli.fleet_tuning import FleetChoice, fleet_options, tune_with_fleet
from tilesmith.cli.options import (
    PROBLEMS,
    Number,
    csv_flag,
    devices_option,
    dtype_option,
    external_option,
    json_flag,
    problems_argument,
    seed_option,
    threads_option,
)
from tilesmith.cli.problem_list import Item, read_problems
from tilesmith.cli.terminal import CsvLines, budget_start, complain, note, print_json
from tilesmith.dispatch.locations import lasting_databases, open_cache, target_of
from tilesmith.env import takes_part
from tilesmith.errors import ArgumentError
from tilesmith.fleet.session import FleetOptions
from tilesmith.ready.console import width_of
from tilesmith.ready.held import Place
from tilesmith.ready.list_tuning import tune_list
from tilesmith.ready.model_records import INTERRUPTED, PYTORCH
from tilesmith.ready.model_session import tune_problems
from tilesmith.ready.telling import Effort
from tilesmith.ready.watch import TunedRow, Watch, tasks_of
from tilesmith.ready.watch_display import watching
from tilesmith.ready.watch_lines import summary_table, summary_words
from tilesmith.targets.cuda_driver import device_ordinal
from tilesmith.tune.progress import FAILED, LATE, Ended, Event
from tilesmith.tune.session import STRATEGIES

SECONDS: Final = 15.0  # of a problem
TOTAL_LEAST_S: Final = 5.0  # of a list
STOPPED_STATUS: Final = 130
NOTHING: Final = "none"


@click.command("tune", help="Search the best config of each problem and remember it.", **PROBLEMS)
@problems_argument
@click.option("--strategy", type=click.Choice(list(STRATEGIES)), help="How the space is searched (default: model).")
@click.option("--trials", type=click.IntRange(1), help="Configs of a problem at most (default: no limit).")
@click.option("--seconds", type=Number(0.1), help="Seconds of a problem at most (default 15).")
@click.option(
    "--total-seconds", type=Number(TOTAL_LEAST_S), help="Seconds of the whole list, spent where they gain most."
)
@click.option("--until-no-gain", is_flag=True, help="Go on until no search is expected to save 0.05 % of the list.")
@click.option("--resume", is_flag=True, help="Pass over what an earlier run has tuned.")
@click.option(
    "--against", type=click.Choice([PYTORCH, NOTHING]),
    help="Whose time stands beside (default: pytorch if it is installed).",
)  # fmt: skip
@external_option
@fleet_options
@devices_option
@threads_option
@seed_option
@dtype_option
@json_flag
@csv_flag
def command(
    words: tuple[str, ...], strategy: str | None, trials: int | None, seconds: float | None,
    total_seconds: float | None, until_no_gain: bool, resume: bool, against: str | None, external: bool | None,
    cluster: str | None, wait_s: float, share: float, tls_ca: str, tls_cert: str, tls_key: str,
    device: str, threads: int | None, seed: int, dtype: str | None, as_json: bool, as_csv: bool,
) -> int:  # fmt: skip
    by_gain = until_no_gain or total_seconds is not None
    if by_gain:
        _refuse({"--strategy": strategy, "--trials": trials, "--seconds": seconds, "--resume": resume or None})
    listing = read_problems(words, dtype or "")
    each_s = SECONDS if seconds is None else seconds
    choice = FleetChoice(cluster, device, threads, wait_s, share, (tls_ca, tls_cert, tls_key))
    if choice.given:
        _refuse_for_fleets({"--total-seconds": total_seconds, "--until-no-gain": until_no_gain or None,
                            "--resume": resume or None, "--against": against})  # fmt: skip
        options = FleetOptions(strategy or "model", trials, each_s, seed, external, share, wait_s)
        return tune_with_fleet(listing, choice, options, as_json)
    # Timing PyTorch loads it here; its kernels compete only if that was asked for, or it was loaded before.
    place = Place(
        target_of(None, threads, device), max(0, device_ordinal(device)), lasting_databases(), open_cache(),
        takes_part(external),
    )  # fmt: skip
    tasks = tasks_of((item.signature, item.calls) for item in listing.items)
    total_s = (math.inf if total_seconds is None else total_seconds) if by_gain else None
    watch, library = Watch(tasks, total_s, each_s), None if against is None else against == PYTORCH
    names = {task.key: task.name for task in tasks}
    as_rows, write = as_json or as_csv, _csv_writer() if as_csv else print_json
    with watching(watch) as show:

        def listen(event: Event) -> None:
            show(event)
            if isinstance(event, Ended) and event.outcome in (FAILED, LATE):
                complain(f"{names[event.problem]}: {event.reason}")
            if isinstance(event, Ended) and as_rows and not by_gain:
                _print_rows(write, listing.items, watch.rows[event.problem], place)

        if total_s is not None:
            calls = {task.signature: task.calls for task in tasks}
            ended = tune_problems(
                calls, place, seconds=total_s, seed=seed, watcher=listen, library=library is not False
            ).ended
            stopped = ended == INTERRUPTED
        else:
            effort = Effort(strategy or "model", trials, each_s, seed)
            stopped = tune_list(tasks, place, effort, listen, library=library, resume=resume, start=budget_start)
    rows = list(watch.rows.values())
    if as_rows and by_gain:
        for row in rows:
            _print_rows(write, listing.items, row, place)
    if rows and not as_rows:
        click.echo(summary_table(rows, width_of(sys.stdout)))
    for line in summary_words(watch, rows) if rows else ():
        note(line) if as_rows else click.echo(line)
    if stopped:
        again = "the same command goes on" if by_gain else "the same command with --resume goes on"
        complain(f"stopped; what was found is kept, and {again}")
        return STOPPED_STATUS
    return listing.status or (0 if all(row.answered for row in rows) else 1)


def _refuse(given: dict[str, object]) -> None:
    for name, value in given.items():
        if value is not None:
            raise ArgumentError(
                f"{name} is for a list whose problems are searched alike; with --total-seconds or --until-no-gain the "
                "time goes where it gains most: leave it out"
            )


def _refuse_for_fleets(given: dict[str, object]) -> None:
    for name, value in given.items():
        if value is not None:
            raise ArgumentError(
                f"{name} is for one worker; with --cluster and --device all each problem has its --seconds, and a run "
                "that was cut short goes on by itself: leave it out"
            )


def _csv_writer() -> Callable[[dict[str, object]], None]:
    """Prints CSV lines of the fields that are no lists."""
    write = CsvLines()
    return lambda record: write({name: each for name, each in record.items() if name not in ("stages", "ranking")})


def _print_rows(
    write: Callable[[dict[str, object]], None], items: tuple[Item, ...], row: TunedRow, place: Place
) -> None:
    """One row for each direction of each command that names the problem, if it has an answer."""
    if not row.answered:
        return
    for item in items:
        if item.signature.canonical.key() == row.task.key:
            write(_record(item, row, place))


def _record(item: Item, row: TunedRow, place: Place) -> dict[str, object]:
    end = row.end
    assert end is not None
    ranking = place.layers.writable.ranking(row.task.key, place.target.name)
    return {
        **item.row, "target": place.target.name, "calls": row.task.calls, "outcome": end.outcome,
        "solver": end.solver, "config": end.config, "time_us": end.tuned_us, "spread_us": end.spread_us,
        "untuned_us": end.untuned_us, "speedup": row.speedup, "library": row.library, "library_us": row.library_us,
        "winner": row.winner, "trials": end.trials, "new_trials": end.new_trials, "failed": end.failed,
        "disturbed": end.disturbed, "seconds": end.seconds, "ended": end.ended, "stages": dict(end.stages),
        "ranking": [asdict(record) for record in ranking],
    }  # fmt: skip
