"""``tilesmith help``: the help of a verb, or of one of its actions."""

from __future__ import annotations

import click


@click.command("help", help="Print the help of a verb, or of an action of it.")
@click.argument("words", nargs=-1, metavar="[VERB [ACTION]]")
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> int:
    shown = ctx.find_root()
    left = list(words)
    while left:
        if not isinstance(shown.command, click.Group):
            raise click.UsageError(f"`{shown.command_path}` has no action {left[0]!r}", shown)
        name, found, left = shown.command.resolve_command(shown, left)
        if found is None:
            raise click.UsageError(f"{name!r} does not exist", shown)
        shown = found.context_class(found, info_name=name, parent=shown)
    click.echo(shown.get_help())
    return 0
