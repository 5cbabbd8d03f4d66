"""``tilesmith tune-model``: run a PyTorch script, and tune the problems that it meets where the time is worth most."""

from __future__ import annotations

from pathlib import Path

import click

from tilesmith.cli.options import Number, external_option, json_flag, threads_option
from tilesmith.cli.terminal import complain, print_json
from tilesmith.cli.traced_script import check_script, torch_module, trace_script
from tilesmith.dispatch.locations import lasting_databases
from tilesmith.problems.driver import command_or_key
from tilesmith.ready.model_records import INTERRUPTED, ModelResult, ModelRow


@click.command(
    "tune-model", help="Run a PyTorch script, then tune the problems that it met where the time is worth most.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)  # fmt: skip
@click.option("--seconds", type=Number(5.0), default=600.0, help="Seconds for tuning (default 600).")
@click.option("--device", help="Where problems are tuned: cpu, cuda or cuda:N (default: where most of them ran).")
@external_option
@threads_option
@json_flag
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, metavar="[ARGS]...", type=click.UNPROCESSED)
def command(
    script: Path, arguments: tuple[str, ...], seconds: float, device: str | None, external: bool | None,
    threads: int | None, as_json: bool,
) -> int:  # fmt: skip
    check_script(script)
    lasting_databases()  # raises before the script runs
    tuning = torch_module("tilesmith.torch_ops.model_tuning")
    traced = trace_script(script, arguments, tuning.only_watched(), quiet=True)
    if traced.status:
        complain(f"{script} ended with status {traced.status}: nothing is tuned")
        return traced.status
    result: ModelResult = tuning.tune_trace(
        traced.trace, seconds=seconds, device=device, threads=threads, external=external,
        lines=True,
    )  # fmt: skip
    if as_json:
        for row in result.rows:
            print_json(_record(row))
        print_json(_sum(result))
    else:
        click.echo(str(result))
    if result.ended == INTERRUPTED:
        complain("stopped; the next run goes on from there")
        return 130
    return 0


def _record(row: ModelRow) -> dict[str, object]:
    return {
        "command": command_or_key(row.signature), "key": row.signature.key(), "calls": row.calls,
        "pytorch_us": row.pytorch_us, "untuned_us": row.untuned_us, "tuned_us": row.tuned_us,
        "before_us": row.before_us, "after_us": row.after_us, "speedup": row.speedup, "winner": row.winner,
        "solver": row.solver, "config": row.config, "state": row.state, "reason": row.reason,
    }  # fmt: skip


def _sum(result: ModelResult) -> dict[str, object]:
    return {
        "target": result.target, "problems": len(result.rows), "calls": sum(row.calls for row in result.rows),
        "before_us": result.before_us, "after_us": result.after_us, "speedup": result.speedup,
        "seconds": result.seconds, "ended": result.ended, "others": dict(result.others),
    }  # fmt: skip
