"""``tilesmith bench``: the times of problems, beside those of another library."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from tilesmith.cli.every_gpu import ALL, LATE_S, Tell, on_every_gpu, one_of, received, sent
from tilesmith.cli.options import (
    PROBLEMS,
    Number,
    devices_option,
    dtype_option,
    external_option,
    long_flag,
    mode_option,
    problems_argument,
    seed_option,
    threads_option,
)
from tilesmith.cli.problem_list import Item, read_problems
from tilesmith.cli.result_file import check_writable, write_result
from tilesmith.cli.terminal import complain, csv_text, dump_json, note, paced, print_table, print_wrapped, progress
from tilesmith.compare.bench_records import DISTURBED, FAILED, OK, Against, Bench
from tilesmith.compare.benchmark import bench
from tilesmith.compare.rival import Rival, chosen_rivals
from tilesmith.dispatch.launchable import Launchable, get_launchable
from tilesmith.dispatch.locations import lasting_databases, open_cache, target_of
from tilesmith.dispatch.measuring import time_steps
from tilesmith.errors import ArgumentError, CompileError, FileFormatError, LaunchError, NoSolutionError, PlanError
from tilesmith.measure.host import host_facts
from tilesmith.measure.machine import Machine, machine_of
from tilesmith.problems.short_name import short_key
from tilesmith.reading import read_named
from tilesmith.targets.cuda_driver import device_ordinal
from tilesmith.targets.detect_cuda import cuda_devices, cuda_target_of
from tilesmith.targets.target import CpuTarget, Target
from tilesmith.toolchain.toolchains import find_toolchain
from tilesmith.tune.progress import Listener, silent

Row = dict[str, Any]
DISTURBED_STATUS = 3  # exit status: all numbers are right, and some times say little
_MOST_HELD = 256 << 20  # bytes of an earlier run's rows
# The fields of ``Bench`` in a row, in this order.
_FOUND = (
    "time_us", "spread_us", "single_us", "samples", "disturbed", "discarded", "prepare_us", "gflops", "roofline",
    "error", "bound", "status", "reason",
)  # fmt: skip
_THEIRS = ("time_us", "spread_us", "single_us", "mode", "given_us", "given_single_us")  # of ``Against``
_FAILURES = (NoSolutionError, CompileError, LaunchError, PlanError)


@dataclass(frozen=True)
class Device:
    """Where the problems run."""

    target: Target
    device: str

    @property
    def ordinal(self) -> int:
        """Of a CUDA device; 0 elsewhere."""
        return max(0, device_ordinal(self.device))


@click.command("bench", help="Time problems, beside another library.", **PROBLEMS)
@problems_argument
@click.option(
    "--against",
    multiple=True,
    help="Other libraries, with commas; none for none (default: those here that neither compile nor tune).",
)
@click.option("--json", "json_path", help="Write the results to this file (-: stdout).")
@click.option("--csv", "csv_path", help="Write one line a problem to this file, as CSV (-: stdout).")
@click.option("--resume", is_flag=True, help="Keep what the --json file holds, and measure the rest.")
@click.option("--time-limit", type=Number(0.0), help="Seconds after which no further problem is begun.")
@click.option("--seconds", type=Number(0.05), default=2.0, help="Measuring time of a problem (default 2).")
@click.option("--launches", is_flag=True, help="Also time what each launch of a plan adds to the whole.")
@click.option("--tune", "tunes", is_flag=True, help="Tune each problem first.")
@click.option("--tune-seconds", type=Number(0.1), default=15.0, help="Budget of --tune (default 15).")
@external_option
@devices_option
@threads_option
@mode_option
@seed_option
@dtype_option
@long_flag
def command(
    words: tuple[str, ...], against: tuple[str, ...], json_path: str | None, csv_path: str | None, resume: bool,
    time_limit: float | None, seconds: float, launches: bool, tunes: bool, tune_seconds: float, external: bool | None,
    device: str, threads: int | None, mode: str | None, seed: int, dtype: str | None, whole: bool,
) -> int:  # fmt: skip
    started = time.monotonic()
    listing = read_problems(words, dtype or "")
    everywhere, device = device == ALL, one_of(device)
    place = Device(target_of(None, threads, device), device)
    target = place.target
    rivals = chosen_rivals(against, target)
    libraries = tuple(rival.name for rival in rivals)
    check_writable("--json", json_path)
    check_writable("--csv", csv_path)
    if json_path == csv_path == "-":
        raise ArgumentError("--json - and --csv -: only one of them may be printed; name a file for the other")
    rows = _held(json_path, listing.items) if resume else {}
    if tunes:
        lasting_databases()
    versions = {rival.name: rival.version() for rival in rivals}  # one that is not installed is better met now
    load = host_facts().load
    if isinstance(target, CpuTarget) and load > target.cores / 2 and target.cores > 1:
        # NOTE: a library whose threads wait for each other loses 10x and more when one of them has no core.
        complain(f"warning: load {load} before anything ran: times of {target.cores} threads say little of either side")
    machine = machine_of(target, open_cache(), place.ordinal)
    method = ""
    todo = [item for item in listing.items if _name(item) not in rows]
    ways = Ways(against, seconds, tune_seconds if tunes else None, external, mode, seed, launches)
    with progress(len(todo), "bench") as step:

        def here() -> Iterator[tuple[Item, Measured]]:
            for item in todo:
                if tunes:
                    with step.search(item.short, tune_seconds) as listener:
                        yield item, _measured(item, place, machine, rivals, ways, listener)
                else:
                    yield item, _measured(item, place, machine, rivals, ways)

        found = _on_every_gpu(todo, ways) if everywhere else here()
        while (time_limit is None or time.monotonic() - started <= time_limit) and (each := next(found, None)):
            item, made = each
            method = made.method or method
            rows[_name(item)] = made.row
            if made.row["status"] != OK:
                severity = "" if made.row["status"] == FAILED else "warning: "
                complain(f"{severity}{item}: {made.row['reason']}")
            step(made.line)
            if json_path not in (None, "-"):  # what is measured is kept, whatever happens to the rest
                write_result(str(json_path), dump_json(_result(listing.items, rows, place, machine, method, versions)))
    left = sum(_name(item) not in rows for item in listing.items)
    if left:
        note(f"{left} of {len(listing.items)} problems were not begun (--time-limit); --resume goes on")
    result = _result(listing.items, rows, place, machine, method, versions)
    if json_path not in (None, "-"):
        write_result(str(json_path), dump_json(result))
    ordered = result["results"]
    if csv_path not in (None, "-"):
        write_result(str(csv_path), _csv(ordered, libraries))
    if json_path == "-":
        click.echo(dump_json(result), nl=False)
    elif csv_path == "-":
        click.echo(_csv(ordered, libraries), nl=False)
    else:
        _report(ordered, libraries, result["summary"], whole)
    statuses = {row["status"] for row in ordered}
    return listing.status or (1 if FAILED in statuses else DISTURBED_STATUS if DISTURBED in statuses else 0)


@dataclass(frozen=True)
class Ways:
    """How each problem is measured; ``tune_seconds`` is the budget of the search before it, None: no search.

    With ``launches`` each launch of its plan is timed, too.
    """

    against: tuple[str, ...]
    seconds: float
    tune_seconds: float | None
    external: bool | None
    mode: str | None
    seed: int
    launches: bool


@dataclass(frozen=True)
class Measured:
    """One problem's row, its line, and how its times were taken."""

    row: Row
    line: str
    method: str


