"""Groups of commands that know what a misspelt name may have meant."""

from __future__ import annotations

import click

from tilesmith.spelling import did_you_mean


class Named(click.Group):
    """A group of verbs or actions: a name that it does not have gets the nearest one that it has."""

    what = "action"

    def names(self, ctx: click.Context) -> list[str]:
        """The arguments that may stand in the place of an action."""
        return self.list_commands(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            known = self.names(ctx)
            where = f" of `{ctx.command_path}`" if ctx.parent else ""
            raise click.UsageError(f"{self.what} {name!r}{where} does not exist{did_you_mean(name, known)}", ctx)
        return super().resolve_command(ctx, args)
