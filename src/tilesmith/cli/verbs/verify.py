"""``tilesmith verify``: the numbers of problems against a float64 reference."""

from __future__ import annotations

import click

from tilesmith.cli.options import PROBLEMS, dtype_option, json_flag, mode_option, seed_option, threads_option
from tilesmith.cli.problem_list import Item, read_problems
from tilesmith.cli.terminal import complain, note, print_json, progress
from tilesmith.dispatch.launchable import get_launchable
from tilesmith.dispatch.measuring import check_launchable, checked_call
from tilesmith.errors import CompileError, LaunchError, NoSolutionError, PlanError
from tilesmith.measure.accuracy import Accuracy, check_specials
from tilesmith.problems.work import flops


@click.command("verify", help="Check the numbers of problems against a float64 reference.", **PROBLEMS)
@click.argument("words", nargs=-1, required=True, metavar="FILE|COMMAND", type=click.UNPROCESSED)
@click.option("--max-gflop", type=click.FloatRange(0), help="Leave out what is larger, and say how many were left out.")
@click.option("--specials", is_flag=True, help="Also plant NaN and Inf in each operand and follow where they go.")
@threads_option
@mode_option
@seed_option
@dtype_option
@json_flag
def command(
    words: tuple[str, ...], max_gflop: float | None, specials: bool, threads: int | None, mode: str | None, seed: int,
    dtype: str | None, as_json: bool,
) -> int:  # fmt: skip
    listing = read_problems(words, dtype or "")
    chosen = [i for i in listing.items if max_gflop is None or flops(i.signature) <= max_gflop * 1e9]
    left_out = len(listing.items) - len(chosen)
    failed = 0
    with progress(len(chosen), "verify") as step:
        for item in chosen:
            row = _check(item, threads, mode, seed, specials)
            if row["status"] == "failed":
                failed += 1
                complain(f"{item.command} ({item.direction}): {row['reason']}")
            step(f"{row['status']} {row['solver']} {item.command} ({item.direction})")
            if as_json:
                print_json(row)
            else:
                click.echo(
                    f"{row['status']:6} {row['solver']:16} {row['error']:.3g} <= {row['bound']:.3g} {row['key']}"
                )
    done = len(chosen) - failed
    note(f"{done} verified, {failed} failed, {left_out} left out (--max-gflop), {listing.bad} bad lines")
    return listing.status or (1 if failed else 0)


def _check(item: Item, threads: int | None, mode: str | None, seed: int, specials: bool) -> dict[str, object]:
    solver = config = ""
    try:
        launch = get_launchable(item.signature, threads=threads, mode=mode)
        solver, config = launch.solver, launch.config
        verdict = check_launchable(launch, seed)
        if verdict.ok and specials:
            verdict = check_specials(checked_call(launch), item.signature, seed)
    except (NoSolutionError, CompileError, LaunchError, PlanError) as error:
        verdict = Accuracy(False, float("nan"), float("nan"), (), str(error))
    return {
        "command": item.command, "key": item.signature.key(), "direction": item.direction, "solver": solver,
        "config": config, "status": "ok" if verdict.ok else "failed", "reason": verdict.message,
        "error": verdict.error, "bound": verdict.bound,
    }  # fmt: skip
