"""``tilesmith retune``: search problems again after a new driver, compiler or solver."""

from __future__ import annotations

import click

from tilesmith.cli.options import PROBLEMS, Number, device_option, json_flag, seed_option, threads_option
from tilesmith.cli.problem_list import read_problems
from tilesmith.cli.terminal import budget_start, complain, note, print_json, print_wrapped, progress
from tilesmith.dispatch.locations import lasting_databases, open_cache, target_of
from tilesmith.errors import CompileError, LaunchError, NoSolutionError
from tilesmith.problems.short_name import short_key
from tilesmith.targets.cuda_driver import device_ordinal
from tilesmith.tune.retune import Retuned, Stale, current_setup, retune, stale_problems
from tilesmith.tune.session import STRATEGIES


@click.command("retune", help="Search anew what a new driver, compiler or solver may have changed.", **PROBLEMS)
@click.argument("words", nargs=-1, metavar="[FILE|COMMAND]", type=click.UNPROCESSED)
@click.option("--stale", is_flag=True, required=True, help="The problems whose answer is not of today.")
@click.option("--list", "only_list", is_flag=True, help="Print them with what has changed, and measure nothing.")
@click.option("--strategy", type=click.Choice(list(STRATEGIES)), default="model", help="How the space is searched.")
@click.option("--trials", type=click.IntRange(1), help="Configs of a problem at most (default: no limit).")
@click.option("--seconds", type=Number(0.1), default=15.0, help="Seconds of a problem at most (default 15).")
@device_option
@threads_option
@seed_option
@json_flag
def command(
    words: tuple[str, ...], stale: bool, only_list: bool, strategy: str, trials: int | None, seconds: float,
    device: str, threads: int | None, seed: int, as_json: bool,
) -> int:  # fmt: skip
    listing = read_problems(words) if words else None
    wanted = frozenset(item.signature.canonical.key() for item in listing.items) if listing else None
    target, database, cache = target_of(None, threads, device), lasting_databases().writable, open_cache()
    ordinal = max(0, device_ordinal(device))
    now = current_setup(target, ordinal)
    found = stale_problems(database, target, now, wanted)
    status = listing.status if listing else 0
    if only_list:
        for each in found:
            print_json(_record(each)) if as_json else print_wrapped(
                f"{short_key(each.answer.problem)}: {', '.join(each.changes)}"
            )
        note(f"{len(found)} stale problems of {target.name}")
        return status
    changed = failed = 0
    with progress(len(found), "retune") as step:
        for each in found:
            try:
                with step.search(short_key(each.answer.problem), seconds) as listener:
                    done = retune(
                        each, target, now, database=database, cache=cache, strategy=strategy, max_trials=trials,
                        max_seconds=seconds, seed=seed, device=ordinal, progress=listener, started=budget_start(),
                    )  # fmt: skip
            except (NoSolutionError, CompileError, LaunchError) as error:
                complain(f"{each.answer.problem}: {error}; its old answer stays")
                failed += 1
                continue
            changed += done.changed
            step(_line(done))
            if as_json:
                print_json(_record(each, done))
            elif done.changed:
                new = done.result.record
                print_wrapped(f"{short_key(new.problem)}: {new.solver} {new.config}")
    note(f"{len(found)} stale problems of {target.name}: {changed} have another winner, {failed} failed")
    return status or (1 if failed else 0)


def _record(stale: Stale, done: Retuned | None = None) -> dict[str, object]:
    before, after = stale.answer, done.result.record if done else None
    return {
        "key": before.problem, "target": before.target, "changes": list(stale.changes),
        "changed": done.changed if done else None,
        "old_solver": before.solver, "old_config": before.config, "old_time_us": before.time_us,
        "solver": after.solver if after else None, "config": after.config if after else None,
        "time_us": after.time_us if after else None, "spread_us": after.spread_us if after else None,
        "seconds": done.result.seconds if done else None,
    }  # fmt: skip


def _line(done: Retuned) -> str:
    before, after = done.stale.answer, done.result.record
    changed = after.solver if after.solver != before.solver else "another config"
    new = changed if done.changed else "the same"
    was = "failed" if before.time_us is None else f"{before.time_us:.1f} us"
    return f"{short_key(before.problem)}: {before.solver} ({was}) -> {new} ({after.time_us:.1f} us)"
