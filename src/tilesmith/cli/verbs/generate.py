"""``tilesmith generate``: the sources of a problem, and the exact command that compiles each."""

from __future__ import annotations

from pathlib import Path

import click

from tilesmith import env
from tilesmith.cli.options import PROBLEMS, dtype_option, json_flag, problems_argument, threads_option
from tilesmith.cli.problem_list import read_problems
from tilesmith.cli.terminal import complain, print_json
from tilesmith.dispatch.locations import open_cache, open_databases, target_of
from tilesmith.dispatch.request import Request
from tilesmith.dispatch.resolve import decide
from tilesmith.errors import ArgumentError, NoCompilerError
from tilesmith.ready.sources import compiler_command, write_source
from tilesmith.solvers.old_names import read_config
from tilesmith.solvers.solver import Config
from tilesmith.solvers.table import Candidate, candidates
from tilesmith.spelling import among
from tilesmith.targets.names import parse_target
from tilesmith.targets.target import Target
from tilesmith.toolchain.toolchains import unit_text


@click.command("generate", help="Write the sources of problems and the exact compiler command of each.", **PROBLEMS)
@problems_argument
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for the sources (default: stdout)."
)
@click.option("--target", "target_name", help="Another target, such as aarch64:4 (default: this machine).")
@click.option("--solver", help="This solver (default: the one that is chosen).")
@click.option("--config", "config_text", help="This config (default: the chosen one, or the solver's default).")
@threads_option
@dtype_option
@json_flag
def command(
    words: tuple[str, ...], out: Path | None, target_name: str | None, solver: str | None, config_text: str | None,
    threads: int | None, dtype: str | None, as_json: bool,
) -> int:  # fmt: skip
    listing = read_problems(words, dtype or "")
    target = parse_target(target_name) if target_name else target_of(None, threads)
    missing = ""
    for item in listing.items:
        if solver is None:
            layers, only = open_databases(readonly=True), env.ONLY_SOLVER.get()
            choice = decide(Request(item.signature, target, "fast", layers, open_cache(), only))
            solver_name, chosen = choice.solver, choice.config
        else:
            solver_name, chosen = solver, ""
        candidate = _candidate(candidates(item.signature, target), solver_name)
        config = _config(candidate, target, config_text or chosen)
        for source in candidate.solver.draft(candidate.geometry, config, target).sources:
            path = str(write_source(source, out)) if out is not None else ""
            try:
                build = compiler_command(target, source)
            except NoCompilerError as error:
                build, missing = "", str(error)
            if as_json:
                print_json({
                    **item.row,
                    "target": target.name, "solver": candidate.name, "config": str(config), "symbol": source.symbol,
                    "compile": build or None, "path": path, "source": None if out else unit_text([source]),
                })  # fmt: skip
            elif out is not None:
                click.echo(f"{path}\n{build}" if build else path)
            else:
                click.echo(f"// {item}: {candidate.name} {config}\n// {build or missing}")
                click.echo(unit_text([source]))
    if missing:
        complain(f"warning: sources without a compiler command: {missing}")
    return listing.status


def _candidate(found: tuple[Candidate, ...], name: str) -> Candidate:
    for candidate in found:
        if candidate.name == name:
            return candidate
    known = among(name, (candidate.name for candidate in found))
    raise ArgumentError(f"solver {name!r} does not exist for this problem{known}")


def _config(candidate: Candidate, target: Target, text: str) -> Config:
    if not isinstance(text, str) or not text:
        return candidate.solver.default_config(candidate.geometry, target)
    try:
        config = read_config(candidate.name, text)
    except ValueError:
        raise ArgumentError(f"config {text!r} is not written as name=integer ...") from None
    space = candidate.solver.search_space(candidate.geometry, target)
    for name, _ in config.values:
        if name not in space.axes:
            raise ArgumentError(f"config {text!r}: {candidate.name} has no axis {name!r}{among(name, space.axes)}")
    if not space.contains(config):
        raise ArgumentError(f"config {text!r} is outside the search space of {candidate.name} for this problem")
    return config
