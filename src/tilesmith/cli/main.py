"""The entry point: verbs are imported when they are asked for, and every failure is one line with an exit status.

Exit status: 0 fine, 1 a check failed, 2 usage, 3 times that say little, 130 stopped by Ctrl-C. Data goes to stdout,
everything else to stderr.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import click

from tilesmith import env
from tilesmith.cli.naming import Named
from tilesmith.cli.terminal import begin_command, complain, start_logging
from tilesmith.db.waiting import patiently
from tilesmith.errors import TilesmithError
from tilesmith.spelling import did_you_mean

# Verb -> its one-line help. Each lives in the file of its name in cli/verbs/.
VERBS: Final = {
    "parse": "print what a driver command, or a file of them, asks for",
    "tune": "search the best config of each problem and remember it",
    "fleet": "say how long a fleet of GPUs would tune a list",
    "retune": "search anew what a new driver, compiler or solver may have changed",
    "preload": "decide, compile and keep problems, so that strict mode runs them",
    "gemm": "tune and measure matrix products beside rivals, and print all that is known",
    "bench": "time problems, beside another library",
    "verify": "check the numbers of problems against a float64 reference",
    "generate": "write the sources of a problem and the exact compiler command",
    "explain": "say why a solver is chosen: every candidate with its reason, prediction and time",
    "db": "look at databases, exchange what they hold, and look after them",
    "report": "draw databases and results as one HTML page, or say what changed between two",
    "package": "build kernel packages, look at them, compare and change them",
    "embed": "write and build a C library with the kernels of chosen problems",
    "cache": "list, verify, prune or clear the cache of kernels, plans and sources",
    "doctor": "check compilers, devices, PyTorch, folders, databases and cache, and say what to type",
    "trace": "run a PyTorch script and write the problems that it meets",
    "tune-model": "run a PyTorch script and tune the problems that it meets where the time is worth most",
    "solvers": "list the families of kernels: what each computes, and the axes of its configs",
    "env": "print every environment variable",
    "help": "print the help of a verb",
    "completion": "print the script that lets a shell complete what is typed",
}
WITHOUT_DATA: Final = ("help", "completion")  # what they print is for people and shells
EXAMINER: Final = "doctor"
_PATIENT: Final = (
    "db",
    "gemm",
    "tune",
    "tune-model",
    "retune",
    "preload",
)  # work on databases: it waits longer for them than a call may
DRIVER: Final = "MIOpenDriver"
BASES: Final = ("conv", "gemm")
COMMANDS_FILE: Final = "--commands-file"  # which a driver's command line may begin with
COMPLETE: Final = "_TILESMITH_COMPLETE"  # set by the script of `tilesmith completion` while it asks
LAB: Final = "gemm"
MAX_WORDS: Final = 1 << 14  # of a command line: click takes a second for 40,000 of them


class _Verbs(Named):
    """Loads a verb's file when the verb is used; the list of verbs needs none of them."""

    what = "verb"

    def names(self, ctx: click.Context) -> list[str]:
        return [*VERBS, *BASES, DRIVER]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        from tilesmith.cli.examples import with_examples

        command: click.Command = import_module(f"tilesmith.cli.verbs.{cmd_name.replace('-', '_')}").command
        if COMPLETE in os.environ:
            from tilesmith.cli.completing import with_flags

            return with_flags(command)
        return with_examples(command, cmd_name)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        from tilesmith.cli.completing import driver_completions

        begun = [*getattr(ctx, "_protected_args", ()), *ctx.args]
        if begun:  # no verb: a driver command
            return driver_completions(begun, incomplete)
        verbs = [CompletionItem(name, help=text) for name, text in VERBS.items() if name.startswith(incomplete)]
        return verbs + [each for each in driver_completions((), incomplete or "conv") if each.type == "plain"]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))
        with formatter.section("Driver commands"):
            formatter.write_text(
                "tilesmith [MIOpenDriver] conv|convfp16|convbfp16|convint8|gemm|... FLAGS: "
                "runs a driver command verbatim"
            )
        from tilesmith.cli.examples import write_examples

        write_examples(formatter, "")


def _version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        from tilesmith import __version__

        click.echo(__version__)
        ctx.exit()


