"""``tilesmith db``: look at databases, exchange what they hold, and look after them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tilesmith import env
from tilesmith.cli.options import Actions, Number, csv_flag, json_flag, long_flag, solver_option, some_problems_argument
from tilesmith.cli.problem_list import problem_keys
from tilesmith.cli.terminal import CsvLines, complain, note, print_json, print_table, print_wrapped
from tilesmith.db.exchange import (
    NEWEST,
    POLICIES,
    TABLES,
    ImportResult,
    everything,
    find_db_lines,
    import_file,
    json_lines,
    merge,
)
from tilesmith.db.existing import existing_database
from tilesmith.db.layers import Layers
from tilesmith.db.records import Record
from tilesmith.db.remote import fetch_now, is_url
from tilesmith.db.sharing import push
from tilesmith.db.store import Database, Table
from tilesmith.db.upkeep import RecordFilter, is_outdated, prune, select, stats_of
from tilesmith.db.waiting import PATIENT_S
from tilesmith.dispatch.locations import lasting_databases, open_databases
from tilesmith.errors import FileFormatError
from tilesmith.problems.short_name import short_key
from tilesmith.spelling import did_you_mean


@click.group("db", cls=Actions, help="Look at databases, exchange what they hold, and look after them.")
def command() -> None:
    pass


_target = click.option("--target", default="", help="Of this target alone, such as x86_64-v4:2:zen5.")
_trials = click.option("--trials", is_flag=True, help="Every config that was tried, not each solver's best alone.")
_db = click.option("--db", "path", help="This database (default: the one of TILESMITH_DB_PATH that is written).")
_policy = click.option(
    "--policy", type=click.Choice(list(POLICIES)), default=NEWEST, help="Which of two records of one key stays."
)
_FLAGS = {"context_settings": {"ignore_unknown_options": True}}


@command.command("query", help="Print the records of problems, layer by layer.", **_FLAGS)
@some_problems_argument
@_target
@solver_option
@_trials
@_db
@long_flag
@json_flag
@csv_flag
def query(
    words: tuple[str, ...], target: str, solver: str, trials: bool, path: str | None, whole: bool, as_json: bool,
    as_csv: bool,
) -> int:  # fmt: skip
    wanted = RecordFilter(problem_keys(words), target, solver)
    rows, write = [], CsvLines() if as_csv else print_json
    layers = Layers((existing_database(path),)) if path else open_databases(readonly=True)
    for place in reversed(range(len(layers.databases))):
        database = layers.databases[place]
        for record in select(database, _table(trials), wanted):
            if as_json or as_csv:
                write(
                    asdict(record)
                    | {"layer": database.name, "role": layers.role(place), "outdated": is_outdated(record)}
                )
            rows.append(
                [record.problem if whole else short_key(record.problem), layers.role(place), record.target,
                 record.solver, record.time_us, _state(record), *([record.config] if whole or trials else [])]
            )  # fmt: skip
    if rows and not (as_json or as_csv):
        headers = ["problem", "layer", "target", "solver", "time_us", "status", "config"]
        print_table(headers[: len(rows[0])], rows, below=("problem", "config"))
        problems, targets = len({row[0] for row in rows}), len({row[2] for row in rows})
        note(f"{len(rows)} records of {problems} problems on {targets} target{'s' * (targets != 1)}")
    if not rows:
        known = {record.solver for each in layers.databases for record in select(each, _table(trials), RecordFilter())}
        complain(f"no database holds such a record{did_you_mean(solver, known)}")
    return 0 if rows else 1


@command.command("export", help="Write records as JSON lines, or as MIOpen's find-db text.", **_FLAGS)
@some_problems_argument
@click.option("--format", "form", type=click.Choice(["jsonl", "miopen"]), default="jsonl", help="Of the text.")
@click.option("--out", help="The file to write (default: standard output).")
@_target
@solver_option
@_db
def export(words: tuple[str, ...], form: str, out: str | None, target: str, solver: str, path: str | None) -> int:
    database = existing_database(path) if path else open_databases(readonly=True).writable
    wanted = RecordFilter(problem_keys(words), target, solver)
    left_out: list[str] = []
    if form == "miopen":
        targets = {record.target for record in select(database, "results", wanted)}
        if len(targets) > 1:
            raise FileFormatError(
                f"find-db text holds one target; name one with --target: {', '.join(sorted(targets))}"
            )
        lines: Iterable[str] = find_db_lines(select(database, "results", wanted), left_out)
    else:
        tables: tuple[Table, ...] = ("results", "trials")
        lines = json_lines((name, record) for name in tables for record in select(database, name, wanted))
    count = _write(lines, out)
    note(f"{count} lines from {database.name}" + (f" to {out}" if out else ""))
    if left_out:
        note(f"{len(left_out)} problems have no find-db line (GEMMs, epilogues, pitches, or nothing that works)")
    return 0


@command.command("import", help="Read JSON lines or MIOpen's find-db text into the database that is written.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@_policy
@click.option("--target", help="What find-db text was measured on, such as gfx90a:104 (default: the file's name).")
@json_flag
def import_(files: tuple[Path, ...], policy: str, target: str | None, as_json: bool) -> int:
    database, status = lasting_databases().writable, 0
    for path in files:
        taken = import_file(path, database, policy, target)
        status = max(status, _report(str(path), database.name, taken, as_json))
    return status


@command.command("merge", help="Take over what other databases hold into the one that is written.")
@click.argument("paths", nargs=-1, required=True, metavar="DATABASE|URL...")
@_policy
@json_flag
def merge_(paths: tuple[str, ...], policy: str, as_json: bool) -> int:
    database, status = lasting_databases().writable, 0
    for path in paths:
        taken = merge(everything(existing_database(path)), database, policy)
        status = max(status, _report(path, database.name, taken, as_json))
    return status


@command.command(
    "push", help="Put records into a team's database: a file of a shared folder, or s3://, gs://.", **_FLAGS
)
@click.argument("place", metavar="DATABASE|URL")
@some_problems_argument
@_policy
@_target
@solver_option
@_db
@json_flag
def push_(
    place: str, words: tuple[str, ...], policy: str, target: str, solver: str, path: str | None, as_json: bool
) -> int:
    database = existing_database(path) if path else open_databases(readonly=True).writable
    wanted = RecordFilter(problem_keys(words), target, solver)
    taken = push(((name, record) for name in TABLES for record in select(database, name, wanted)), place, policy)
    return _report(database.name, place, taken, as_json)


@command.command("pull", help="Take over a team's database as it is now (default: the team layers).")
@click.argument("paths", nargs=-1, metavar="[DATABASE|URL]...")
@_policy
@json_flag
def pull(paths: tuple[str, ...], policy: str, as_json: bool) -> int:
    database, status = lasting_databases().writable, 0
    places = paths or env.DB_PATH.get()[:-1]
    if not places:
        raise click.UsageError("name a database, or put the team's before yours in TILESMITH_DB_PATH")
    for path in places:
        if is_url(path):
            fetch_now(path, PATIENT_S)  # a copy of today may lack what was pushed since
        taken = merge(everything(existing_database(path)), database, policy)
        status = max(status, _report(path, database.name, taken, as_json))
    return status


@command.command("stats", help="Count what each layer holds.")
@_db
@json_flag
def stats(path: str | None, as_json: bool) -> int:
    layers = Layers((existing_database(path),)) if path else open_databases(readonly=True)
    for place, database in enumerate(layers.databases):
        found = {"role": layers.role(place), **asdict(stats_of(database))}
        if as_json:
            print_json(found)
        else:
            for name, value in found.items():
                print_wrapped(_shown(value), f"{name:9} ", " " * 10)
            if place + 1 < len(layers.databases):
                click.echo()
    return 0


@command.command(
    "prune", help="Remove records that meet all conditions given from the database that is written.", **_FLAGS
)
@some_problems_argument
@click.option("--older-than", type=Number(0), metavar="DAYS", help="Measured more than so many days ago.")
@_target
@solver_option
@click.option("--stale", is_flag=True, help="Of an older revision of their solver.")
@click.option("--failed", is_flag=True, help="That failed.")
@click.option("--dry-run", is_flag=True, help="Count what would go, and remove nothing.")
@json_flag
def prune_(
    words: tuple[str, ...], older_than: float | None, target: str, solver: str, stale: bool, failed: bool,
    dry_run: bool, as_json: bool,
) -> int:  # fmt: skip
    wanted = RecordFilter(problem_keys(words), target, solver, failed, stale, older_than)
    if wanted.everything:
        raise click.UsageError("say which records go: --older-than, --target, --solver, --stale, --failed, or problems")
    database = (open_databases(readonly=True) if dry_run else lasting_databases()).writable
    counts = prune(database, wanted, dry=dry_run)
    if as_json:
        print_json({"database": database.name, "dry_run": dry_run, **counts})
    else:
        verb = "would go from" if dry_run else "removed from"
        click.echo(f"{counts['results']} answers and {counts['trials']} trials {verb} {database.name}")
    return 0


@command.command("check", help="Read every record of every layer, and say what is damaged and what to type.")
@_db
@click.option("--repair", is_flag=True, help="Remove what is damaged from the database that is written.")
@json_flag
def check(path: str | None, repair: bool, as_json: bool) -> int:
    if repair:
        layers = Layers((existing_database(path, readonly=False, damaged=True),)) if path else lasting_databases()
    else:
        layers = Layers((existing_database(path, damaged=True),)) if path else open_databases(readonly=True)
    bad = 0
    for place, database in enumerate(layers.databases):
        mine = place == len(layers.databases) - 1
        lines = database.check()
        gone = database.repair() if repair and mine and lines else 0
        left = database.check() if gone else lines
        bad += bool(left)
        advice = "" if not left else "name another file" if repair and mine else _advice(database, mine, path)
        if as_json:
            print_json(
                {"layer": database.name, "role": layers.role(place), "kind": database.kind, "ok": not left,
                 "damaged": list(lines), "removed": gone, "advice": advice}
            )  # fmt: skip
            continue
        for line in lines:
            print_wrapped(line)
        state = f"{len(left)} damaged; {advice}" if left else f"{gone} damaged records removed" if gone else "whole"
        print_wrapped(f"{database.name} ({layers.role(place)}, {database.kind}): {state}")
    return 1 if bad else 0


def _advice(database: Database, mine: bool, path: str | None) -> str:
    if database.source:
        return f"delete {database.path}, and it is fetched again"
    if mine:
        return f"type `tilesmith db check{f' --db {path}' if path else ''} --repair`"
    return f"type `tilesmith db check --db {database.path} --repair` where it may be written, or install it again"


def _table(trials: bool) -> Table:
    return "trials" if trials else "results"


def _state(record: Record) -> str:
    return "failed" if not record.ok else "outdated" if is_outdated(record) else "ok"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {count}" for name, count in value.items()) or "-"
    return "-" if value is None else str(value)


def _open_at_once(path: str, flags: int) -> int:
    """Like ``os.open``, but an error where a FIFO has no reader, for which opening would wait."""
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)
    os.set_blocking(descriptor, True)
    return descriptor


def _write(lines: Iterable[str], out: str | None) -> int:
    count = 0
    if out is None:
        for line in lines:
            click.echo(line)
            count += 1
        return count
    try:
        with open(out, "w", encoding="utf-8", opener=_open_at_once) as file:
            for line in lines:
                file.write(f"{line}\n")
                count += 1
    except OSError as error:
        raise FileFormatError(f"{out}: cannot be written: {error.strerror or error}") from None
    return count


def _report(name: str, into: str, taken: ImportResult, as_json: bool) -> int:
    """Exit status 2 if a line was bad; all other lines were imported."""
    for line in taken.bad:
        complain(line)
    if as_json:
        print_json({"from": name, "into": into} | asdict(taken))
    else:
        newer = f", {taken.newer} of a newer format left out" if taken.newer else ""
        bad = f", {len(taken.bad)} bad lines" if taken.bad else ""
        print_wrapped(
            f"{name}: {taken.added} added, {taken.replaced} replaced, {taken.kept} kept as they were{newer}{bad}"
        )
    return 2 if taken.bad else 0
