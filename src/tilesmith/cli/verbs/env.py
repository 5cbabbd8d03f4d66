"""``tilesmith env``: every environment variable, its value now, default, and meaning."""

from __future__ import annotations

import os

import click

from tilesmith import env
from tilesmith.cli.terminal import print_json, print_table


@click.command("env", help="Print every environment variable: its value, default, rule and meaning.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a variable, one a line.")
def command(as_json: bool) -> int:
    rows = [
        {
            "name": variable.name, "value": _text(variable.get()), "set": variable.is_set,
            "default": variable.default_text, "rule": variable.rule, "meaning": variable.meaning,
        }
        for variable in env.VARIABLES
    ]  # fmt: skip
    if as_json:
        for row in rows:
            print_json(row)
    else:
        headers = ("name", "value", "default", "meaning")
        print_table(headers, [[row[name] for name in headers] for row in rows], below=("meaning",))
    return 0


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return os.pathsep.join(map(str, value)) if isinstance(value, tuple) else str(value)
