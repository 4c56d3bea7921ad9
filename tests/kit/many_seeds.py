"""One decode step of very many seeds at once: real drafting, real noise, real policies.

Requests with the same text, draft and target samples share thresholds and residuals, so the policy
is asked once for all of them. Tests hold these steps against the sampler, token for token.
Vocabularies must be tiny.
"""

from collections.abc import Callable

import torch
from attrs import evolve, frozen
from torch import Tensor

from acceptor.backends import load_sampler
from acceptor.backends.reference.draw import acceptance_uniforms, draw
from acceptor.core import (
    DraftView,
    Policy,
    Rule,
    SampleBatch,
    SamplingParams,
    SamplingTensors,
    Stream,
)

NextLogits = Callable[[Tensor], Tensor]
"""The logits after each of these tokens, -1 for none: [n] -> [n, vocab_size]."""


PLAIN = SamplingParams(seed=0)


def params_of(seeds: Tensor, params: SamplingParams = PLAIN) -> SamplingTensors:
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


def drafts_of(
    model: NextLogits, seeds: Tensor, last: Tensor, start: Tensor, num_drafts: int, policy: Policy
) -> Tensor:
    """Draft with the sampler: [num_reqs, num_drafts]."""
    params, drafts = params_of(seeds), [last]
    for place in range(num_drafts):
        batch = SampleBatch(
            logits=model(drafts[-1]),
            positions=start + place,
            draft_index=place + 1,
            draft_stream=policy.draft_stream,
        )
        drafts.append(load_sampler("reference").sample(batch, params).token_ids)
    return torch.stack(drafts[1:], dim=1)


def step(
    models: tuple[NextLogits, NextLogits],
    seeds: Tensor,
    last: Tensor,
    start: Tensor,
    num_drafts: int,
    policy: Policy,
) -> tuple[Tensor, Tensor]:
    """Draft and verify once.

    Args:
        models: target and draft.
        seeds: [num_reqs].
        last: [num_reqs] the token before, -1 for none.
        start: [num_reqs] the position that the first draft token is for.
        num_drafts: K.
        policy: decides.

    Returns:
        Token ids [num_reqs, K + 1], -1 where nothing was emitted, and accepted ones [num_reqs].
    """
    drafts = drafts_of(models[1], seeds, last, start, num_drafts, policy)
    texts, keys = torch.cat((last[:, None], drafts), dim=1), _Keys(seeds, start)
    answers = _ask(models, policy, texts, keys)
    accepted = answers.num_accepted(policy.rule, keys)
    final = _final_tokens(models[0], texts, keys, answers, accepted)
    places = torch.arange(num_drafts + 1, device=seeds.device)
    padded = torch.nn.functional.pad(drafts, (0, 1), value=-1)
    emitted = torch.where(places < accepted[:, None], padded, -1)
    return torch.where(places == accepted[:, None], final[:, None], emitted), accepted


@frozen(eq=False)
class _Keys:
    """What noise is keyed by: [num_reqs] each."""

    seeds: Tensor
    start: Tensor

    def draw(self, log_weights: Tensor, places: Tensor, stream: Stream) -> Tensor:
        return draw(log_weights, self.seeds, self.start + places, places + 1, stream)

    def uniforms(self, num_drafts: int) -> Tensor:
        indices = (torch.full_like(self.start, place + 1) for place in range(num_drafts))
        columns = [acceptance_uniforms(self.seeds, self.start + i - 1, i) for i in indices]
        return torch.stack(columns, dim=1)

    def of(self, chosen: Tensor) -> "_Keys":
        return _Keys(self.seeds[chosen], self.start[chosen])


@frozen(eq=False)
class _Answers:
    """A policy's answers to all cases that occur.

    Attributes:
        cases: [num_reqs] which case each request is.
        log_thresholds: [num_cases, K].
        log_residuals: [num_cases, K, vocab_size]; None where the target's sample stands.
    """

    cases: Tensor
    log_thresholds: Tensor
    log_residuals: Tensor | None

    def num_accepted(self, rule: Rule, keys: _Keys) -> Tensor:
        num_drafts = self.log_thresholds.shape[1]
        passed = (keys.uniforms(num_drafts).log() < self.log_thresholds[self.cases]).long()
        if rule is Rule.FIRST_FAILURE:
            return passed.cumprod(dim=1).sum(dim=1)
        return (passed * torch.arange(1, num_drafts + 1, device=passed.device)).amax(dim=1)


def _ask(
    models: tuple[NextLogits, NextLogits], policy: Policy, texts: Tensor, keys: _Keys
) -> _Answers:
    seen = texts
    if policy.uses_target_samples:
        seen = torch.cat((texts, _target_samples(models[0], texts, keys)), dim=1)
    rows, cases = _different_rows(seen)
    num_tokens, device = texts.shape[1], texts.device
    views = [_view(models, row[:num_tokens], row[num_tokens:]) for row in rows]
    residuals = [_log_residuals(policy, view) for view in views]
    known = [residual for residual in residuals if residual is not None]
    return _Answers(
        cases,
        torch.stack([policy.log_thresholds(view) for view in views]).to(device),
        torch.stack(known).to(device) if known else None,
    )


def _log_residuals(policy: Policy, view: DraftView) -> Tensor | None:
    """After each number of accepted tokens: [K, vocab_size]."""
    rows = [policy.log_residual(view, row) for row in range(view.num_draft_tokens)]
    known = [row for row in rows if row is not None]
    return torch.stack(known) if known else None


def _different_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The different ones, on the host, and for each row which of them it is."""
    size = int(rows.max()) + 2
    codes = torch.zeros_like(rows[:, 0])
    for column in rows.T:
        codes = codes * size + column + 1
    codes, numbers = codes.unique(return_inverse=True)
    columns = [codes // size**power % size - 1 for power in range(rows.shape[1])]
    return torch.stack(columns[::-1], dim=1).cpu(), numbers


def _view(models: tuple[NextLogits, NextLogits], text: Tensor, samples: Tensor) -> DraftView:
    target, draft = (model(text).double().log_softmax(dim=-1) for model in models)
    return DraftView(text[1:], target, draft[:-1], samples if len(samples) else None)


def _target_samples(model: NextLogits, texts: Tensor, keys: _Keys) -> Tensor:
    rows = [
        keys.draw(_law(model, last), torch.full_like(last, place), Stream.TARGET)
        for place, last in enumerate(texts.T)
    ]
    return torch.stack(rows, dim=1)


def _final_tokens(
    model: NextLogits, texts: Tensor, keys: _Keys, answers: _Answers, accepted: Tensor
) -> Tensor:
    before = texts.gather(1, accepted[:, None]).squeeze(1)
    final = keys.draw(_law(model, before), accepted, Stream.TARGET)
    if answers.log_residuals is not None:
        rejected = accepted < texts.shape[1] - 1
        places = accepted[rejected]
        weights = answers.log_residuals[answers.cases[rejected], places]
        final[rejected] = keys.of(rejected).draw(weights, places, Stream.RECOVER)
    return final


def _law(model: NextLogits, last: Tensor) -> Tensor:
    return model(last).double().log_softmax(dim=-1)
