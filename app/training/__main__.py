"""The command line: `python -m acceptor.app.training --text FILE --out DIR`.

Reads flags and reports errors; the run itself is in pipeline.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
import torch
from transformers.utils.logging import disable_progress_bar

from ...core.errors import AcceptorError, UnavailableError
from .pace import Budget
from .pipeline import train_pair
from .recipe import RECIPES, with_settings
from .report import draw_losses, read_record

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--text", "texts", type=_FILE, multiple=True, required=True, help="UTF-8 text.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option("--device", default="cpu", show_default=True, help="A torch device, such as cuda.")
@click.option(
    "--recipe", "name", type=click.Choice([*RECIPES]), default="bundled", show_default=True
)
@click.option(
    "--seconds", type=click.FloatRange(min=0, min_open=True), help="End by then.  [default: never]"
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="One of the recipe.")
@click.option("--figure", type=click.Path(dir_okay=False, path_type=Path), help="Loss curves.")
def main(
    texts: tuple[Path, ...],
    out: Path,
    device: str,
    name: str,
    seconds: float | None,
    settings: tuple[str, ...],
    figure: Path | None,
) -> None:
    """Train a target and a draft on texts; write OUT/target, OUT/draft and OUT/record.json."""
    budget = Budget(seconds)
    # A line of ours says more than a bar per checkpoint.
    disable_progress_bar()
    try:
        recipe = with_settings(RECIPES[name], settings)
        out.mkdir(parents=True, exist_ok=True)
        train_pair(texts, out, recipe, _usable(device), budget, click.echo)
    except AcceptorError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
    draw_losses(read_record(out / "record.json"), figure or out / "losses.svg")


def _usable(device: str) -> torch.device:
    try:
        return torch.empty(0, device=device).device
    except (AssertionError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise UnavailableError(
            f"--device {device}: expected a device torch can use: {reason}"
        ) from None


if __name__ == "__main__":
    main()