def _measured(
    item: Item, place: Device, machine: Machine, rivals: Sequence[Rival], ways: Ways, listener: Listener = silent
) -> Measured:
    launch = None
    try:
        if ways.tune_seconds is not None:
            _tune(item, place, ways.tune_seconds, ways.external, ways.seed, listener)
        launch = get_launchable(
            item.signature, target=place.target, device=place.device, mode=ways.mode, external=ways.external
        )
        found = bench(launch, machine, rivals, seconds=ways.seconds, seed=ways.seed, tell=paced())
    except _FAILURES as error:
        launch, found = None, Bench(FAILED, str(error))
    row = _row(item, launch, found)
    if ways.launches and launch is not None and found.status != FAILED:
        row["launches"] = [asdict(step) for step in time_steps(launch, seed=ways.seed)]
    return Measured(row, _line(item, launch, found), found.method)


def _on_every_gpu(items: Sequence[Item], ways: Ways) -> Iterator[tuple[Item, Measured]]:
    """The same, each problem on the next GPU that is free. A problem that no GPU can measure is a failed row."""
    targets = {cuda_target_of(device.ordinal).name for device in cuda_devices()}
    if len(targets) > 1:
        raise ArgumentError(
            f"--device all: bench prints the times of one target, and this machine has {', '.join(sorted(targets))}; "
            "name one GPU with --device cuda:N"
        )
    payloads = [sent(item, asdict(ways)) for item in items]
    for index, reply, reason in on_every_gpu(
        bench_here, payloads, LATE_S + 2 * (ways.seconds + (ways.tune_seconds or 0))
    ):
        item = items[index]
        if reason:
            failure = Bench(FAILED, reason)
            yield item, Measured(_row(item, None, failure), _line(item, None, failure), "")
        else:
            yield item, Measured(**json.loads(reply))


