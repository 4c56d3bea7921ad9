"""Runs the commands, once their arguments are parsed; importing this imports everything.

Flags win over a TOML file's tables. Every error is one sentence that names the flag, or the file
and the setting.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import torch

from ..adapters.error_text import read_named
from ..adapters.forward_choice import why_no_triton
from ..backends import BACKENDS
from ..core import ConfigError
from . import report
from .config import Config
from .engine.parts import num_bytes
from .options import SETTINGS, given
from .prompt import make_request
from .request import FinishReason
from .structure import structured
from .threads import use_threads
from .wiring import wire


def read_config(file: Path | None, flags: Mapping[str, object]) -> Config:
    """The settings of a file, overridden by typed ones (path -> value).

    Raises:
        ConfigError: a setting is unknown, of the wrong type or out of its range.
    """
    rate, has_rate = "--synthetic-acceptance-rate", "policy.acceptance_rate" in flags
    # A synthetic rate implies the policy's name.
    flags = {"policy.name": "synthetic", **flags} if has_rate else flags
    name = flags.get("policy.name")
    if has_rate and name != "synthetic":
        raise ConfigError(f"{rate}: expected the policy synthetic, got {name}")
    table = {} if file is None else read_named(file, "a TOML file", tomllib.loads)
    of_file = table.get("policy")
    is_same = isinstance(of_file, Mapping) and of_file.get("name") == name
    if name == "synthetic" and not (has_rate or is_same):
        raise ConfigError(f"--policy: expected {rate} beside synthetic, got none")
    if isinstance(of_file, Mapping) and (has_rate or not (name is None or is_same)):
        # The settings of another policy do not apply.
        table["policy"] = {}
    typed = {path: one.opts[0] for path, one in SETTINGS.items() if path in flags}
    return structured(_with_flags(table, flags), Config, str(file), typed)


def _with_flags(table: Mapping[str, Any], flags: Mapping[str, object]) -> Mapping[str, Any]:
    merged = dict(table)
    for path, value in flags.items():
        section, _, name = path.rpartition(".")
        if not section:
            merged[name] = value
        elif isinstance(merged.setdefault(section, {}), Mapping):
            merged[section] = {**merged[section], name: value}
    return merged


def generate(options: Mapping[str, Any]) -> bool:
    """Continue a prompt and print the output; False if the request failed."""
    prompt, compare_plain = options["prompt"], options["compare_plain"]
    console = report.new_console(quiet=options["json_only"])
    config = read_config(options["config"], given(options))
    wired = wire(config)
    use_threads(config.models.num_threads, num_bytes(wired.decoder.target))
    request = make_request(prompt, config, wired)
    if compare_plain:
        report.warm_up(wired.decoder, request)
    engine = wired.decoder.start([request])
    if console.is_terminal:
        console.print(f"memory planned: {engine.memory_plan}\n", style="dim", soft_wrap=True)
    report.print_text(console, prompt, "dim")
    try:
        measured = report.measure(engine, console)
    except BaseException:
        # The error gets a line of its own.
        console.print()
        raise
    plain = report.measure_plain(wired.decoder, request) if compare_plain else None
    report.print_summary(console, config.backend, wired.decoder, measured, plain)
    if options["json_only"]:
        answer = report.as_json(config.backend, wired.decoder, measured, plain, engine.memory_plan)
        click.echo(json.dumps(answer))
    return measured.result.finish_reason is not FinishReason.ERROR


def list_backends() -> None:
    """Print which backends and forwards can be used, and what the others lack."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    console, backends = report.new_console(), BACKENDS.values()
    report.print_backends(console, backends, device.type, why_no_triton(device))
