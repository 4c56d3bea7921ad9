"""`acceptor bench`, and its subcommand `acceptor bench kernels`.

Imports that only a run needs happen when it runs, so help appears at once.
"""

from typing import Any

import click

from ..options import run
from .kernels.command import kernels
from .options import ARRIVALS, DRAFTERS, MODELS, OUTPUT, PAIR, REQUESTS, SWEEP


@click.group(
    commands=[kernels],
    invoke_without_command=True,
    params=[PAIR, DRAFTERS, *MODELS, *SWEEP, *REQUESTS, *ARRIVALS, *OUTPUT],
)
@click.pass_context
def bench(context: click.Context, /, **options: Any) -> None:
    """Serve requests and measure throughput, latency and acceptance.

    Policies, K, drafters, temperatures and backends take lists with commas; every combination is
    run with the same requests.
    """
    if context.invoked_subcommand is None:
        run(".bench.main:run", options)
