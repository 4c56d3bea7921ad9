"""The reference on a CPU beside Hugging Face's processors and `_speculative_sampling`.

One request, four drafts, 151,936 tokens: the least time of many alternating runs.
`python -m lab.speed.cpu > docs/data/cpu.md`, with docs and tests on the path, writes the table.
"""

import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial

import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.generation.utils import _speculative_sampling

from acceptor.app.bench.files import describe
from acceptor.app.bench.table import Table
from acceptor.backends import load_sampler
from acceptor.core import Probabilistic, SamplingParams, SamplingTensors, VerifyBatch

VOCAB_SIZE, NUM_DRAFTS, NUM_THREADS = 151_936, 4, 2
RECIPES = {
    "temperature 0.8": SamplingParams(seed=3, temperature=0.8),
    "temperature 0.8, top-p 0.95": SamplingParams(seed=3, temperature=0.8, top_p=0.95),
    "temperature 0.8, top-k 50, top-p 0.95": SamplingParams(
        seed=3, temperature=0.8, top_k=50, top_p=0.95
    ),
    "temperature 0.8, top-k 100,000, top-p 0.999": SamplingParams(
        seed=3, temperature=0.8, top_k=100_000, top_p=0.999
    ),
}


def acceptors(target: Tensor, draft: Tensor, drafts: Tensor, params: SamplingParams) -> None:
    """Verify with the reference."""
    batch = VerifyBatch.dense(
        target_logits=target,
        draft_token_ids=drafts,
        draft_logits=draft,
        positions=torch.tensor([7]),
    )
    load_sampler("reference").verify(batch, SamplingTensors.stack([params]), Probabilistic())


def hugging_faces(target: Tensor, draft: Tensor, drafts: Tensor, params: SamplingParams) -> None:
    """Process both models' rows as `generate` does, then verify."""
    processors = LogitsProcessorList([TemperatureLogitsWarper(params.temperature)])
    if params.top_k > 0:
        processors.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1:
        processors.append(TopPLogitsWarper(params.top_p))
    p, q = (processors(drafts, rows[0])[None] for rows in (target, draft))
    _speculative_sampling(drafts, q, NUM_DRAFTS, p)


def least_times(runs: Sequence[Callable[[], None]], num_rounds: int) -> list[tuple[float, float]]:
    """Milliseconds of each run: least wall time, least processor time of all threads."""
    times: list[list[tuple[float, float]]] = [[] for _ in runs]
    for _ in range(num_rounds):
        for run, taken in zip(runs, times, strict=True):
            wall, work = time.perf_counter(), time.process_time()
            run()
            taken.append((time.perf_counter() - wall, time.process_time() - work))
    return [(1e3 * min(t[0] for t in taken), 1e3 * min(t[1] for t in taken)) for taken in times]


def main(num_rounds: int = 60) -> None:
    """Print the table."""
    torch.set_num_threads(NUM_THREADS)
    # As after running a model: from here on the allocator keeps large blocks.
    torch.ones(31 << 17, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(1, NUM_DRAFTS + 1, VOCAB_SIZE, generator=generator) * 3
    draft = target[:, :-1] + torch.randn(1, NUM_DRAFTS, VOCAB_SIZE, generator=generator)
    # The likeliest tokens, so that all rows are decided.
    given = target, draft, draft.argmax(dim=-1)
    machine = ", ".join(f"{name} {value}" for name, value in describe(torch.device("cpu")).items())
    header = f"{datetime.now(UTC).date()}; {NUM_THREADS} threads; {machine}."
    rows = []
    for recipe, params in RECIPES.items():
        runs = [partial(run, *given, params) for run in (acceptors, hugging_faces)]
        times = least_times(runs, num_rounds)
        rows.append([recipe, *(f"{wall:.1f} ({work:.1f})" for wall, work in times)])
    table = Table(head=["ms (of all threads)", "acceptor", "transformers"], rows=rows)
    sys.stdout.write(f"{header}\n\n{table.as_markdown()}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
