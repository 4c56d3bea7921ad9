"""Whole decode runs of many requests at once, drafter included, and counts of their tokens.

Models look one token back, so the law of any number of tokens can be written down. It counts first
tokens, sequences, and tokens after a rejection, whose positions were drafted before.
"""

import time
from collections.abc import Callable, Iterator

import torch
from attrs import evolve, frozen
from torch import Tensor

from acceptor.core import (
    Policy,
    Recipe,
    SampleBatch,
    Sampler,
    SamplingParams,
    SamplingTensors,
    UnavailableError,
    VerifyBatch,
)
from kit.chi_square import Goodness, goodness

VIEWS = ("first", "joint", "conditional")


@frozen(eq=False)
class Chain:
    """Two models that look one token back, and how they decode.

    Attributes:
        target: [vocab_size + 1, vocab_size] logits after each token; the last row is the start.
        draft: [vocab_size + 1, draft_vocab_size].
        num_spec_tokens: K.
        num_tokens: how many tokens of a run are counted.
        params: those of every request, except for the seed.
        draft_to_target: target id of each draft id; None means the same.
    """

    target: Tensor
    draft: Tensor
    num_spec_tokens: int = 2
    num_tokens: int = 3
    params: SamplingParams = SamplingParams(seed=0)
    draft_to_target: Tensor | None = None

    @property
    def vocab_size(self) -> int:
        """The target's vocabulary."""
        return self.target.shape[1]

    def to(self, device: torch.device) -> "Chain":
        """The same on a device."""
        ids = None if self.draft_to_target is None else self.draft_to_target.to(device)
        target, draft = self.target.to(device), self.draft.to(device)
        return evolve(self, target=target, draft=draft, draft_to_target=ids)

    @property
    def law(self) -> dict[str, Tensor]:
        """The target's law in each view, by multiplication."""
        scaled = self.target.double() / self.params.temperature
        if self.params.top_k > 0:
            kept = scaled.topk(self.params.top_k, dim=-1).values[:, -1:]
            scaled = scaled.masked_fill(scaled < kept, -torch.inf)
        probs = scaled.softmax(dim=-1)
        law = probs[-1]
        for _ in range(self.num_tokens - 1):
            law = law[..., None] * probs[:-1]
        return dict(zip(VIEWS, (probs[-1], law.flatten(), probs[:-1]), strict=True))


def random_chain(vocab_size: int, *, seed: int = 3) -> Chain:
    """Random models of which the draft resembles the target a little."""
    generator = torch.Generator().manual_seed(seed)
    shape = (vocab_size + 1, vocab_size)
    target = torch.randn(shape, generator=generator)
    return Chain(target, 0.5 * target + 0.8 * torch.randn(shape, generator=generator))


PLAIN = random_chain(4)
CHAINS: dict[str, Chain] = {
    "draft model": PLAIN,
    "other recipe": evolve(
        PLAIN, params=SamplingParams(seed=0, temperature=0.8, top_k=3, draft=Recipe(top_p=0.9))
    ),
    "mapped": evolve(
        PLAIN, draft=PLAIN.draft[:, :3].contiguous(), draft_to_target=torch.tensor([3, 0, 2])
    ),
}

