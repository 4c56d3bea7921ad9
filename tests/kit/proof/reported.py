"""What a lossy policy says it did to the first token, beside what it did.

Both are exact expectations over all drafts and all noise. This module refuses lossless policies.
"""

from collections import defaultdict
from typing import Any, cast

from attrs import evolve, frozen
from torch import Tensor

from acceptor.backends import load_sampler
from acceptor.core import DraftView, Policy, Probabilistic, SamplingTensors, Synthetic
from kit import decode_law
from kit.branches import Branch, branches
from kit.decode_law import DecodeSetup, Law, State
from kit.hidden_noise import HiddenNoise, replaced_by
from kit.proof.exact import shortened, target_law, variation

IN_FLOAT32 = 1e-6
"""Outputs carry in float32 what policies say in float64."""


@frozen
class Loss:
    """Of the first token of a run.

    Attributes:
        enumerated: total variation between its law and the target's.
        reported: what the policy's own numbers say, on average over the runs.
    """

    enumerated: float
    reported: float


class Recorder:
    """A policy whose last report is kept, in float64."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.last: Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)

    def total_variation(self, view: DraftView) -> Tensor | None:
        """Ask, remember, pass on."""
        self.last = self.policy.total_variation(view)
        return self.last


def loss_of(setup: DecodeSetup) -> Loss:
    """Enumerate the first step of a run.

    A synthetic policy reports nothing, but its first rate says it: with that chance a draft token
    takes the place of the target's, so it is the rate times the variation between the two models.
    """
    law: defaultdict[tuple[int, ...], float] = defaultdict(float)
    reported = 0.0
    for probability, (token, caused) in _first_steps(setup):
        law[token,] += probability
        reported += probability * caused
    target = shortened(target_law(setup, 1), 1)
    if isinstance(setup.policy, Synthetic):
        reported = setup.policy.rates[0] * variation(_law_of_drafts(setup), target)
    return Loss(variation(dict(law), target), reported)


def _first_steps(setup: DecodeSetup) -> list[tuple[float, tuple[int, float]]]:
    recorder = Recorder(setup.policy)
    recorded = evolve(setup, policy=cast("Policy", recorder))
    horizon = setup.num_spec_tokens + 1
    noise = HiddenNoise(horizon)

    def step(branch: Branch) -> tuple[int, float]:
        state = State(())
        noise.begin(branch, ())
        while not state.drafted:
            state = decode_law._draft_one(recorded, state, horizon)(branch)
        batch = decode_law._verify_batch(recorded, state)
        params = SamplingTensors.stack([setup.params])
        output = load_sampler("reference").verify(batch, params, recorded.policy)
        caused = 0.0 if recorder.last is None else float(recorder.last[0])
        if output.total_variation is not None:
            assert abs(float(output.total_variation[0, 0]) - caused) < IN_FLOAT32
        return int(output.token_ids[0, 0]), caused

    with replaced_by(noise):
        return list(branches(step))


def _law_of_drafts(setup: DecodeSetup) -> Law:
    """Of the first draft token, enumerated by accepting it whatever it is."""
    law: defaultdict[tuple[int, ...], float] = defaultdict(float)
    noise = HiddenNoise(horizon=2)

    def draft(branch: Branch) -> int:
        noise.begin(branch, ())
        policy = evolve(setup, policy=Probabilistic())
        return decode_law._draft_one(policy, State(()), 2)(branch).drafts[0]

    with replaced_by(noise):
        for probability, token in branches(draft):
            law[token,] += probability
    return dict(law)
