"""``tilesmith doctor``: what is wrong on this machine, and what to type."""

from __future__ import annotations

import click

from tilesmith.cli.options import json_flag
from tilesmith.cli.terminal import note, print_json, print_wrapped
from tilesmith.doctor.check import PROBLEM, Check
from tilesmith.doctor.health import examine

_INDENT = " " * 27  # of what is told of a check


@click.command("doctor", help="Check compilers, devices, PyTorch, folders, databases and cache, and say what to type.")
@json_flag
def command(as_json: bool) -> int:
    found: list[Check] = []
    for check in examine():
        found.append(check)
        if as_json:
            print_json({"check": check.name, "status": check.status, "detail": check.detail, "advice": check.advice})
            continue
        print_wrapped(check.detail, f"{check.status:8} {check.name:17} ", _INDENT)
        if check.advice:
            print_wrapped(check.advice, f"{_INDENT}> ", f"{_INDENT}  ")
    problems = sum(check.status == PROBLEM for check in found)
    note(f"{len(found)} checks, {problems} problem{'s' * (problems != 1)}")
    return 1 if problems else 0
