"""Two backends on the same batches: what the comparison with each other sees and excuses."""

from typing import Any

import pytest
import torch
from attrs import evolve

from acceptor.backends.conformance import Case, Difference, Findings, Generator, judge_sample
from acceptor.backends.conformance.calls import Watched
from acceptor.backends.conformance.run import Check, between, run_all
from acceptor.backends.reference import ReferenceSampler
from acceptor.core import (
    Probabilistic,
    SampleBatch,
    SampleOutput,
    Sampler,
    SamplingParams,
    SamplingTensors,
    VerifyOutput,
)
from kit.near_ties import PARAMS, POSITION, SEED, logits_of_a_race
from kit.only_strict import OnlyStrict

REFERENCE = ReferenceSampler()
NEAR = Difference(0, 0, "drawn token, token race", "0", "1", 3e-6, excused=True)


def run(case: Case, *backends: Sampler) -> tuple[Findings, ...]:
    return run_all(Check(case), [Watched(backend) for backend in backends])


def test_the_reference_agrees_with_itself() -> None:
    for case in Generator(largest_vocabulary=60).cases(0, 6):
        first, second, compared = run(case, REFERENCE, REFERENCE)
        assert first == second == compared
        assert compared.differences == ()
    assert len(run(Case(), REFERENCE)) == 1


def test_a_policy_that_one_lacks_is_not_compared() -> None:
    found = run(Case(policy=Probabilistic()), REFERENCE, OnlyStrict())
    assert [(each.num_batches, each.num_unsupported) for each in found] == [(1, 0), (0, 1), (0, 1)]


class Broken(ReferenceSampler):
    def verify(self, *call: Any, **memory: Any) -> VerifyOutput:
        raise RuntimeError(f"out of luck: {len(call)}, {len(memory)}")


class DraftsOtherwise(ReferenceSampler):
    """Draws the draft's last token, whatever the logits say; what it verifies is right."""

    def sample(self, batch: SampleBatch, params: SamplingTensors, **memory: Any) -> SampleOutput:
        output = super().sample(batch, params, **memory)
        if batch.draft_index is None:
            return output
        return evolve(output, token_ids=torch.full_like(output.token_ids, 6))


def test_what_only_one_answers_is_a_difference() -> None:
    compared = run(Case(), REFERENCE, Broken())[2]
    assert [difference.decision for difference in compared.unexplained] == ["answers"]


def test_both_verify_the_drafts_of_the_first() -> None:
    case = Case(seed=3, vocab_size=7, num_draft_tokens=(2, 2, 2), policy=Probabilistic())
    watched = [Watched(DraftsOtherwise()), Watched(REFERENCE)]
    run_all(Check(case), watched)
    verified = [watched[place].outputs[-1] for place in (0, 1)]
    assert torch.equal(verified[0].token_ids, verified[1].token_ids)


BATCH = SampleBatch(logits=logits_of_a_race(3e-6), positions=torch.tensor([POSITION]))


def drew(token: int, params: SamplingTensors = PARAMS) -> Watched:
    """A backend that drew this token, judged."""
    output = evolve(REFERENCE.sample(BATCH, params), token_ids=torch.tensor([token]))
    watched = Watched(REFERENCE)
    watched.outputs.append(output)
    watched.findings = judge_sample(BATCH, params, output)
    return watched


def test_decisions_by_a_hair_may_fall_either_way() -> None:
    (difference,) = between(drew(0), drew(1))
    assert (difference.excused, difference.decision) == (True, "drawn token, token race")
    assert difference.margin == pytest.approx(3e-6, rel=0.5)
    # What both turn is no difference between them.
    assert [*between(drew(1), drew(1))] == []


@pytest.mark.parametrize(
    "causes",
    [
        (),
        (NEAR, evolve(NEAR, excused=False)),
        (NEAR, evolve(NEAR, request=-1, excused=False)),
        (evolve(NEAR, request=1),),
    ],
    ids=["nothing", "another", "malformed", "another request's"],
)
def test_a_near_tie_excuses_nothing_else(causes: tuple[Difference, ...]) -> None:
    first, second = drew(0), drew(1)
    second.findings = Findings(differences=causes)
    assert [difference.excused for difference in between(first, second)] == [False]


def test_an_order_that_the_oracle_leaves_open_is_no_difference() -> None:
    params = SamplingTensors.stack([SamplingParams(seed=SEED, logprobs=3)])
    logits = torch.tensor([[1e-30, 2e-30, 2e-30]])
    batch = SampleBatch(logits=logits, positions=torch.tensor([POSITION]))
    output, watched = REFERENCE.sample(batch, params), (Watched(REFERENCE), Watched(REFERENCE))
    assert output.logprobs is not None
    for backend, order in zip(watched, ([0, 1, 2], [1, 2, 0]), strict=True):
        logprobs = evolve(output.logprobs, top_token_ids=torch.tensor([[order]]))
        listed = evolve(output, logprobs=logprobs)
        backend.outputs.append(listed)
        backend.findings = judge_sample(batch, params, listed)
        assert backend.findings.differences == ()
    assert [*between(*watched)] == []
