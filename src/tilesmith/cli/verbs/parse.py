"""``tilesmith parse``: what commands ask for."""

from __future__ import annotations

import click

from tilesmith.cli.options import PROBLEMS, json_flag, problems_argument
from tilesmith.cli.problem_list import read_problems
from tilesmith.cli.terminal import print_json, print_table
from tilesmith.problems.work import bytes_moved, flops


@click.command("parse", help="Print what a file of driver commands (or one command) asks for.", **PROBLEMS)
@problems_argument
@json_flag
def command(words: tuple[str, ...], as_json: bool) -> int:
    listing = read_problems(words)
    rows = [
        {
            **item.row,
            "func_name": item.signature.get_func_name(),
            "flops": flops(item.signature),
            "bytes": bytes_moved(item.signature),
        }  # fmt: skip
        for item in listing.items
    ]
    if as_json:
        for row in rows:
            print_json(row)
    elif rows:
        headers = ("flops", "bytes", "func_name")
        cells = [[item.short, *(row[name] for name in headers)] for item, row in zip(listing.items, rows, strict=True)]
        print_table(("problem", *headers), cells, below=("func_name",))
    return listing.status