@click.group(cls=_Verbs, help="Finds, remembers and launches the fastest kernel for convolutions and GEMMs.")
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
def group() -> None:
    pass


def main(began: float | None = None) -> None:
    """The command ``tilesmith``, whose process began at this moment of ``time.monotonic``."""
    for name in ("stdout", "stderr"):  # one that was closed at the start takes what is written, and forgets it
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    try:
        status = run(sys.argv[1:], began)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of stdout has gone: nothing is wrong here
        _forget_output()
        status = 0
    except OSError as error:
        _forget_output()
        with contextlib.suppress(OSError):
            # Writing to an open stream fails without a file's name; every other failure has one.
            what = "stdout cannot be written" if error.filename is None else str(error.filename)
            complain(f"{what}: {error.strerror or error}")
        status = 1
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)


def _forget_output() -> None:
    """Drops buffered output, so that it is not written again when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(arguments: Sequence[str], began: float | None = None) -> int:
    """Run one command line; returns its exit status."""
    begin_command(began)
    if instruction := os.environ.get(COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(group, {}, "tilesmith", COMPLETE, instruction)
    try:
        _check_environment(bool(arguments) and arguments[0] == EXAMINER)
        if not arguments:
            complain("a verb or a driver command is missing (see `tilesmith --help`)")
            return 2
        if len(arguments) > MAX_WORDS:
            complain(f"a command line of {len(arguments)} words: at most {MAX_WORDS} are read")
            return 2
        words = _driver_words(arguments)
        if words is not None:
            from tilesmith.cli.verbs.driver import run_command

            return run_command(words)
        try:
            with patiently() if arguments[0] in _PATIENT else contextlib.nullcontext():
                result = group.main(list(arguments), prog_name="tilesmith", standalone_mode=False)
        except SystemExit:  # click's answer to a reader that has gone
            raise BrokenPipeError from None
        return result if isinstance(result, int) else 0
    except TilesmithError as error:
        complain(str(error))
        return error.exit_status
    except MemoryError as error:
        complain(f"there is not enough memory for this problem: {error}")
        return 1
    except click.ClickException as error:
        complain(_usage_line(error))
        return 2
    except (KeyboardInterrupt, click.Abort):
        complain("stopped")
        return 130


def _check_environment(examined: bool) -> None:
    """Report bad values before work begins, except for verbs that report them themselves."""
    if examined:
        with contextlib.suppress(TilesmithError):
            start_logging()
        return
    env.check_all()
    if env.FIND_MODE.get() == "background":  # a command is over before anything is measured in the background
        os.environ[env.FIND_MODE.name] = "hybrid"
    start_logging()
    for name in env.unknown_names():
        complain(f"warning: {name} does not exist; `tilesmith env` lists the variables")


def _driver_words(arguments: Sequence[str]) -> list[str] | None:
    """The driver command in ``arguments``, or None if they name a verb."""
    words = list(arguments)
    if " " in words[0].strip():  # the whole command in quotes
        words = [*words[0].split(), *words[1:]]
    first = words[0].rsplit("/", 1)[-1]
    if first == DRIVER:
        return words
    if first == LAB:  # a verb of this name, and a base command whose flags follow
        return None if len(words) > 1 and (not words[1].startswith("-") or words[1] == "--help") else words
    if first in VERBS:
        return None
    if first.startswith("-"):  # options of a driver command, whose commands are in a file
        return words if any(word.partition("=")[0] == COMMANDS_FILE for word in words) else None
    # No other verb begins like a base command, so that an unknown base is told by the driver's grammar, with its bases.
    if first.startswith(BASES):
        return words
    from tilesmith.problems.driver.flags import is_foreign_base

    return words if is_foreign_base(first) else None


def _usage_line(error: click.ClickException) -> str:
    message = error.format_message()
    if isinstance(error, click.exceptions.NoArgsIsHelpError):  # its message is the whole help text
        message = "an action is missing"
    kind = getattr(getattr(error, "param", None), "type", None)
    if isinstance(kind, click.Choice) and (value := re.search(r"'([^']+)' is not one of", message)):
        message = f"{message.rstrip('.')}{did_you_mean(value[1], map(str, kind.choices))}"
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "tilesmith"
    return f"{message} (see `{where} --help`)"
