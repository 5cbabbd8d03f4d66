"""``tilesmith tune`` with many workers: every GPU of this machine, or a cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import click

from tilesmith.cli.options import Number
from tilesmith.cli.problem_list import Listing
from tilesmith.cli.terminal import complain, note, print_json
from tilesmith.dispatch.locations import lasting_databases
from tilesmith.errors import ArgumentError
from tilesmith.fleet.executor import Executor, Wanted
from tilesmith.fleet.opening import open_executor
from tilesmith.fleet.processes import ALL, LocalProcesses, all_gpus
from tilesmith.fleet.session import Confirmed, FleetOptions, FleetRun, NotTuned, Tuned
from tilesmith.fleet.worker import run_task
from tilesmith.ready.console import width_of
from tilesmith.ready.watch import Watch, tasks_of
from tilesmith.ready.watch_display import watching
from tilesmith.ready.watch_lines import summary_table, summary_words
from tilesmith.targets.cuda_driver import device_ordinal

_OPTIONS = (
    click.option("--cluster", help="Tune with the workers of this Dask scheduler (tcp://HOST:PORT), or of local:N."),
    click.option("--wait", "wait_s", type=Number(0.0), default=60.0, help="Seconds to wait for workers (default 60)."),
    click.option(
        "--check", "share", type=click.FloatRange(0.0, 1.0), default=0.05,
        help="Share of the answers that a second machine of the cluster measures (default 0.05).",
    ),
    click.option("--tls-ca-file", "tls_ca", default="", help="Certificate of the authority of a tls:// cluster."),
    click.option("--tls-cert", default="", help="Certificate of this client."),
    click.option("--tls-key", default="", help="Key of that certificate."),
)  # fmt: skip


@dataclass(frozen=True)
class FleetChoice:
    """The options of a fleet, as they were given; without a cluster and ``--device all`` there is none."""

    cluster: str | None
    device: str
    threads: int | None
    wait_s: float
    share: float
    tls: tuple[str, str, str]

    @property
    def given(self) -> bool:
        return self.cluster is not None or self.device == ALL


def fleet_options(command: Any) -> Any:
    """The options that a verb needs to reach a cluster."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@contextmanager
def opened(choice: FleetChoice) -> Iterator[Executor]:
    """The workers that were asked for; what was started for them ends with the block."""
    if choice.cluster is None:
        executor: Executor = LocalProcesses(all_gpus(), Wanted("", run_task, "cuda", choice.threads))
    elif choice.device == ALL:
        raise ArgumentError("--device all takes every GPU of this machine; with --cluster write --device cuda")
    else:
        ordinal = device_ordinal(choice.device)
        if ordinal > 0:
            raise ArgumentError(
                f"--device {choice.device}: with --cluster each worker has a GPU of its own (CUDA_VISIBLE_DEVICES); "
                "write --device cuda"
            )
        device = "cpu" if ordinal < 0 else "cuda"
        executor = open_executor(Wanted(choice.cluster, run_task, device, choice.threads, tls=choice.tls))
    try:
        yield executor
    finally:
        executor.close()


def tune_with_fleet(listing: Listing, choice: FleetChoice, options: FleetOptions, as_json: bool) -> int:
    """Tune a list, show how it goes, print the answers, and return the exit status."""
    tasks = tasks_of((item.signature, item.calls) for item in listing.items)
    database = lasting_databases().writable
    watch, failed = Watch(tasks, None, options.seconds), 0
    with opened(choice) as executor, watching(watch) as show:
        dashboard = str(getattr(executor, "dashboard", ""))
        if dashboard:
            note(f"Dask's dashboard: {dashboard}")
        run = FleetRun([task.key for task in tasks], executor, database, options, show)
        try:
            for result in run.results():
                if isinstance(result, NotTuned):
                    failed += 1
                    complain(f"{result.problem} on {result.target}: {result.reason}")
                elif isinstance(result, Tuned) and as_json:
                    _print_rows(listing, result)
                elif isinstance(result, Confirmed) and as_json:
                    print_json({"key": result.problem, "target": result.target} | asdict(result.checked))
        except KeyboardInterrupt:
            complain("stopped; what was found is kept, and the same command goes on")
            return 130
    rows = [row for row in watch.rows.values() if row.end is not None]
    if rows and not as_json:
        click.echo(summary_table(rows, width_of(sys.stdout)))
    for line in (*(summary_words(watch, rows) if rows else ()), *_facts(run)):
        note(line) if as_json else click.echo(line)
    return listing.status or (1 if failed else 0)


def _facts(run: FleetRun) -> Iterator[str]:
    if run.before:
        yield f"{run.before} answers are of a run that was cut short"
    if run.checked:
        yield f"{run.agreed} of {run.checked} answers that a second machine measured were confirmed"
    if run.refused:
        yield f"{run.refused} messages of workers were refused, see the warnings"


def _print_rows(listing: Listing, result: Tuned) -> None:
    """One object for each direction of each command that names the problem."""
    best, parcel = result.record, result.parcel
    for item in listing.items:
        if item.signature.canonical.key() == result.problem:
            print_json({
                **item.row, "target": result.target, "worker": result.worker, "solver": best.solver,
                "config": best.config, "time_us": best.time_us, "spread_us": best.spread_us,
                "untuned_us": parcel.untuned_us, "speedup": result.speedup, "new_trials": parcel.new_trials,
                "failed": parcel.failed, "disturbed": parcel.disturbed, "seconds": parcel.seconds,
                "ended": parcel.ended, "ranking": [asdict(record) for record in result.ranking],
            })  # fmt: skip
