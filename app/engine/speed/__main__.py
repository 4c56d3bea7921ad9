"""`python -m acceptor.app.engine.speed`: serve random models on a GPU and write what it took."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import click
import torch
from attrs import asdict

from ....backends import load_sampler
from ....core.policies import Synthetic
from .hugging_face import load_copy, tokens_per_second
from .operations import products, time_attention, time_products
from .served import PROMPT_LEN, Served, make_engine, serve
from .shapes import DRAFT, SEEDS, TARGET, make_model
from .table import as_markdown
from .timing import bandwidth

NUM_SPEC_TOKENS = 3
ACCEPTANCE_RATE = 0.6
CONCURRENCIES = (1, 16)


def measure(backend: str) -> Iterator[Served]:
    """Every concurrency, with drafts and without."""
    target = make_model(TARGET, SEEDS["target"], "cuda")
    draft = make_model(DRAFT, SEEDS["draft"], "cuda")
    sampler = load_sampler(backend)
    policy = Synthetic.from_acceptance_rate(ACCEPTANCE_RATE, NUM_SPEC_TOKENS)
    for concurrency, num_spec_tokens in product(CONCURRENCIES, (NUM_SPEC_TOKENS, 0)):
        engine = make_engine(
            target,
            draft if num_spec_tokens else None,
            sampler,
            policy,
            num_spec_tokens,
            concurrency,
        )
        yield serve(engine, concurrency)


def measure_hugging_face() -> dict[str, float]:
    """Tokens per second of one prompt, plain and assisted."""
    target, draft = load_copy(TARGET, SEEDS["target"]), load_copy(DRAFT, SEEDS["draft"])
    generator = torch.Generator().manual_seed(0)
    prompt = torch.randint(TARGET["vocab_size"], (1, PROMPT_LEN), generator=generator).cuda()
    return {
        "plain": tokens_per_second(target, None, prompt, NUM_SPEC_TOKENS),
        "assisted": tokens_per_second(target, draft, prompt, NUM_SPEC_TOKENS),
    }


@click.command()
@click.option("--backend", default="triton", show_default=True)
@click.option("--hugging-face/--no-hugging-face", default=True, show_default=True)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("docs/data"),
    show_default=True,
)
def main(backend: str, hugging_face: bool, out: Path) -> None:
    """Needs a CUDA device with 60 GB; takes about two minutes."""
    out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    record: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "backend": backend,
        "acceptance_rate": ACCEPTANCE_RATE,
        "bandwidth": bandwidth(),
        "weight_bytes": {"target": _weight_bytes(TARGET), "draft": _weight_bytes(DRAFT)},
        "rows": rows,
    }
    record |= {"products": time_products(), "attention": time_attention()}
    for served in measure(backend):
        rows.append(asdict(served))
        click.echo(served)
        # After every row: what a failure leaves is still worth having.
        _write(record, out)
    torch.cuda.empty_cache()
    if hugging_face:
        record["hugging_face"] = measure_hugging_face()
    _write(record, out)


def _weight_bytes(shape: dict[str, Any]) -> int:
    """What one forward reads: all weights; of the embedding, a few rows."""
    *layer, head = products(shape).values()
    num_layers: int = shape["num_hidden_layers"]
    return 2 * (num_layers * sum(rows * columns for rows, columns in layer) + head[0] * head[1])


def _write(record: dict[str, Any], out: Path) -> None:
    (out / "engine.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (out / "engine.md").write_text(as_markdown(record), encoding="utf-8")


if __name__ == "__main__":
    main()
