"""What the commands do, once their arguments are parsed; importing this imports everything."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import click
import torch

from ..adapters.forward_choice import why_no_triton
from ..backends import BACKENDS
from .console import new_console
from .generate import measure, measure_plain, warm_up
from .prompt import make_request
from .report import as_json, print_backends, print_fragment, print_summary, print_text
from .request import FinishReason
from .settings import read_config
from .threads import use_threads
from .wiring import wire


def generate(
    prompt: str,
    config_file: Path | None,
    flags: Mapping[str, object],
    *,
    compare_plain: bool,
    json_only: bool,
) -> bool:
    """Continue a prompt and print what comes; False if its logits were bad."""
    console = new_console()
    config = read_config(config_file, flags)
    wired = wire(config)
    use_threads(config.models.num_threads, wired.target_bytes)
    request = make_request(prompt, config, wired)
    if compare_plain:
        warm_up(wired.decoder, request)
    engine = wired.decoder.start([request])
    if json_only:
        measured = measure(engine)
    else:
        if console.is_terminal:
            console.print(f"memory planned: {engine.memory_plan}\n", style="dim", soft_wrap=True)
        print_text(console, prompt, "dim")
        try:
            measured = measure(engine, partial(print_fragment, console))
        except BaseException:
            # What ended it is told on a line of its own.
            console.print()
            raise
    plain = measure_plain(wired.decoder, request) if compare_plain else None
    if json_only:
        answer = as_json(config.backend, wired.decoder, measured, plain, engine.memory_plan)
        click.echo(json.dumps(answer))
    else:
        print_summary(console, config.backend, wired.decoder, measured, plain)
    return measured.result.finish_reason is not FinishReason.ERROR


def list_backends() -> None:
    """Print which backends and forwards can be used, and what the others lack."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print_backends(new_console(), BACKENDS.values(), device.type, why_no_triton(device))
