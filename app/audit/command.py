"""`acceptor audit`. Imports that only a run needs happen when it runs."""

import click

from ..options import errors_in_one_line


@click.command()
@click.argument("sampler", metavar="MODULE:CALLABLE")
@click.option("--steps", type=click.IntRange(100, 10**7), default=20_000, show_default=True)
@click.option(
    "--temperature",
    type=click.FloatRange(0, 1e6),
    multiple=True,
    default=(1.0, 0.5, 0.0),
    show_default=True,
    help="Given once or more; 0 is greedy.",
)
@click.option("--seed", type=click.IntRange(0), default=0, help="Handed to the sampler.")
@click.pass_context
def audit(
    context: click.Context, /, sampler: str, steps: int, temperature: tuple[float, ...], seed: int
) -> None:
    """Test whether a rejection sampler follows the target's law, and name its mistake.

    Exit code 1 says that it does not.
    """
    with errors_in_one_line():
        from . import main  # noqa: PLC0415, imports torch

        passed = main.run(sampler, steps, tuple(dict.fromkeys(temperature)), seed)
    if not passed:
        context.exit(1)
