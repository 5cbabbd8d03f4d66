"""``tilesmith completion``: the script that lets a shell complete verbs, options, flags and names."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

from tilesmith.cli.main import COMPLETE

SHELLS = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "~/.config/fish/completions/tilesmith.fish"}
HELP = f"""Print the script that lets a shell complete what is typed: verbs, options, their values, the flags of driver
commands, solvers and files. Load it where the shell starts ({", ".join(SHELLS.values())})."""


@click.command("completion", help=HELP)
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    found = get_completion_class(shell)
    assert found is not None
    # Click's class for bash runs bash to see its version, and need not be asked where the script is only written.
    click.echo(ShellComplete.source(found(ctx.find_root().command, {}, "tilesmith", COMPLETE)))
    return 0
