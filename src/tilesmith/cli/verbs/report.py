"""``tilesmith report``: databases and results as one HTML page, or what changed between two of them."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import PurePath

import click

from tilesmith import __version__
from tilesmith.cli.options import Number, json_flag
from tilesmith.cli.problem_list import read_problems
from tilesmith.cli.terminal import note, print_json, print_wrapped, table
from tilesmith.dispatch.locations import open_databases
from tilesmith.report.comparison import Comparison, as_row, compare, comparison_data, sentences
from tilesmith.report.databases import source_of
from tilesmith.report.gather import gather, is_same_file, read_source
from tilesmith.report.library import begin_library
from tilesmith.report.page import page, write_page
from tilesmith.report.payload import Payload, page_data, trial_data
from tilesmith.report.records import Findings
from tilesmith.report.words import name_of

NOTHING_STATUS = 3  # exit status: no time of one input can be compared with one of the other
WORSE_STATUS = 1
FILE = "report.html"
_SHOWN = 40  # changes on the terminal


@click.command("report", help="Draw databases and results as one HTML page; with --compare, say what changed.")
@click.argument("inputs", nargs=-1, metavar="[DATABASE|RESULTS]...")
@click.option("-o", "--out", help=f"The file to write (default: {FILE}; with --compare none).")
@click.option("--compare", "compares", is_flag=True, help="Compare two inputs: BEFORE AFTER.")
@click.option("--least", type=Number(0.0, 100.0), default=2.0, metavar="PERCENT", help="With --compare: smaller "
              "changes count as none, whatever the spread (default 2).")  # fmt: skip
@click.option("--list", "lists", multiple=True, metavar="FILE", help="Only the problems of this list, under its name.")
@click.option("--target", default="", help="Only this target, such as sm_90a:132:h200.")
@click.option("--title", help="Of the page (default: the targets).")
@json_flag
def command(
    inputs: tuple[str, ...], out: str | None, compares: bool, least: float, lists: tuple[str, ...], target: str,
    title: str | None, as_json: bool,
) -> int:  # fmt: skip
    keys = {
        PurePath(name).stem: {item.signature.canonical.key() for item in read_problems([name]).items} for name in lists
    }
    if compares:
        if len(inputs) != 2:
            raise click.UsageError(f"--compare takes two inputs, before and after; {len(inputs)} are named")
        if is_same_file(*inputs):
            raise click.UsageError(f"--compare takes two inputs; {inputs[0]} and {inputs[1]} are the same file")
        if out:
            begin_library()
        before, after = (gather([read_source(name)], keys, target) for name in inputs)
        found = compare(before, after, least / 100)
        _tell(found, (inputs[0], inputs[1]), as_json)
        if out:
            data = comparison_data(found, before, after, (inputs[0], inputs[1]))
            _write(out, title or "What changed", data, None)
        return WORSE_STATUS if found.is_worse else 0 if found.compared else NOTHING_STATUS
    begin_library()
    findings = _gathered(inputs, keys, target)
    trials = trial_data(findings.results)
    data = page_data(findings, trials)
    targets = ", ".join(place.target for place in findings.places[:3])
    size = _write(out or FILE, title or f"Tuning report: {targets}", data, trials)
    if as_json:
        print_json({"report": out or FILE, "bytes": size, "problems": len(findings.results), "summary": data["words"]})
    else:
        for words in data["words"]:
            print_wrapped(words)
        click.echo(f"report: {out or FILE}")
    return 0


def _gathered(inputs: tuple[str, ...], keys: dict[str, set[str]], target: str) -> Findings:
    """Reads the inputs; without one, the database that is written."""
    if inputs:
        return gather([read_source(name) for name in inputs], keys, target)
    layers = open_databases(readonly=True)
    try:
        return gather([source_of(layers.databases[-1], layers.databases[-1].name)], keys, target)
    finally:
        layers.close()


def _write(path: str, title: str, data: Payload, trials: Payload | None) -> int:
    words = click.get_current_context().find_root().command_path.split()
    command = shlex.join([*words, "report", *_arguments()])
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    for warning in data["warnings"]:
        note(f"warning: {warning}")
    return write_page(
        path, page(title, {**data, "command": command, "made": f"Made {made} by Tilesmith {__version__}"}, trials)
    )


def _arguments() -> list[str]:
    """The command's own words, as it was given them."""
    context = click.get_current_context()
    found: list[str] = []
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if value == parameter.get_default(context) or value in (None, (), False):
            continue
        values = [str(each) for each in value] if isinstance(value, tuple) else [str(value)]
        if isinstance(parameter, click.Argument):
            found += values
        elif value is True:
            found.append(parameter.opts[0])
        else:
            found += [word for each in values for word in (parameter.opts[0], each)]
    return found


def _tell(found: Comparison, names: tuple[str, str], as_json: bool) -> None:
    if as_json:
        for change in found.changes:
            print_json(as_row(change))
        return
    told = [change for change in found.changes if change.verdict != "same"]
    rows = [
        [change.verdict, f"{change.change:.3f}x" if change.change else "-",
         *(each.time_us if each else None for each in (change.before, change.after)), name_of(change.known)]
        for change in told[:_SHOWN]
    ]  # fmt: skip
    if rows:
        click.echo(table(("verdict", "after/before", "before_us", "after_us", "problem"), rows))
    if len(told) > _SHOWN:
        click.echo(f"... and {len(told) - _SHOWN} more; --json prints all of them, -o FILE draws them")
    click.echo("\n".join(sentences(found, *names)))
