"""``tilesmith bench``: the times of problems, beside those of another library."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from pathlib import Path

import click

from tilesmith.cli.options import PROBLEMS, Number, dtype_option, mode_option, seed_option, threads_option
from tilesmith.cli.problem_list import Item, read_problems
from tilesmith.cli.terminal import complain, dump_json, progress, table
from tilesmith.dispatch.benchmark import LIBRARIES, Bench, bench, library_version
from tilesmith.dispatch.facts import lasting_databases, target_of
from tilesmith.dispatch.launchable import Launchable, get_launchable
from tilesmith.dispatch.planning import open_cache
from tilesmith.errors import CompileError, FileFormatError, LaunchError, NoSolutionError, PlanError, TargetError
from tilesmith.measure.host import host_facts
from tilesmith.measure.machine import Machine, machine_of
from tilesmith.targets.target import CpuTarget, Target
from tilesmith.toolchain.compilers import find_compiler

Row = dict[str, object]
_FAILURES = (NoSolutionError, CompileError, LaunchError, PlanError)


@click.command("bench", help="Time problems, beside another library.", **PROBLEMS)
@click.argument("words", nargs=-1, required=True, metavar="FILE|COMMAND", type=click.UNPROCESSED)
@click.option("--against", multiple=True, type=click.Choice(LIBRARIES), help="Another library; may be given again.")
@click.option("--json", "json_path", help="Write the results to this file (-: stdout).")
@click.option("--seconds", type=Number(0.05), default=2.0, help="Measuring time of a problem (default 2).")
@click.option("--tune", "tunes", is_flag=True, help="Tune each problem first.")
@click.option("--tune-seconds", type=Number(0.1), default=15.0, help="Budget of --tune (default 15).")
@threads_option
@mode_option
@seed_option
@dtype_option
def command(
    words: tuple[str, ...], against: tuple[str, ...], json_path: str | None, seconds: float, tunes: bool,
    tune_seconds: float, threads: int | None, mode: str | None, seed: int, dtype: str | None,
) -> int:  # fmt: skip
    listing = read_problems(words, dtype or "")
    target = target_of(None, threads)
    if not isinstance(target, CpuTarget):
        raise TargetError(f"bench measures on CPUs, not on {target.name}")
    _check_writable(json_path)
    if tunes:
        lasting_databases()
    for library in against:
        library_version(library)  # one that is not installed is better met now
    load = host_facts().load
    if load > target.cores / 2 and target.cores > 1:
        # NOTE: a library whose threads wait for each other loses 10x and more when one of them has no core.
        complain(f"warning: load {load} before anything ran: times of {target.cores} threads say little of either side")
    machine = machine_of(target, open_cache())
    rows: list[Row] = []
    method = ""
    with progress(len(listing.items), "bench") as step:
        for item in listing.items:
            try:
                launch = _launchable(item, target, mode, tune_seconds if tunes else None)
                found = bench(launch, machine, against, seconds=seconds, seed=seed)
                method = found.method or method
            except _FAILURES as error:
                launch, found = None, Bench("failed", str(error))
            rows.append(_row(item, launch, found))
            if found.status != "ok":
                complain(f"{item.command} ({item.direction}): {found.reason}")
            elif found.reason:
                complain(f"warning: {item.command} ({item.direction}): {found.reason}")
            step(_line(item, launch, found))
    result = {
        "target": target.name, "host": _host(target, machine, method, against), "results": rows,
        "summary": _summary(rows, against),
    }  # fmt: skip
    if json_path is not None and json_path != "-":
        _write(Path(json_path), dump_json(result))
    click.echo(
        dump_json(result) if json_path == "-" else _report(rows, against, result["summary"]), nl=json_path != "-"
    )
    failed = any(row["status"] != "ok" for row in rows)
    return listing.status or (1 if failed else 0)


def _launchable(item: Item, target: Target, mode: str | None, tune_seconds: float | None) -> Launchable:
    if tune_seconds is not None:
        from tilesmith.tune.session import tune

        tune(
            item.signature, target, database=lasting_databases().writable, cache=open_cache(), max_seconds=tune_seconds
        )
    return get_launchable(item.signature, target=target, mode=mode)


def _row(item: Item, launch: Launchable | None, found: Bench) -> Row:
    return {
        "command": item.command,
        "key": item.signature.key(),
        "direction": item.direction,
        "solver": launch.solver if launch else "",
        "config": launch.config if launch else "",
        "time_us": found.time_us,
        "spread_us": found.spread_us,
        "samples": found.samples,
        "prepare_us": found.prepare_us,
        "gflops": found.gflops,
        "roofline": found.roofline,
        "error": found.error,
        "bound": found.bound,
        "status": found.status,
        "reason": found.reason,
        "against": {
            name: {"time_us": them.time_us, "spread_us": them.spread_us} for name, them in found.against.items()
        },
        "ratio": found.ratio,
    }


def _summary(rows: list[Row], against: tuple[str, ...]) -> dict[str, dict[str, float]]:
    summary: dict[str, dict[str, float]] = {"geomean": {}, "min": {}}
    for name in against:
        ratios = [row["ratio"][name] for row in rows if name in row["ratio"]]  # type: ignore[index,operator]
        if ratios:
            summary["geomean"][name] = statistics.geometric_mean(ratios)
            summary["min"][name] = min(ratios)
    return summary


def _host(target: Target, machine: Machine, method: str, against: tuple[str, ...]) -> dict[str, object]:
    facts = host_facts(find_compiler().identity).as_dict()
    peaks = {name: value for name, value in asdict(machine).items() if isinstance(value, float)}
    return {
        **facts,
        **peaks,
        "threads": target.cores,
        "method": method,
        **{name: library_version(name) for name in against},
    }


def _line(item: Item, launch: Launchable | None, found: Bench) -> str:
    if found.status != "ok" or launch is None:
        return f"failed {item.command} ({item.direction})"
    beside = "".join(
        f"; {name} {them.time_us:.1f} us ({them.mode}): {found.ratio[name]:.3f}x"
        for name, them in found.against.items()
    )
    missing = "".join(f"; {name}: {reason}" for name, reason in found.missing.items())
    return f"{item.command} ({item.direction}): {launch.solver} {found.time_us:.1f} us{beside}{missing}"


def _report(rows: list[Row], against: tuple[str, ...], summary: object) -> str:
    headers = ["direction", "solver", "time_us", "spread_us", "gflops", "roofline", *against, "status", "key"]
    cells = [
        [
            row["direction"], row["solver"], row["time_us"], row["spread_us"], row["gflops"], row["roofline"],
            *(row["ratio"].get(name) for name in against), row["status"], row["key"],  # type: ignore[attr-defined]
        ]
        for row in rows
    ]  # fmt: skip
    return f"{table(headers, cells)}\nsummary: {summary}"


def _check_writable(path: str | None) -> None:
    """A result file that cannot be written is better met before the measurements than after them."""
    if path is None or path == "-":
        return
    if not path:
        raise FileFormatError("--json '': not a file's path")
    if not Path(path).parent.is_dir():
        raise FileFormatError(f"{path}: cannot be written: no folder {Path(path).parent}")
    fresh = not Path(path).exists()
    try:
        with open(path, "a"):
            pass
        if fresh:
            Path(path).unlink()
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be written: {error.strerror or error}") from None


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be written: {error.strerror or error}") from None