def bench_here(device: str, payload: bytes, tell: Tell) -> bytes:
    """Measures one problem, in the process of one GPU."""
    item, given = received(payload)
    ways = Ways(**given | {"against": tuple(given["against"])})
    place = Device(target_of(None, None, device), device)
    machine = machine_of(place.target, open_cache(), place.ordinal)
    made = _measured(item, place, machine, chosen_rivals(ways.against, place.target), ways)
    return dump_json(asdict(made)).encode()


def _name(item: Item) -> tuple[str, str]:
    return item.command, item.direction


def _held(path: str | None, items: Sequence[Item]) -> dict[tuple[str, str], Row]:
    """The good rows of an earlier run, by problem."""
    if path is None or path == "-":
        raise ArgumentError("--resume goes on from a file: name it with --json")
    if not Path(path).exists():
        return {}
    data = read_named(path, _MOST_HELD)
    try:
        held = json.loads(data)
        found = {(row["command"], row["direction"]): row for row in held["results"] if row["status"] == OK}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FileFormatError(f"{path}: holds no results of bench; remove it, or leave --resume out") from None
    wanted = {_name(item) for item in items}
    return {name: row for name, row in found.items() if name in wanted}


def _result(
    items: Sequence[Item], rows: dict[tuple[str, str], Row], place: Device, machine: Machine, method: str,
    versions: dict[str, str],
) -> dict[str, Any]:  # fmt: skip
    ordered = [rows[name] for name in dict.fromkeys(map(_name, items)) if name in rows]
    return {
        "target": place.target.name, "host": _host(place, machine, method, versions), "results": ordered,
        "summary": _summary(ordered, tuple(versions)),
    }  # fmt: skip


def _tune(item: Item, place: Device, tune_seconds: float, external: bool | None, seed: int, listener: Listener) -> None:
    from tilesmith.tune.session import tune

    tune(
        item.signature, place.target, database=lasting_databases().writable, cache=open_cache(),
        max_seconds=tune_seconds, seed=seed, device=place.ordinal, external=external, progress=listener,
    )  # fmt: skip


def _row(item: Item, launch: Launchable | None, found: Bench) -> Row:
    return {
        **item.row, "solver": launch.solver if launch else "", "config": launch.config if launch else "",
        **{name: getattr(found, name) for name in _FOUND},
        "against": {
            name: {field: getattr(them, field) for field in _THEIRS} for name, them in found.against.items()
        },
        "ratio": found.ratio, "single_ratio": found.single_ratio, "launches": [],
    }  # fmt: skip


def _summary(rows: list[Row], against: tuple[str, ...]) -> dict[str, Any]:
    """The number of rows of each status, and the means of the rows that are ok."""
    good = [row for row in rows if row["status"] == OK]
    summary: dict[str, Any] = {
        "problems": len(rows), "geomean": {}, "min": {},
        **{status: sum(row["status"] == status for row in rows) for status in (DISTURBED, FAILED)},
    }  # fmt: skip
    for name in against:
        ratios = [row["ratio"][name] for row in good if name in row["ratio"]]
        if ratios:
            summary["geomean"][name] = statistics.geometric_mean(ratios)
            summary["min"][name] = min(ratios)
    return summary


