"""The command line: `python -m acceptor.app.training --text FILE --out DIR`.

Reads flags and reports errors; the run itself is in pipeline.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
import torch

from ...core.errors import AcceptorError, UnavailableError
from .pipeline import train_pair
from .recipe import Recipe, with_settings
from .report import draw_losses, read_record

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--text", "texts", type=_FILE, multiple=True, required=True, help="UTF-8 text.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option("--device", default="cpu", show_default=True, help="A torch device, such as cuda.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="One of the recipe.")
@click.option("--figure", type=click.Path(dir_okay=False, path_type=Path), help="Loss curves.")
def main(
    texts: tuple[Path, ...], out: Path, device: str, settings: tuple[str, ...], figure: Path | None
) -> None:
    """Train a target and a draft on texts; write OUT/target, OUT/draft and OUT/record.json."""
    try:
        recipe = with_settings(Recipe(), settings)
        out.mkdir(parents=True, exist_ok=True)
        train_pair(texts, out, recipe, _usable(device), click.echo)
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
