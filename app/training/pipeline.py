"""The whole run in order: texts, tokenizer, target, draft, measures, files.

Decides nothing itself: every number is the recipe's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from attrs import frozen
from tokenizers import Tokenizer
from torch import Tensor
from transformers import LlamaForCausalLM

from .data import Source, TokenStream, encode, read_source
from .distill import Pool, distill_draft, sample_pools
from .measure import measure_agreement
from .models import save_model
from .pace import Budget
from .recipe import Recipe
from .record import (
    describe_agreements,
    describe_curves,
    describe_model,
    describe_run,
    describe_source,
    write_record,
)
from .tokenizer import save_tokenizer, train_tokenizer
from .train import Report, train_target

TARGET_ENDS, SAMPLING_ENDS, DRAFT_ENDS = 0.5, 0.65, 0.93
"""Shares of the time limit; the rest is for measuring what came out."""

_SAMPLE_TOKENS = 300


@frozen(eq=False)
class Corpus:
    """The texts as the models see them; held_out: covering rows, -1 after the last token."""

    sources: tuple[Source, ...]
    tokenizer: Tokenizer
    training: TokenStream
    held_out: Tensor

    @property
    def num_held_out_bytes(self) -> int:
        """Length of the held-out text in UTF-8."""
        return sum(len(text.encode()) for source in self.sources for text in source.held_out)


def read_corpus(paths: Sequence[Path], recipe: Recipe, device: torch.device) -> Corpus:
    """Read and split the texts; the tokenizer learns from the training part alone."""
    sources = tuple(read_source(path) for path in paths)
    training = [text for source in sources for text in source.training]
    held_out = [text for source in sources for text in source.held_out]
    tokenizer = train_tokenizer(training, recipe.vocab_size)
    reach = recipe.context_length // 2
    stream = encode(tokenizer, training, reach, device)
    unseen = encode(tokenizer, held_out, reach, device)
    return Corpus(sources, tokenizer, stream, unseen.covering_rows(recipe.context_length))


def train_pair(
    paths: Sequence[Path],
    out: Path,
    recipe: Recipe,
    device: torch.device,
    budget: Budget,
    report: Report,
) -> None:
    """Train both models on the texts and write `out`/target, `out`/draft and `out`/record.json.

    Models are written whenever a better one is known.
    """
    torch.manual_seed(recipe.seed)
    # What the clock ends cannot be repeated anyway.
    torch.use_deterministic_algorithms(budget.seconds is None, warn_only=True)
    # Filling fresh memory would only cost launches: nothing here reads what it has not written.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    corpus = read_corpus(paths, recipe, device)
    report(f"{len(corpus.training.tokens):,} training tokens after {budget.elapsed:.1f} s")
    keep_target, keep_draft = (
        partial(_save, tokenizer=corpus.tokenizer, directory=out / name, recipe=recipe)
        for name in ("target", "draft")
    )
    learned = train_target(
        corpus.training, corpus.held_out, recipe, budget.part(TARGET_ENDS), keep_target, report
    )
    target, target_curve = learned
    pools = sample_pools(target, recipe, device, budget.part(SAMPLING_ENDS))
    num_rows = sum(len(pool.seen) for pool in pools)
    report(f"{num_rows:,} rows written by the target after {budget.elapsed:.1f} s")
    draft, draft_curve = distill_draft(
        target,
        corpus.training,
        pools,
        corpus.held_out,
        recipe,
        budget.part(DRAFT_ENDS),
        keep_draft,
        report,
    )
    keep_draft(draft)
    record = {
        **describe_run(recipe, device, budget),
        **_outcome(corpus, target, draft, pools),
        "curves": describe_curves(target=target_curve, draft=draft_curve),
    }
    write_record(record, out / "record.json")
    report(f"done after {budget.elapsed:.1f} s")


def _save(model: LlamaForCausalLM, tokenizer: Tokenizer, directory: Path, recipe: Recipe) -> None:
    save_model(model, directory)
    save_tokenizer(tokenizer, directory, recipe.context_length)


def _outcome(
    corpus: Corpus, target: LlamaForCausalLM, draft: LlamaForCausalLM, pools: Sequence[Pool]
) -> dict[str, object]:
    models = {"target": target, "draft": draft}
    agreements = [measure_agreement(target, draft, p.unseen, p.temperature) for p in pools]
    return {
        "sources": [describe_source(source) for source in corpus.sources],
        "training_tokens": len(corpus.training.tokens),
        "models": {
            name: describe_model(model, corpus.held_out, corpus.num_held_out_bytes)
            for name, model in models.items()
        },
        "agreement": describe_agreements(agreements),
        "samples": {str(pool.temperature): _sample(corpus.tokenizer, pool) for pool in pools},
    }


def _sample(tokenizer: Tokenizer, pool: Pool) -> str:
    text: str = tokenizer.decode(pool.unseen[0, 1:_SAMPLE_TOKENS].tolist())
    return text
