"""``tilesmith package select``: what a selection lets in, before a package of it is written."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilesmith.cli.options import json_flag
from tilesmith.cli.packing_options import default_name, jobs_option, plans_option, target_option
from tilesmith.cli.terminal import print_json, print_table, print_wrapped
from tilesmith.dispatch.locations import open_cache, open_databases, target_of
from tilesmith.package.form import encode

if TYPE_CHECKING:
    from tilesmith.cli.packing import Packed
    from tilesmith.package.selection.explain import ExplainedPlan


@click.command("select", help="Say what a selection file lets into a package; nothing is written but the cache.")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.argument("lists", nargs=-1, metavar="[LIST]...")
@target_option
@plans_option
@click.option("--explain", is_flag=True, help="Each plan that is in, each problem that is out and why, each kernel.")
@jobs_option
@json_flag
def select(
    file: Path, lists: tuple[str, ...], targets: tuple[str, ...], plans: int, explain: bool, jobs: int | None,
    as_json: bool,
) -> int:  # fmt: skip
    from tilesmith.cli.packing import packed_for, tell_unused, wanted_problems
    from tilesmith.package.build import Rows, build_target
    from tilesmith.package.selection.explain import explain_problem

    wanted = wanted_problems(lists, file)
    assert wanted.selection is not None
    layers, cache = open_databases(readonly=True), open_cache()
    status, every = wanted.status, []
    for target in map(build_target, targets) if targets else (target_of(None, None),):
        packed = packed_for(wanted, default_name([file]), target, layers, cache, Rows(), jobs, plans)
        every.append(packed)
        if explain:
            explained = [
                line
                for each in packed.problems
                for line in explain_problem(each, target, wanted.selection, layers, cache)
            ]
            (_print_json if as_json else _print_text)(target.name, explained, packed)
        problems = sum(bool(each.plans) for each in packed.problems)
        nbytes, out = len(encode(packed.package)), len(packed.problems) - problems
        kernels = len({each.digest for problem in packed.problems for each in problem.artifacts})
        if as_json:
            print_json({"what": "total", "target": target.name, "problems": problems, "out": out, "kernels": kernels,
                        "bytes": nbytes, "size": wanted.selection.size})  # fmt: skip
        else:
            print_wrapped(f"{target.name}: {problems} problems in, {out} out, {kernels} kernels, {nbytes} bytes")
        status = status or packed.status
    tell_unused(every)
    return status


def _print_json(target: str, explained: list[ExplainedPlan], packed: Packed) -> None:
    from tilesmith.package.selection.explain import explain_kernels

    for line in explained:
        print_json({"what": "out" if line.reason else "plan", "target": target} | asdict(line))
    for kernel in explain_kernels(packed.problems):
        print_json({"what": "kernel", "target": target} | asdict(kernel))


def _print_text(target: str, explained: list[ExplainedPlan], packed: Packed) -> None:
    from tilesmith.package.selection.explain import explain_kernels

    held = [line for line in explained if not line.reason]
    rows = [
        [line.us, line.plain_us, line.bytes, line.mode, line.types, line.tile or "-", line.arch_stages or "-",
         line.basis, f"{line.solver} {line.config}".strip(), line.command]
        for line in held
    ]  # fmt: skip
    if rows:
        click.echo(f"in, for {target}:")
        headings = ("us", "plain_us", "bytes", "mode", "types", "tile", "stages", "by", "kernel", "problem")
        print_table(headings, rows, below=("kernel", "problem"))
        click.echo()
    changed = [[line.instead_of, line.command] for line in held if line.instead_of]
    if changed:
        click.echo("in with another kernel than without the selection:")
        print_table(("out", "problem"), changed, below=("problem",))
        click.echo()
    out = [[line.mode, line.types, line.reason, line.command] for line in explained if line.reason]
    if out:
        click.echo("out:")
        print_table(("mode", "types", "reason", "problem"), out, below=("reason", "problem"))
        click.echo()
    kernels = [
        [each.bytes, each.stored, each.plans, each.digest[:12], " ".join(each.symbols)]
        for each in explain_kernels(packed.problems)
    ]
    if kernels:
        click.echo("kernels:")
        print_table(("bytes", "stored", "plans", "digest", "symbols"), kernels, below=("symbols",))
        click.echo()
