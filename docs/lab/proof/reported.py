"""Compares how far a lossy policy moves a token's law with what it reports.

Both are exact expectations over all drafts and all noise.
"""

from collections import defaultdict
from itertools import chain, repeat
from typing import Any, cast

from attrs import evolve, frozen
from torch import Tensor

from acceptor.backends import load_sampler
from acceptor.core import DraftView, Policy, SamplingTensors, Synthetic
from kit.decode_law import DecodeSetup, Law, State, Tokens, draft_one, verify_batch
from kit.hidden_noise import Branch, HiddenNoise, branches, replaced_by
from lab.proof.exact import conditional, target_law, variation

IN_FLOAT32 = 1e-6
"""Outputs hold in float32 what policies compute in float64."""


@frozen
class Loss:
    """The loss at one token, given the ones before it.

    Attributes:
        enumerated: total variation between its law and the target's.
        reported: the mean of the policy's own numbers over the runs.
    """

    enumerated: float
    reported: float


@frozen
class FirstStep:
    """How the first step of a run went.

    Attributes:
        drafts: the draft tokens.
        tokens: the emitted tokens.
        num_accepted: how many of these are draft tokens.
        caused: the policy's report for each.
    """

    drafts: Tokens
    tokens: Tokens
    num_accepted: int
    caused: tuple[float, ...]


class Recorder:
    """A policy whose last report is kept, in float64."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.last: Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)

    def total_variation(self, view: DraftView) -> Tensor | None:
        """Compute it, remember it, return it."""
        self.last = self.policy.total_variation(view)
        return self.last


def losses(setup: DecodeSetup) -> dict[Tokens, Loss]:
    """The losses at the draft's places, by the drafts accepted before; () is the first place."""
    steps = _first_steps(setup)
    accepted = {step.tokens[: step.num_accepted] for _, step in steps}
    begun = {tokens[:length] for tokens in accepted for length in range(len(tokens) + 1)}
    judged = [tokens for tokens in begun if len(tokens) < setup.num_spec_tokens]
    return {tokens: _loss_behind(tokens, setup, steps) for tokens in judged}


def loss_of(setup: DecodeSetup) -> Loss:
    """The loss at the first token.

    A synthetic policy reports nothing, but its first rate gives it: with that chance a draft token
    replaces the target's, so the loss is the rate times the variation between the two models.
    """
    steps = _first_steps(setup)
    loss = _loss_behind((), setup, steps)
    if isinstance(setup.policy, Synthetic):
        drafted: defaultdict[Tokens, float] = defaultdict(float)
        wanted = target_law(setup, 1)
        for probability, step in steps:
            first = step.drafts[:1]
            # A draft token that a mask forbids is replaced at any rate.
            forbidden = setup.allows is not None and first[0] not in setup.allows(())
            for tokens, share in wanted.items() if forbidden else [(first, 1.0)]:
                drafted[tokens] += probability * share
        loss = evolve(loss, reported=setup.policy.rates[0] * variation(drafted, wanted))
    return loss


def _loss_behind(
    accepted: Tokens, setup: DecodeSetup, steps: list[tuple[float, FirstStep]]
) -> Loss:
    place = len(accepted)
    law: defaultdict[Tokens, float] = defaultdict(float)
    reported = 0.0
    for probability, step in steps:
        if step.num_accepted >= place and step.tokens[:place] == accepted:
            law[step.tokens[: place + 1]] += probability
            reported += probability * step.caused[place]
    mass = sum(law.values())
    given: Law = {tokens: part / mass for tokens, part in law.items()}
    target = conditional(target_law(setup, place + 1), place + 1)
    wanted = {tokens: part for tokens, part in target.items() if tokens[:place] == accepted}
    return Loss(variation(given, wanted), reported / mass)


def _first_steps(setup: DecodeSetup) -> list[tuple[float, FirstStep]]:
    recorder = Recorder(setup.policy)
    recorded = evolve(setup, policy=cast("Policy", recorder))
    horizon = setup.num_spec_tokens + 1
    noise = HiddenNoise(horizon)

    def step(branch: Branch) -> FirstStep:
        state = State(())
        noise.begin(branch, ())
        while not state.drafted:
            state = draft_one(recorded, state, horizon)(branch)
        batch = verify_batch(recorded, state)
        params = SamplingTensors.stack([setup.params])
        output = load_sampler("reference").verify(batch, params, recorded.policy)
        num_accepted = int(output.num_accepted)
        tokens = tuple(output.token_ids[0, : num_accepted + 1].tolist())
        said = chain(() if recorder.last is None else recorder.last.tolist(), repeat(0.0))
        caused = tuple(report for report, _ in zip(said, tokens, strict=False))
        if output.total_variation is not None:
            told = output.total_variation[0].tolist()
            assert max(abs(a - b) for a, b in zip(told, caused, strict=False)) < IN_FLOAT32
            assert not any(told[len(tokens) :])
        return FirstStep(state.drafts, tokens, num_accepted, caused)

    with replaced_by(noise):
        return list(branches(step))
