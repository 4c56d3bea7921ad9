"""One decode step for very many seeds, with real drafting, noise and policies.

Requests with the same text, draft and target samples share thresholds and residuals, so the policy
computes them once. Tests compare these steps with the sampler's, token for token.
"""

import torch
from torch import Tensor

from acceptor.backends import load_sampler
from acceptor.backends.reference.draw import acceptance_uniforms, draw
from acceptor.core import DraftView, Policy, Rule, Stream
from lab.proof.runs import Chain, drafted


def grouped_step(
    chain: Chain, policy: Policy, seeds: Tensor, positions: Tensor, before: Tensor
) -> tuple[Tensor, Tensor]:
    """The reference's step for chains with plain parameters; see `lab.proof.runs.Step`."""
    texts = drafted(load_sampler("reference"), chain, policy, seeds, positions, before)
    num_drafts, places = chain.num_spec_tokens, torch.arange(texts.shape[1])

    def drawn(log_weights: Tensor, place: Tensor, stream: Stream, of: Tensor | slice) -> Tensor:
        return draw(log_weights, seeds[of], positions[of] + place, place + 1, stream)

    rows = [torch.full_like(positions, place) for place in range(num_drafts + 1)]
    laws = [_law(chain.target[texts[:, place]]) for place in range(num_drafts + 1)]
    samples = torch.stack(
        [drawn(*each, Stream.TARGET, slice(None)) for each in zip(laws, rows, strict=True)], 1
    )
    seen = torch.cat((texts, samples), 1) if policy.uses_target_samples else texts
    different, cases = seen.unique(dim=0, return_inverse=True)
    views = [_view(chain, row[: num_drafts + 1], row[num_drafts + 1 :]) for row in different]
    log_thresholds = torch.stack([policy.log_thresholds(view) for view in views])
    accepted = _num_accepted(log_thresholds[cases], policy.rule, seeds, positions)
    final = samples.gather(1, accepted[:, None]).squeeze(1)
    rejected = accepted < num_drafts
    residuals = [policy.log_residual(view, i) for view in views for i in range(num_drafts)]
    known = [residual for residual in residuals if residual is not None]
    if known:
        place = accepted[rejected]
        weights = torch.stack(known)[cases[rejected] * num_drafts + place]
        final[rejected] = drawn(weights, place, Stream.RECOVER, rejected)
    padded = torch.nn.functional.pad(texts[:, 1:], (0, 1), value=-1)
    emitted = torch.where(places < accepted[:, None], padded, -1)
    return torch.where(places == accepted[:, None], final[:, None], emitted), accepted


def _num_accepted(log_thresholds: Tensor, rule: Rule, seeds: Tensor, positions: Tensor) -> Tensor:
    indices = range(1, log_thresholds.shape[1] + 1)
    uniforms = [
        acceptance_uniforms(seeds, positions + i - 1, torch.full_like(positions, i))
        for i in indices
    ]
    passed = (torch.stack(uniforms, dim=1).log() < log_thresholds).long()
    if rule is Rule.FIRST_FAILURE:
        return passed.cumprod(dim=1).sum(dim=1)
    return (passed * torch.tensor([*indices])).amax(dim=1)


def _view(chain: Chain, text: Tensor, samples: Tensor) -> DraftView:
    target, draft = _law(chain.target[text]), _law(chain.draft[text[:-1]])
    return DraftView(text[1:], target, draft, samples if len(samples) else None)


def _law(logits: Tensor) -> Tensor:
    return logits.double().log_softmax(dim=-1)
