"""The command line: `acceptor generate`, `bench`, `tune`, `audit` and `backends`.

Errors are one line on stderr and exit code 2. Nothing here imports torch before a command needs it,
so help appears at once.
"""

import os
import sys
from collections.abc import Sequence
from errno import ENOSPC
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import click

from .bench.command import bench
from .options import FAILED, SETTINGS, NamedPath, option, run
from .tuning.command import tune

INTERRUPTED = 130
"""128 plus the number of SIGINT, the shells' convention."""


@click.group(
    commands=[bench, tune],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="acceptor")
def cli() -> None:
    """Speculative decoding whose text follows the target model exactly."""


@cli.command(
    params=[
        click.Option(["--prompt"], required=True, help="The text to continue."),
        *SETTINGS.values(),
        option("--config", NamedPath(path_type=Path), "TOML file; flags override it."),
        option("--compare-plain", None, "Also decode without drafts, and compare."),
        option("--json", None, "Print one JSON object and nothing else.", name="json_only"),
        option("--debug", None, "Show an error's traceback."),
    ]
)
def generate(debug: bool, **options: Any) -> None:
    """Continue a prompt, showing where each token comes from."""
    run(".commands:generate", options, debug=debug)


@cli.command()
@click.argument("sampler", metavar="MODULE:CALLABLE")
@click.option("--steps", type=click.IntRange(100, 10**7), default=20_000, show_default=True)
@click.option(
    "--temperature",
    type=click.FloatRange(0, 1e6),
    multiple=True,
    default=(1.0, 0.5, 0.0),
    show_default=True,
    help="May be repeated; 0 is greedy.",
)
@click.option("--seed", type=click.IntRange(0), default=0, help="Passed to the sampler.")
def audit(**options: Any) -> None:
    """Test whether a rejection sampler follows the target's law.

    That takes --steps verified drafts at each temperature. If it does not follow, known mistakes
    that fit are named, and the exit code is 1.
    """
    run(".audit.main:run", options)


@cli.command()
def backends() -> None:
    """List the backends, and what they lack here."""
    run(".commands:list_backends")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    if isinstance(sys.stdout, TextIOWrapper):
        # Text may hold characters that the terminal's encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = cli.main(arguments, prog_name="acceptor", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = error.exit_code
    except click.ClickException as error:
        words = " ".join(error.format_message().split())
        # A path or a field may hold control characters, which a terminal would obey.
        message = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)
        click.echo(f"acceptor: {message}", err=True)
        code = error.exit_code
    except click.Abort:
        click.echo("acceptor: interrupted", err=True)
        code = INTERRUPTED
    except OSError as error:
        if error.errno != ENOSPC:
            raise
        # Flushing the rest of the buffer at exit would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        click.echo(f"acceptor: output: expected room for it, got {error.strerror}", err=True)
        code = FAILED
    sys.exit(code)


if __name__ == "__main__":
    main()
