"""Acceptance of the lossless policies on the bundled pair, for the documentation.

Run from the repository's root, this writes acceptance.json and acceptance.md in some minutes:

    PYTHONPATH=tests python -m lab.acceptance_table
"""

import json
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import click

from acceptor.app.bench.builtin_prompts import PLAYS, PROSE
from acceptor.app.bench.files import write_file
from acceptor.app.bench.table import Table
from acceptor.app.config import Config, DecodingConfig
from acceptor.app.request import GenerationRequest
from acceptor.app.wiring import wire
from acceptor.core.policies import POLICIES
from acceptor.core.sampling_params import SamplingParams
from acceptor.core.statistics import AcceptanceStatistics

LOSSLESS = ("strict", "strict-coupled", "probabilistic", "block")
TEMPERATURES = (1.0, 0.7)
DRAFT_LENGTHS = (2, 4, 8)
MAX_TOKENS = 64

PROMPTS = (*PLAYS, *PROSE)
Row = dict[str, Any]
"""A policy, a temperature and a K, with the acceptance over all prompts."""


def measure_acceptance(
    policy: str,
    temperature: float,
    num_spec_tokens: int,
    prompts: Sequence[str] = PROMPTS,
    max_tokens: int = MAX_TOKENS,
) -> Row:
    """Continue every prompt with a seed of its own, all in one batch."""
    decoding = DecodingConfig(num_spec_tokens=num_spec_tokens)
    wired = wire(Config(policy=POLICIES[policy], decoding=decoding))
    requests = [
        GenerationRequest(
            prompt_token_ids=wired.tokenizer.encode(prompt),
            params=SamplingParams(temperature=temperature, seed=seed),
            max_tokens=max_tokens,
            ignore_eos=True,
        )
        for seed, prompt in enumerate(prompts)
    ]
    results = wired.decoder.generate(requests)
    figures = sum((result.statistics for result in results), AcceptanceStatistics())
    measured = ("acceptance_rate", "acceptance_length", "acceptance_rate_per_pos", "num_drafts")
    setting = {
        "policy": policy,
        "temperature": temperature,
        "num_spec_tokens": num_spec_tokens,
    }
    return setting | {name: getattr(figures, name) for name in measured}


def as_markdown(rows: Iterable[Row]) -> str:
    """The table of the documentation: acceptance rate and length by draft length."""
    cells: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        cell = f"{row['acceptance_rate']:.1%}, {row['acceptance_length']:.2f}"
        cells.setdefault((str(row["temperature"]), row["policy"]), []).append(cell)
    head = ["temperature", "policy", *(f"K = {length}" for length in DRAFT_LENGTHS)]
    return Table(
        head=head, rows=[(*key, *cell) for key, cell in cells.items()], num_names=2
    ).as_markdown()


@click.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("docs/data"),
    show_default=True,
)
def main(out: Path) -> None:
    """Measure all policies, temperatures and draft lengths; takes some minutes."""
    rows = []
    for temperature, length, policy in product(TEMPERATURES, DRAFT_LENGTHS, LOSSLESS):
        rows.append(measure_acceptance(policy, temperature, length))
        click.echo(f"{policy} {temperature} {length}: {rows[-1]['acceptance_rate']:.1%}")
    record = {"num_prompts": len(PROMPTS), "max_tokens": MAX_TOKENS, "rows": rows}
    write_file(out / "acceptance.json", json.dumps(record, indent=1) + "\n")
    write_file(out / "acceptance.md", as_markdown(rows))


if __name__ == "__main__":
    main()
