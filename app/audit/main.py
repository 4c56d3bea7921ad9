"""Runs `acceptor audit`: finds the sampler, audits it, prints the findings."""

import sys
from collections.abc import Mapping
from importlib import import_module
from traceback import extract_tb
from typing import Any

from ...adapters.error_text import with_kind
from ...core import AcceptorError, UnavailableError
from ...core.checks import check_filled
from ..bench.table import Table
from ..report import new_console
from .run import Audit, Step, audit


def run(options: Mapping[str, Any]) -> bool:
    """Audit and print; return whether the sampler passed."""
    name, temperatures = options["sampler"], tuple(dict.fromkeys(options["temperature"]))
    check_filled("sampler", name)
    step, how = load_step(name), {"num_steps": options["steps"], "seed": options["seed"]}
    try:
        found = audit(step, temperatures=temperatures, **how)
    except AcceptorError:
        raise
    except Exception as error:
        place = extract_tb(error.__traceback__)[-1]
        got = f"{with_kind(error)}, {place.filename}:{place.lineno}"
        raise UnavailableError(f"{name}: expected token ids, got {got}") from error
    head = ["temperature", "looked at", "log ratio", "limit", "notices", "verdict"]
    rows = []
    for one in found.findings:
        numbers = f"{one.ratio:.1f}", f"{one.limit:.1f}", f"{one.detectable:.3f}"
        verdict = "follows" if one.follows else "differs"
        rows.append([f"{one.temperature:g}", one.view, *numbers, verdict])
    console = new_console()
    console.print(Table(head=head, rows=rows, num_names=2).as_rich())
    console.print(f"{name} {sentence(found)}", soft_wrap=True)
    return found.passed


def load_step(name: str) -> Step:
    """The callable of this name; modules in the working directory are found, too."""
    module, _, attribute = name.partition(":")
    sys.path.insert(0, "")
    try:
        step: Step = getattr(import_module(module), attribute)
    except Exception as error:
        got = with_kind(error)
        raise UnavailableError(f"{name}: expected module:callable, got {got}") from error
    finally:
        sys.path.remove("")
    if not callable(step):
        raise UnavailableError(f"{name}: expected a callable, got {type(step).__name__}")
    return step


def sentence(found: Audit) -> str:
    """Pass or fail, and the mistakes that fit."""
    if found.passed:
        return f"follows the law as far as {found.num_steps} steps at each temperature show"
    fits = " or ".join(found.mistakes) if found.mistakes else "no known mistake"
    return f"does not follow the law; what fits: {fits}"