Step = Callable[[Chain, Policy, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(chain, policy, seeds, positions, tokens before), each [n] -> (token_ids [n, K + 1], accepted
[n])."""


def params_of(seeds: Tensor, params: SamplingParams) -> SamplingTensors:
    """The same parameters for many seeds: [num_reqs] int64."""
    one = SamplingTensors.stack([params], seeds.device)
    names = ("temperature", "min_p", "top_k", "top_p")
    target, draft = (
        evolve(r, **{n: getattr(r, n).repeat(len(seeds)) for n in names})
        for r in (one.target, one.draft)
    )
    processed = one.logprobs_processed.repeat(len(seeds))
    return evolve(one, seeds=seeds, target=target, draft=draft, logprobs_processed=processed)


def spread_seeds(num_reqs: int, first: int = 0, device: torch.device | str = "cpu") -> Tensor:
    """Seeds that differ in all of their bits."""
    return torch.arange(first, first + num_reqs, device=device) * -0x61C8864680B583EB


def drafted(
    backend: Sampler, chain: Chain, policy: Policy, seeds: Tensor, positions: Tensor, before: Tensor
) -> Tensor:
    """The last token, and the drafts after it: [num_reqs, K + 1]."""
    params, texts = params_of(seeds, chain.params), [before]
    for place in range(chain.num_spec_tokens):
        batch = SampleBatch(
            logits=chain.draft[texts[-1]],
            positions=positions + place,
            draft_index=place + 1,
            draft_stream=policy.draft_stream,
            draft_to_target=chain.draft_to_target,
            target_vocab_size=chain.vocab_size,
        )
        texts.append(backend.sample(batch, params).token_ids.clone())
    return torch.stack(texts, dim=1)


def step_of(backend: Sampler) -> Step:
    """One decode step, all of it by a backend."""

    def step(
        chain: Chain, policy: Policy, seeds: Tensor, positions: Tensor, before: Tensor
    ) -> tuple[Tensor, Tensor]:
        texts = drafted(backend, chain, policy, seeds, positions, before)
        batch = VerifyBatch.dense(
            target_logits=chain.target[texts],
            draft_token_ids=texts[:, 1:].contiguous(),
            positions=positions,
            draft_logits=chain.draft[texts[:, :-1]],
            draft_to_target=chain.draft_to_target,
        )
        output = backend.verify(batch, params_of(seeds, chain.params), policy)
        return output.token_ids, output.num_accepted.long()

    return step


@frozen(eq=False)
class Runs:
    """The output of the runs.

    Attributes:
        token_ids: [num_reqs, num_tokens].
        again: [num_reqs, 2] where the first step rejected a draft: the last token it emitted, and
            the first one of the next step; -1 where it rejected none.
    """

    token_ids: Tensor
    again: Tensor

    def counts(self, vocab_size: int) -> dict[str, Tensor]:
        """How often each outcome of a view came."""
        again = self.again[self.again[:, 0] >= 0]
        pairs = counts(vocab_size, *again.T).view(vocab_size, vocab_size)
        first = counts(vocab_size, self.token_ids[:, 0])
        return dict(zip(VIEWS, (first, counts(vocab_size, *self.token_ids.T), pairs), strict=True))


def counts(vocab_size: int, *columns: Tensor) -> Tensor:
    """How often each combination of tokens occurs: [vocab_size ** num_columns] on the host."""
    code = torch.zeros_like(columns[0])
    for column in columns:
        code = code * vocab_size + column
    return code.bincount(minlength=vocab_size ** len(columns)).cpu()


def decode(chain: Chain, policy: Policy, seeds: Tensor, step: Step) -> Runs:
    """Step until every run has its tokens."""
    num_reqs, device = len(seeds), seeds.device
    room = chain.num_tokens + chain.num_spec_tokens + 1
    text = torch.full((num_reqs, room), -1, device=device)
    lengths = torch.zeros_like(seeds)
    again = torch.full((num_reqs, 2), -1, device=device)
    for number in range(chain.num_tokens):
        left = (lengths < chain.num_tokens).nonzero().squeeze(1)
        if not len(left):
            break
        before = text[left, (lengths[left] - 1).clamp(min=0)]
        before = before.where(lengths[left] > 0, chain.vocab_size)
        emitted, accepted = step(chain, policy, seeds[left], lengths[left], before)
        for place in range(emitted.shape[1]):
            here = emitted[:, place] >= 0
            text[left[here], lengths[left[here]] + place] = emitted[here, place]
        if number == 0:
            num_accepted = accepted
        if number == 1:
            chosen = num_accepted[left] < chain.num_spec_tokens
            again[left[chosen]] = torch.stack((before, emitted[:, 0]), dim=1)[chosen]
        lengths[left] += accepted + 1
    return Runs(text[:, : chain.num_tokens], again)


def compare(
    chain: Chain,
    policy: Policy,
    step: Step,
    num_runs: int,
    device: torch.device,
    chunk: int = 1 << 16,
    deadline: float | None = None,
) -> dict[str, Goodness] | None:
    """Run many requests, or as many as there is time for, and test what they emit in each view.

    None if the backend lacks the policy.
    """
    here, law = chain.to(device), chain.law
    total = {view: torch.zeros(law[view].shape, dtype=torch.int64) for view in VIEWS}
    for begin, num_reqs in parts(num_runs, chunk, deadline):
        try:
            runs = decode(here, policy, spread_seeds(num_reqs, begin, device), step)
        except UnavailableError:
            return None
        for view, seen in runs.counts(chain.vocab_size).items():
            total[view] += seen
    return {view: goodness(total[view].numpy(), law[view].numpy()) for view in VIEWS}


def parts(total: int, size: int, deadline: float | None) -> Iterator[tuple[int, int]]:
    """The first number and the length of each part; after the deadline only one part."""
    for begin in range(0, total, size):
        if begin and deadline is not None and time.monotonic() >= deadline:
            return
        yield begin, min(size, total - begin)
