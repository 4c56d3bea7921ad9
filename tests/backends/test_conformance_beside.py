"""Two backends on the same batches: what the comparison with each other sees and excuses."""

from typing import Any

import pytest
import torch
from attrs import evolve

from acceptor.backends.conformance import Case, Difference, Findings, Generator, judge_sample
from acceptor.backends.conformance.beside import between
from acceptor.backends.conformance.calls import Backend, Watched
from acceptor.backends.conformance.check import Check
from acceptor.backends.conformance.run import run_all
from acceptor.backends.reference import ReferenceSampler
from acceptor.core import (
    Policy,
    Probabilistic,
    SampleBatch,
    SampleOutput,
    SamplingParams,
    SamplingTensors,
    VerifyBatch,
    VerifyOutput,
)
from kit.near_ties import PARAMS, POSITION, SEED, logits_of_a_race
from kit.only_strict import OnlyStrict

REFERENCE = ReferenceSampler()
NEAR = Difference(0, 0, "drawn token, token race", "0", "1", 3e-6, excused=True)


def run(case: Case, *backends: Backend) -> list[Findings | None]:
    return run_all(Check(case), [Watched(backend) for backend in backends])


def test_the_reference_agrees_with_itself() -> None:
    for case in Generator(largest_vocabulary=600).cases(0, 12):
        first, second, compared = run(case, REFERENCE, REFERENCE)
        assert first == second == compared
        assert compared is not None
        assert compared.differences == ()


def test_one_backend_is_compared_with_the_oracle_only() -> None:
    assert len(run(Case(), REFERENCE)) == 1


def test_a_policy_that_one_lacks_is_not_compared() -> None:
    first, second, compared = run(Case(policy=Probabilistic()), REFERENCE, OnlyStrict())
    assert first is not None
    assert second is None
    assert compared is None


class Broken(ReferenceSampler):
    def verify(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy, **memory: Any
    ) -> VerifyOutput:
        output = super().verify(batch, params, policy, **memory)
        raise RuntimeError(f"out of luck after {output.status}")


class DraftsOtherwise(ReferenceSampler):
    """Draws the draft's last token, whatever the logits say; what it verifies is right."""

    def sample(self, batch: SampleBatch, params: SamplingTensors, **memory: Any) -> SampleOutput:
        output = super().sample(batch, params, **memory)
        if batch.draft_index is None:
            return output
        return evolve(output, token_ids=torch.full_like(output.token_ids, 6))


def test_what_only_one_answers_is_a_difference() -> None:
    compared = run(Case(), REFERENCE, Broken())[2]
    assert compared is not None
    assert [difference.decision for difference in compared.unexplained] == ["answers"]


def test_both_verify_the_drafts_of_the_first() -> None:
    case = Case(seed=3, vocab_size=7, num_draft_tokens=(2, 2, 2), policy=Probabilistic())
    watched = [Watched(DraftsOtherwise()), Watched(REFERENCE)]
    run_all(Check(case), watched)
    verified = [watched[place].outputs[-1] for place in (0, 1)]
    assert torch.equal(verified[0].token_ids, verified[1].token_ids)


def drawn(*tokens: int, logprobs: int | None = None) -> list[Watched]:
    """Backends that each drew one of the tokens."""
    params = PARAMS
    if logprobs is not None:
        params = SamplingTensors.stack([SamplingParams(seed=SEED, logprobs=logprobs)])
    batch = SampleBatch(logits=logits_of_a_race(3e-6), positions=torch.tensor([POSITION]))
    right = REFERENCE.sample(batch, params)
    watched = [Watched(REFERENCE) for _ in tokens]
    for some, token in zip(watched, tokens, strict=True):
        some.outputs.append(evolve(right, token_ids=torch.tensor([token])))
    return watched


def judged(token: int) -> Findings:
    batch = SampleBatch(logits=logits_of_a_race(3e-6), positions=torch.tensor([POSITION]))
    output = evolve(REFERENCE.sample(batch, PARAMS), token_ids=torch.tensor([token]))
    return judge_sample(batch, PARAMS, output)


def test_decisions_by_a_hair_may_fall_either_way() -> None:
    first, second = drawn(0, 1)
    (difference,) = between((first, second), (judged(0), judged(1)))
    assert (difference.excused, difference.decision) == (True, "drawn token, token race")
    assert difference.margin == pytest.approx(3e-6, rel=0.5)


def test_what_both_turn_is_no_difference_between_them() -> None:
    first, second = drawn(1, 1)
    assert [*between((first, second), (judged(1), judged(1)))] == []


@pytest.mark.parametrize(
    "causes",
    [
        (),
        (NEAR, evolve(NEAR, excused=False)),
        (NEAR, evolve(NEAR, request=-1, excused=False)),
        (evolve(NEAR, request=1),),
        (evolve(NEAR, decision="logprob order"),),
    ],
    ids=["nothing", "another", "malformed", "another request's", "the order of logprobs"],
)
def test_a_near_tie_excuses_nothing_else(causes: tuple[Difference, ...]) -> None:
    first, second = drawn(0, 1)
    found = [*between((first, second), (Findings(), Findings(differences=causes)))]
    if causes == (evolve(NEAR, decision="logprob order"),):
        assert all(not d.excused or d.decision == "logprob order" for d in found)
    else:
        assert [difference.excused for difference in found] == [False]


def test_logprobs_that_only_one_reports_are_a_difference() -> None:
    first, second = drawn(0, 0, logprobs=1)
    second.outputs[0] = evolve(second.outputs[0], logprobs=None)
    (difference,) = between((first, second), (Findings(), Findings()))
    assert not difference.excused
