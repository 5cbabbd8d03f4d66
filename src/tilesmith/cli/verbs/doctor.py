"""``tilesmith doctor``: what is wrong on this machine, and what to type."""

from __future__ import annotations

import click

from tilesmith.cli.options import json_flag
from tilesmith.cli.terminal import note, print_json
from tilesmith.doctor.check import PROBLEM, Check
from tilesmith.doctor.health import examine


@click.command("doctor", help="Check compilers, devices, folders, databases and cache, and say what to type.")
@json_flag
def command(as_json: bool) -> int:
    found: list[Check] = []
    for check in examine():
        found.append(check)
        if as_json:
            print_json({"check": check.name, "status": check.status, "detail": check.detail, "advice": check.advice})
            continue
        click.echo(f"{check.status:8} {check.name:17} {' '.join(check.detail.split())}")
        if check.advice:
            click.echo(f"{'':8} {'':17} > {check.advice}")
    problems = sum(check.status == PROBLEM for check in found)
    note(f"{len(found)} checks, {problems} problem{'s' * (problems != 1)}")
    return 1 if problems else 0