def _host(place: Device, machine: Machine, method: str, versions: dict[str, str]) -> dict[str, object]:
    target = place.target
    card = None if isinstance(target, CpuTarget) else cuda_devices()[place.ordinal]
    facts = host_facts(find_toolchain(target).identity, card).as_dict()
    peaks = {name: value for name, value in asdict(machine).items() if isinstance(value, float)}
    return {
        **facts, **peaks, "threads": target.cores if isinstance(target, CpuTarget) else 1, "method": method, **versions,
    }  # fmt: skip


def _line(item: Item, launch: Launchable | None, found: Bench) -> str:
    if found.status == FAILED or launch is None:
        return f"failed {item.short}"
    beside = "".join(
        f"; {name} {them.time_us:.1f} us ({them.mode}{_as_given(them)}): {found.ratio[name]:.3f}x"
        for name, them in found.against.items()
    )
    missing = "".join(f"; {name}: {reason}" for name, reason in found.missing.items())
    mark = "" if found.status == OK else f"{found.status} "
    return f"{mark}{item.short}: {launch.solver} {found.time_us:.1f} us{beside}{missing}"


def _as_given(them: Against) -> str:
    """The library's time on operands as given, where its fastest mode had copies of them."""
    slower = them.given_us is not None and them.given_us > them.time_us
    return f"; on operands as given {them.given_us:.1f} us" if slower else ""


_NESTED = ("against", "ratio", "single_ratio", "launches")


def _csv(rows: list[Row], against: tuple[str, ...]) -> str:
    """One line a problem; the values of a library have its name before theirs."""
    flat = []
    for row in rows:
        line = {
            name: value for name, value in row.items() if name not in ("against", "ratio", "single_ratio", "launches")
        }
        for name in against:
            found = row["against"].get(name, {})
            line |= {f"{name}_{field}": found.get(field) for field in _THEIRS}
            line |= {f"{name}_ratio": row["ratio"].get(name), f"{name}_single_ratio": row["single_ratio"].get(name)}
        flat.append(line)
    return csv_text(flat)


def _report(rows: list[Row], against: tuple[str, ...], summary: dict[str, Any], whole: bool) -> None:
    headers = ["problem", "solver", "time_us", "spread_us", "gflops", "roofline", *against]
    odd = any(row["status"] != OK for row in rows)
    cells = [
        [
            f"{row['command']} ({row['direction']})" if whole else short_key(row["key"]), row["solver"] or "-",
            *(row[name] for name in headers[2:6]), *(row["ratio"].get(name) for name in against),
            *([row["status"]] if odd else []), *([row["config"]] if whole else []),
        ]
        for row in rows
    ]  # fmt: skip
    headers += ["status"] * odd + ["config"] * whole
    print_table(headers, cells, below=("problem", "config"))
    _print_launches(rows)
    for line in _summary_lines(rows, summary):
        print_wrapped(line)


def _print_launches(rows: list[Row]) -> None:
    """The time that each launch adds to its row, and its share of the sum; nothing without ``--launches``."""
    cells: list[list[object]] = []
    for number, row in enumerate(rows, 1):
        steps = row.get("launches", ())
        total = sum(step["time_us"] for step in steps)
        # A symbol ends with the arch and a digest, which the rows of a table have no room for.
        cells += [
            [
                number,
                step["step"].partition("__")[0],
                step["time_us"],
                step["spread_us"],
                f"{step['time_us'] / total:6.1%}",
            ]
            for step in steps
        ]
    if cells:
        click.echo()
        print_table(["row", "launch", "adds_us", "spread_us", "share"], cells)
        click.echo()


def _summary_lines(rows: list[Row], summary: dict[str, Any]) -> list[str]:
    """One sentence for each library, and one for the rows that are in no summary."""
    lines = []
    for name, mean in summary["geomean"].items():
        ratios = {row["key"]: row["ratio"][name] for row in rows if row["status"] == OK and name in row["ratio"]}
        slower = min(ratios, key=lambda key: ratios[key])
        text = f"faster than {name} in {sum(ratio > 1 for ratio in ratios.values())} of {len(ratios)} problems: "
        text += f"geomean {mean:.3f}x, least {summary['min'][name]:.3f}x"
        lines.append(f"{text} ({short_key(slower)})" if len(ratios) > 1 else text)
    told = {DISTURBED: "disturbed by other processes: measure again when they rest", FAILED: "failed"}
    lines += [f"{summary[status]} of {len(rows)} left out: {why}" for status, why in told.items() if summary[status]]
    return lines
