"""``tilesmith preload``: make problems ready, so that another process runs them in ``strict`` mode."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tilesmith.cli.every_gpu import ALL, LATE_S, Tell, on_every_gpu, received, sent
from tilesmith.cli.options import (
    PROBLEMS,
    dtype_option,
    json_flag,
    long_flag,
    mode_option,
    problems_argument,
    threads_option,
)
from tilesmith.cli.problem_list import Item, Listing, read_problems
from tilesmith.cli.terminal import complain, dump_json, note, print_json, print_wrapped, progress
from tilesmith.dispatch.locations import lasting_databases
from tilesmith.errors import ArgumentError
from tilesmith.problems.driver.flags import CONV_BASES, GEMM_BASES, flags_of
from tilesmith.problems.rewrite import Signature
from tilesmith.ready.preload import COMPILED, FAILED, CachePopulator, Step
from tilesmith.targets.names import parse_target

_SHARED = ("j", "d", "o")


class _Preload(click.Command):
    """Behind the name of a driver command, ``-j``, ``-d`` and ``-o`` belong to the command, which has them, too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        place = next((i for i, word in enumerate(args) if word in CONV_BASES or word in GEMM_BASES), len(args))
        tail = args[place:]
        if tail:
            names = {f"-{flag.short}": f"--{flag.long}" for flag in flags_of(tail[0]) if flag.short in _SHARED}
            tail = [names.get(word, word) for word in tail]
        return super().parse_args(ctx, [*args[:place], *tail])


@click.command(
    "preload", cls=_Preload, help="Decide, compile and keep problems, so that strict mode runs them.", **PROBLEMS
)
@problems_argument
@click.option(
    "-d", "--device", "devices", multiple=True, default=("cpu",),
    help="cpu (the default), cuda, cuda:N, or all for every GPU; may be given again. Empty: write sources only.",
)  # fmt: skip
@click.option("-j", "--max-processes", "jobs", type=click.IntRange(1), help="Compilers at a time (one a core).")
@click.option(
    "-o", "--cache-dir", type=click.Path(file_okay=False, path_type=Path), metavar="DIRECTORY",
    help="The cache folder to fill (default: TILESMITH_CACHE_DIR).",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path),
    help='Folder for the sources of --device "" (default: sources/ in the cache folder).',
)  # fmt: skip
@click.option("--target", "target_name", help='Another target for --device "", such as aarch64:4.')
@threads_option
@mode_option
@dtype_option
@long_flag
@json_flag
def command(
    words: tuple[str, ...], devices: tuple[str, ...], jobs: int | None, cache_dir: Path | None, out: Path | None,
    target_name: str | None, threads: int | None, mode: str | None, dtype: str | None, whole: bool, as_json: bool,
) -> int:  # fmt: skip
    if (out or target_name) and any(devices):
        raise ArgumentError('--out and --target go with --device "", which writes sources')
    listing = read_problems(words, dtype or "")
    if ALL in devices:
        if devices != (ALL,):
            raise ArgumentError("--device all stands alone: it takes every GPU of this machine")
        if cache_dir is not None:
            raise ArgumentError("--cache-dir is for one process; with --device all set TILESMITH_CACHE_DIR")
        return _on_every_gpu(listing, mode, threads, as_json, whole)
    commands: dict[Signature, Item] = {item.signature: item for item in reversed(listing.items)}
    populator = CachePopulator(
        signatures=[item.signature for item in listing.items], devices=devices, mode=mode, threads=threads, out=out,
        cache_dir=cache_dir, target=parse_target(target_name) if target_name else None,
    )  # fmt: skip
    count = len(populator.signatures) * len(populator.devices)
    failed = 0
    with progress(populator.steps, "preload") as step:

        def tell(made: Step) -> None:
            nonlocal failed
            item = commands[made.signature]
            if made.phase == FAILED:
                failed += 1
                complain(f"{item}: {made.reason}")
            step(_line(f"{item}" if whole else item.short, made))
            if made.phase == COMPILED:
                return
            if as_json:
                print_json(_record(item, made))
            elif made.choice is not None:
                where = f" {made.folder}" if made.folder else f" {made.choice.config}" if whole else ""
                print_wrapped(f"{item if whole else item.short}: {made.choice.solver}{where}")

        populator.run(jobs, tell)
    note(f"{count - failed} ready, {failed} failed, {listing.bad} bad lines")
    return listing.status or (1 if failed else 0)


def _on_every_gpu(listing: Listing, mode: str | None, threads: int | None, as_json: bool, whole: bool) -> int:
    """Each problem on the next GPU that is free, once for each target of these GPUs. All share one cache."""
    items = list({item.signature: item for item in reversed(listing.items)}.values())[::-1]
    lasting_databases()  # raises before anything is compiled
    failed, ready = 0, 0
    with progress(len(items), "preload") as step:
        payloads = [sent(item, {"mode": mode, "threads": threads}) for item in items]
        for index, reply, reason in on_every_gpu(preload_here, payloads, LATE_S, each_target=True):
            item = items[index]
            row = json.loads(reply) if reply else {"status": FAILED, "reason": reason, "line": f"failed {item.short}"}
            line = row.pop("line")
            if row["status"] == FAILED:
                failed += 1
                complain(f"{item}: {row['reason']}")
            else:
                ready += 1
                if not as_json:
                    config = f" {row['config']}" if whole else ""
                    print_wrapped(f"{item if whole else item.short}: {row['solver']}{config}")
            step(line)
            if as_json and reply:
                print_json(row)
    note(f"{ready} ready, {failed} failed, {listing.bad} bad lines")
    return listing.status or (1 if failed else 0)


def preload_here(device: str, payload: bytes, tell: Tell) -> bytes:
    """Makes one problem ready, in the process of one GPU."""
    item, options = received(payload)
    made: list[Step] = []
    CachePopulator(signatures=[item.signature], devices=(device,), **options).run(listener=made.append)
    return dump_json(_record(item, made[-1]) | {"line": _line(item.short, made[-1])}).encode()


def _line(problem: str, made: Step) -> str:
    what = f": {made.choice.solver} by {made.choice.basis}" if made.choice is not None else ""
    phase = "not compiled" if made.phase == COMPILED and made.reason else made.phase
    return f"{phase} {made.device or 'sources'}: {problem}{what}"


def _record(item: Item, made: Step) -> dict[str, object]:
    choice = made.choice
    return {
        **item.row, "func_name": made.signature.get_func_name(), "device": made.device, "status": made.phase,
        "reason": made.reason, "solver": choice.solver if choice else "", "config": choice.config if choice else "",
        "basis": choice.basis if choice else "", "layer": choice.layer if choice else "",
        "time_us": choice.time_us if choice else None, "folder": str(made.folder) if made.folder else None,
    }  # fmt: skip
