"""A group of commands that imports what a command needs only when the command is named."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """Subcommands given as name -> "module:attribute", the module relative to this package."""

    def __init__(self, *args: Any, lazy: Mapping[str, str], **options: Any) -> None:
        super().__init__(*args, **options)
        self._lazy = dict(lazy)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands' names, sorted."""
        return sorted({*super().list_commands(ctx), *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, imported if need be."""
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._lazy[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module, __package__), attribute)
        return command
