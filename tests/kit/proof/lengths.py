"""How many draft tokens block and probabilistic verification accept, in expectation.

Thresholds say it exactly for a given draft, and enumeration or many drafts do the rest: no uniform
is drawn.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import torch
from attrs import evolve, frozen
from torch import Tensor

from acceptor.app.config import Config, DecodingConfig
from acceptor.app.decoder import Decoder
from acceptor.app.model_drafter import ModelDrafter
from acceptor.app.request import GenerationRequest
from acceptor.app.wiring import wire
from acceptor.core import Block, DraftView, Probabilistic, SamplingParams

Model = Callable[[tuple[int, ...]], Tensor]
"""Log-probabilities after these tokens: [vocab_size] float64."""

PROMPTS = (
    "ROMEO:\n",
    "KING RICHARD III:\nWhat is",
    "To Sherlock Holmes she is always",
    "The colonies in the year",
    "First Citizen:\nBefore we proceed",
    "It was upon a cold morning",
    "The House of Representatives",
    "JULIET:\nO ",
)


@frozen
class Lengths:
    """Mean numbers of accepted draft tokens, without the token that follows them.

    Attributes:
        probabilistic: tests one token after the other.
        block: tests the draft together.
    """

    probabilistic: float
    block: float


def expected_lengths(target: Model, draft: Model, num_drafts: int) -> Lengths:
    """Over all drafts that the draft model can make, from nothing."""
    vocab_size, sums = len(target(())), [0.0, 0.0]
    for text in product(range(vocab_size), repeat=num_drafts):
        contexts = [text[:place] for place in range(num_drafts + 1)]
        log_q = torch.stack([draft(context) for context in contexts[:-1]])
        tokens = torch.tensor(text)
        mass = float(log_q.gather(1, tokens[:, None]).sum().exp())
        if mass > 0:
            log_p = torch.stack([target(context) for context in contexts])
            lengths = lengths_of(DraftView(tokens, log_p, log_q, None))
            sums = [sums[0] + mass * lengths.probabilistic, sums[1] + mass * lengths.block]
    return Lengths(*sums)


def lengths_of(view: DraftView) -> Lengths:
    """Of one draft, over all acceptance uniforms."""
    one_by_one = Probabilistic().log_thresholds(view).clamp(max=0.0).exp()
    refused = 1 - Block().log_thresholds(view).clamp(max=0.0).exp()
    # Block accepts at least i tokens unless all tests from i on fail.
    all_fail = refused.flip(0).cumprod(dim=0)
    return Lengths(float(one_by_one.cumprod(dim=0).sum()), float((1 - all_fail).sum()))


class Recorder:
    """Probabilistic verification that notes what both policies expect of every draft it sees."""

    def __init__(self) -> None:
        self.policy = Probabilistic()
        self.seen: list[Lengths] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)

    def log_thresholds(self, view: DraftView) -> Tensor:
        """Note full drafts, and decide."""
        self.seen.append(lengths_of(view))
        return self.policy.log_thresholds(view)


@frozen
class BundledLengths:
    """Of the bundled pair.

    Attributes:
        num_spec_tokens: K.
        temperature: of both models.
        num_drafts: how many drafts the means are over.
        lengths: the means.
        gain: mean of block less probabilistic.
        gain_error: its standard error.
    """

    num_spec_tokens: int
    temperature: float
    num_drafts: int
    lengths: Lengths
    gain: float
    gain_error: float


def bundled_lengths(num_spec_tokens: int, temperature: float, num_tokens: int) -> BundledLengths:
    """Decode with the bundled pair, and look at every draft with both policies."""
    config = Config(decoding=DecodingConfig(num_spec_tokens=num_spec_tokens))
    wired = wire(config)
    recorder = Recorder()
    decoder = _deciding_by(wired.decoder, recorder)
    decoder.generate(
        [
            GenerationRequest(
                prompt_token_ids=wired.tokenizer.encode(prompt),
                params=SamplingParams(seed=seed, temperature=temperature),
                max_tokens=num_tokens,
                ignore_eos=True,
            )
            for seed, prompt in enumerate(PROMPTS)
        ]
    )
    return _summary(num_spec_tokens, temperature, recorder.seen)


def _deciding_by(decoder: Decoder, recorder: Any) -> Decoder:
    assert isinstance(decoder.drafter, ModelDrafter)
    return evolve(decoder, policy=recorder, drafter=evolve(decoder.drafter, policy=recorder))


def _summary(num_spec_tokens: int, temperature: float, seen: Sequence[Lengths]) -> BundledLengths:
    pairs = torch.tensor([[one.probabilistic, one.block] for one in seen], dtype=torch.float64)
    gains = pairs[:, 1] - pairs[:, 0]
    means = pairs.mean(dim=0).tolist()
    error = float(gains.std() / len(seen) ** 0.5)
    return BundledLengths(
        num_spec_tokens, temperature, len(seen), Lengths(*means), float(gains.mean()), error
    )
