"""``tilesmith trace``: run a PyTorch script and write the problems that it meets."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click

from tilesmith.cli.options import json_flag
from tilesmith.cli.terminal import note, print_json
from tilesmith.cli.traced_script import check_script, trace_script
from tilesmith.errors import FileFormatError
from tilesmith.problems.driver import calls_text, command_or_key
from tilesmith.problems.rewrite import Signature


@click.command(
    "trace", help="Run a PyTorch script and write the convolutions and matrix products that it meets.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)  # fmt: skip
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path),
    help="File for the list (default: stdout; what the script prints goes to stderr then).",
)  # fmt: skip
@json_flag
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, metavar="[ARGS]...", type=click.UNPROCESSED)
def command(script: Path, arguments: tuple[str, ...], out: Path | None, as_json: bool) -> int:
    check_script(script)
    if out is not None:
        _write(out, "")  # a file that cannot be written is met before the script runs
    traced = trace_script(script, arguments, contextlib.nullcontext(), quiet=out is None)
    trace = traced.trace
    text = "".join(f"{line}\n" for line in _lines(script, trace))
    if out is not None:
        _write(out, text)
    if as_json:
        for signature, count in trace.problems.items():
            print_json(_record(signature, count))
    elif out is None:
        click.echo(text, nl=False)
    calls = sum(trace.problems.values())
    note(f"{len(trace.problems)} problems met in {calls} calls, {sum(trace.others.values())} calls not described")
    return traced.status


def _lines(script: Path, trace: Any) -> list[str]:
    lines = [f"# met by {script}"]
    lines += [f"{command_or_key(signature)}  # {calls_text(count)}" for signature, count in trace.problems.items()]
    return lines + [f"# not described: {text} ({calls_text(count)})" for text, count in trace.others.items()]


def _record(signature: Signature, count: int) -> dict[str, object]:
    return {
        "command": command_or_key(signature), "key": signature.key(),
        "direction": getattr(signature, "mode", "fwd"), "func_name": signature.get_func_name(), "calls": count,
    }  # fmt: skip


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be written: {error.strerror or error}") from None
