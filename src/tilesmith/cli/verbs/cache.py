"""``tilesmith cache``: lists, verifies and removes the files of the cache folder."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tilesmith import env
from tilesmith.cli.options import Actions, Number, json_flag
from tilesmith.cli.terminal import complain, note, print_json, print_table
from tilesmith.errors import ArgumentError, FileFormatError
from tilesmith.toolchain.inventory import Entry, clear, inventory, prune, remove_damaged

_DAY_S = 86_400.0
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def read_size(ctx: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Bytes, with K, M, G or T for powers of 1024."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,15})([KMGT]?)(iB|B)?", text, re.I)
    if found is None:
        raise click.BadParameter(f"{text!r} is no size such as 500M or 2G", ctx, parameter)
    return int(found[1]) * _UNITS[found[2].upper()]


@click.group("cache", cls=Actions, help="List, verify, prune or clear the cache of kernels, plans and sources.")
def command() -> None:
    pass


@command.command("ls", help="List what lies in the cache.")
@json_flag
def ls(as_json: bool) -> int:
    entries = inventory(_folder())
    _print(entries, as_json)
    note(f"{_folder()}: {_total(entries)}")
    return 0


@command.command("verify", help="Read every byte of the cache, and name what is damaged.")
@click.option("--repair", is_flag=True, help="Remove what is damaged; it is made again when it is wanted.")
@json_flag
def verify(repair: bool, as_json: bool) -> int:
    folder = _folder()
    entries = inventory(folder, verify=True)
    damaged = [entry for entry in entries if entry.damage]
    removed = remove_damaged(folder) if repair else ()
    if as_json:
        _print(entries, as_json)
    for entry in damaged:
        complain(f"{entry.path}: {entry.damage}")
    note(f"{folder}: {_total(entries)}, {len(damaged)} damaged, {len(removed)} removed")
    if damaged and not repair:
        note("type `tilesmith cache verify --repair` to remove what is damaged; until then it counts as missing")
    return 1 if len(damaged) > len(removed) else 0


@command.command("prune", help="Remove what is old, or the oldest beyond a size.")
@click.option(
    "--max-bytes",
    metavar="SIZE",
    callback=read_size,
    help="Keep the youngest of so many bytes (K, M, G, T), such as 500M.",
)
@click.option("--older-than", type=Number(0), help="Remove what was made more than so many days ago.")
@click.option("--dry-run", is_flag=True, help="Say what would go.")
@json_flag
def prune_(max_bytes: int | None, older_than: float | None, dry_run: bool, as_json: bool) -> int:
    if max_bytes is None and older_than is None:
        raise ArgumentError("prune needs --max-bytes SIZE or --older-than DAYS; `tilesmith cache clear` removes all")
    folder = _folder()
    seconds = None if older_than is None else older_than * _DAY_S
    gone = _changed(lambda: prune(folder, max_bytes=max_bytes, older_than_s=seconds, dry_run=dry_run))
    _print(gone, as_json)
    note(f"{folder}: {_total(gone)} {'would go' if dry_run else 'removed'}")
    return 0


@command.command("clear", help="Remove all of the cache.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_flag
def clear_(yes: bool, as_json: bool) -> int:
    folder = _folder()
    entries = inventory(folder)
    if not yes and entries:
        if not sys.stdin.isatty():
            raise ArgumentError(f"clear would remove {_total(entries)} in {folder}; type --yes if you mean it")
        click.confirm(f"Remove {_total(entries)} in {folder}?", abort=True, err=True)
    gone = _changed(lambda: clear(folder))
    _print(gone if as_json else (), as_json)
    note(f"{folder}: {_total(gone)} removed")
    return 0


def _folder() -> Path:
    return env.CACHE_DIR.get()


def _changed(work: Any) -> tuple[Entry, ...]:
    try:
        found: tuple[Entry, ...] = work()
    except OSError as error:
        raise FileFormatError(f"{error.filename}: cannot be removed: {error.strerror or error}") from None
    return found


def _print(entries: Sequence[Entry], as_json: bool) -> None:
    folder, now = _folder(), time.time()
    if as_json:
        for entry in entries:
            print_json({
                "path": str(entry.path), "kind": entry.kind, "bytes": entry.nbytes,
                "age_s": max(0.0, now - entry.modified), "what": entry.what, "damage": entry.damage,
            })  # fmt: skip
    elif entries:
        rows = [
            [entry.kind, entry.nbytes, _age(now - entry.modified), str(entry.path.relative_to(folder))[:24], entry.what]
            for entry in entries
        ]
        print_table(("kind", "bytes", "age", "file", "what"), rows, below=("what",))


def _total(entries: Sequence[Entry]) -> str:
    return f"{len(entries)} files, {sum(entry.nbytes for entry in entries)} bytes"


def _age(seconds: float) -> str:
    for name, length in (("d", _DAY_S), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{seconds / length:.0f} {name}"
    return f"{max(0.0, seconds):.0f} s"
