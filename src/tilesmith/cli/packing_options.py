"""Options of the verbs that pack problems. They are apart from ``packing``, which imports the solvers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click

target_option = click.option(
    "--target", "targets", multiple=True, metavar="TARGET",
    help="Such as sm_90a:132:h200; need not be this machine (the default); may be given again.",
)  # fmt: skip
plans_option = click.option(
    "--plans", type=click.IntRange(1, 64), default=1, help="Of each problem at most: the best, then the next."
)
jobs_option = click.option(
    "-j", "--max-processes", "jobs", type=click.IntRange(1), help="Compilers at a time (one a core)."
)


def default_name(paths: Sequence[str | Path]) -> str:
    """A package's name from those of its lists."""
    text = "-".join(Path(each).stem for each in paths).lower()
    return re.sub(r"[^a-z0-9._]+", "-", text).strip("-._")[:63] or "package"
