"""Completes an unfinished word of a command line (click's completion, for bash, zsh and fish)."""

from __future__ import annotations

from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem


def driver_completions(words: Sequence[str], incomplete: str) -> list[CompletionItem]:
    """Candidates behind ``words``: the flags of a driver command that they have begun, else files and base commands."""
    from tilesmith.problems.driver.flags import CONV_BASES, GEMM_BASES, flags_of

    base = next((word for word in words if word in CONV_BASES or word in GEMM_BASES), None)
    if base is None:  # a shell offers files where no other word is offered
        known = (*CONV_BASES, *GEMM_BASES) if incomplete else ()
        bases = [CompletionItem(each) for each in known if each.startswith(incomplete)]
        return bases or [CompletionItem(incomplete, type="file")]
    flags = [CompletionItem(f"--{flag.long}", help=flag.meaning) for flag in flags_of(base)]
    return [each for each in flags if str(each.value).startswith(incomplete)]


def with_flags(command: click.Command) -> click.Command:
    """The command, which behind a driver command offers the driver's flags beside its own options."""
    if getattr(command, "offers_flags", False) or not any(each.name == "words" for each in command.params):
        return command
    command.offers_flags = True  # type: ignore[attr-defined]
    own = command.shell_complete

    def shell_complete(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        words = [str(word) for word in ctx.params.get("words") or ()]
        more = driver_completions(words, incomplete) if words and incomplete.startswith("-") else []
        return own(ctx, incomplete) + [each for each in more if each.type == "plain"]

    command.shell_complete = shell_complete  # type: ignore[method-assign]
    return command


def complete_words(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return driver_completions([str(word) for word in ctx.params.get(parameter.name or "") or ()], incomplete)


def complete_solver(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from tilesmith.solvers.table import all_solvers

    names = [each.name for each in all_solvers()]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_device(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in ("cpu", "cuda") if name.startswith(incomplete)]
