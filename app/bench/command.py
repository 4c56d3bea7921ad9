"""`acceptor bench`, and its subcommand `acceptor bench kernels`.

This module refuses to import what only a run needs, so that help appears at once.
"""

import click

from .lazy_group import LazyGroup


@click.group(cls=LazyGroup, lazy={"kernels": ".kernels.command:kernels"})
def bench() -> None:
    """Measure backends and decoding."""
