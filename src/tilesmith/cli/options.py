"""Options that several verbs share."""

from __future__ import annotations

import math
from typing import Any, Final

import click

from tilesmith import env
from tilesmith.cli.completing import complete_device, complete_solver, complete_words
from tilesmith.cli.naming import Named
from tilesmith.problems.dtypes import DTYPES


class Number(click.FloatRange):
    """A number in a range; NaN and Inf, which compare with nothing or have no end, are none."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


class Actions(Named):
    """The actions of a verb, in the order of its file."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


# A driver command may stand on the command line without quotes: flags that a verb does not know belong to it.
PROBLEMS: Final[dict[str, Any]] = {"context_settings": {"ignore_unknown_options": True}}

# The problems of a verb: a file of driver commands and keys, or one of them on the command line.
problems_argument = click.argument(
    "words", nargs=-1, required=True, metavar="FILE|COMMAND", type=click.UNPROCESSED, shell_complete=complete_words
)
some_problems_argument = click.argument(
    "words", nargs=-1, metavar="[FILE|COMMAND|KEY]", type=click.UNPROCESSED, shell_complete=complete_words
)
json_flag = click.option("--json", "as_json", is_flag=True, help="JSON instead of text, one object a line.")
csv_flag = click.option("--csv", "as_csv", is_flag=True, help="CSV instead of text, with a line of names.")
long_flag = click.option("--long", "whole", is_flag=True, help="Whole commands and configs in place of short names.")
solver_option = click.option("--solver", default="", help="Of this solver alone.", shell_complete=complete_solver)
threads_option = click.option(
    "--threads", type=click.IntRange(1, env.MAX_THREADS), help="Threads of a launch (default: all usable cores)."
)
device_option = click.option(
    "--device", default="cpu", help="Where problems run: cpu (the default), cuda, or cuda:N for another GPU.",
    shell_complete=complete_device,
)  # fmt: skip
devices_option = click.option(
    "--device", default="cpu", help="Where problems run: cpu (the default), cuda, cuda:N, or all for every GPU.",
    shell_complete=complete_device,
)  # fmt: skip
external_option = click.option(
    "--external/--generated-only", default=None, help="Whether PyTorch's own CUDA kernels take part (default: where "
    "PyTorch is loaded and TILESMITH_EXTERNAL lets them).",
)  # fmt: skip
mode_option = click.option(
    "--mode",
    type=click.Choice([mode for mode in env.FIND_MODES if mode != "background"]),
    help="In place of TILESMITH_FIND_MODE for this run.",
)
dtype_option = click.option("--dtype", type=click.Choice(list(DTYPES)), help="Give every problem this element type.")
seed_option = click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="Of the random data (default 0)."
)
