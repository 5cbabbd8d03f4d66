"""``tilesmith fleet``: what tuning on many GPUs would take."""

from __future__ import annotations

from dataclasses import asdict

import click

from tilesmith.cli.options import PROBLEMS, Actions, Number, dtype_option, json_flag
from tilesmith.cli.problem_list import read_problems
from tilesmith.cli.terminal import print_json
from tilesmith.dispatch.locations import open_databases
from tilesmith.errors import ArgumentError
from tilesmith.fleet.estimate import Plan, past_seconds, plan
from tilesmith.ready.console import clock
from tilesmith.targets.names import parse_target


@click.group("fleet", cls=Actions, help="Say how long a fleet of GPUs would tune a list.")
def command() -> None:
    pass


@command.command("plan", help="Say how long a list takes on so many GPUs, by the records of past searches.", **PROBLEMS)
@click.argument("words", nargs=-1, required=True, metavar="FILE|COMMAND", type=click.UNPROCESSED)
@click.option("--gpus", type=click.IntRange(1, 1_000_000), required=True, help="Number of GPUs (workers).")
@click.option("--seconds", type=Number(0.1), default=15.0, help="Seconds of a problem at most (default 15).")
@click.option("--target", help="Target of the GPUs, such as sm_90a:132:h200 (default: the one with most searches).")
@dtype_option
@json_flag
def plan_(
    words: tuple[str, ...], gpus: int, seconds: float, target: str | None, dtype: str | None, as_json: bool
) -> int:
    listing = read_problems(words, dtype or "")
    databases = open_databases(readonly=True).databases
    problems = list(dict.fromkeys(item.signature.canonical.key() for item in listing.items))
    if not problems:
        raise ArgumentError(f"{words[0]} holds no problem")
    if target is not None:
        names = [parse_target(target).name]
    else:
        names = sorted({name for problem in problems for each in databases for name in each.targets_of(problem)})
    known = [[past_seconds(databases, problem, name, seconds) for problem in problems] for name in names or [""]]
    best = max(range(len(known)), key=lambda index: sum(each is not None for each in known[index]))
    made, name = plan(known[best], gpus, seconds), (names or [""])[best]
    if as_json:
        print_json({"target": name, "seconds": seconds, **asdict(made)})
    else:
        click.echo(_words(made, name, seconds))
    return listing.status


def _words(made: Plan, target: str, seconds: float) -> str:
    """The plan in a few lines."""
    if made.known:
        basis = f"{made.known} of {made.problems} problems were searched on {target} before"
        rest = "" if made.known == made.problems else "; the others count as the median of those"
    else:
        basis, rest = f"no database knows a search; each problem counts as its limit, {seconds:g} s", ""
    share = made.work_s / (made.gpus * made.wall_s) if made.wall_s else 1.0
    return "\n".join(
        (
            f"{made.problems} problems on {made.gpus} GPUs: {clock(made.wall_s)}",
            f"searches: {clock(made.work_s)} in all, the longest {clock(made.longest_s)}; "
            f"the GPUs are busy for {100 * share:.0f} % of the time",
            f"more than {made.enough} GPUs bring nothing",
            f"by: {basis}{rest}",
        )
    )
