"""Differences that rounding explains are excused and counted, for one backend and between two."""

import math

import numpy as np
import pytest
import torch
from attrs import evolve
from torch import Tensor

from acceptor.backends.conformance import Difference, Findings, judge_sample, judge_verify
from acceptor.backends.conformance.calls import Watched
from acceptor.backends.conformance.findings import listing
from acceptor.backends.conformance.oracle.race import TARGET, TOKEN_LEVEL, exponentials, uniforms
from acceptor.backends.conformance.oracle.request import RequestOracle
from acceptor.backends.conformance.oracle.view import split_verify
from acceptor.backends.conformance.run import between
from acceptor.backends.reference import ReferenceSampler
from acceptor.core import (
    Fly,
    LogprobsMode,
    Probabilistic,
    SampleBatch,
    SampleOutput,
    SamplingParams,
    SamplingTensors,
    Typical,
    VerifyBatch,
    VerifyOutput,
)
from kit.batches import dense

REFERENCE = ReferenceSampler()
SEED, POSITION = 5, 9
PARAMS = SamplingTensors.stack([SamplingParams(seed=SEED)])


def logits_of_a_race(lead: float) -> Tensor:
    """Two tokens whose scores differ by the lead: [1, 2]."""
    noise = exponentials(SEED, TARGET, POSITION, 0, TOKEN_LEVEL, 0, 2)
    return torch.from_numpy(np.log(noise) - [0.0, lead]).float()[None]


def draw_near_a_filter(top_p: float) -> tuple[SampleBatch, SamplingTensors]:
    """Four tokens; a top-p of 0.6 keeps the third, and barely cuts or keeps the last one."""
    params = SamplingParams(
        seed=SEED, top_p=top_p, logprobs=4, logprobs_mode=LogprobsMode.PROCESSED
    )
    logits = torch.tensor([[0.1, 0.05, 0.6, 0.25]]).log()
    batch = SampleBatch(logits=logits, positions=torch.tensor([POSITION]))
    return batch, SamplingTensors.stack([params])


def batch_near_its_uniform(distance: float) -> VerifyBatch:
    """A one-hot draft of token 0, whose log-probability exceeds its uniform's log by this much."""
    log_p = math.log(uniforms(SEED, POSITION, 1)[0]) + distance
    row = torch.tensor([log_p, math.log1p(-math.exp(log_p))]).float()
    return dense(row.expand(1, 2, -1), positions=torch.tensor([POSITION]))


def rejected(batch: VerifyBatch) -> VerifyOutput:
    """The answer after a rejection: only token 1 is left."""
    right = REFERENCE.verify(batch, PARAMS, Probabilistic())
    return evolve(
        right, token_ids=torch.tensor([[1, -1]]), num_accepted=torch.zeros_like(right.num_accepted)
    )


@pytest.mark.parametrize(("closeness", "excused"), [(3e-6, True), (1e-3, False)])
def test_a_turned_decision_is_excused_if_it_was_close(closeness: float, excused: bool) -> None:
    row = SampleBatch(logits=logits_of_a_race(closeness), positions=torch.tensor([POSITION]))
    drawn = REFERENCE.sample(row, PARAMS)
    assert drawn.token_ids.tolist() == [0]
    assert judge_sample(row, PARAMS, drawn).differences == ()
    turned = evolve(drawn, token_ids=1 - drawn.token_ids)
    (race,) = judge_sample(row, PARAMS, turned).differences
    batch = batch_near_its_uniform(closeness)
    assert REFERENCE.verify(batch, PARAMS, Probabilistic()).num_accepted.tolist() == [1]
    (test,) = judge_verify(batch, PARAMS, Probabilistic(), rejected(batch)).differences
    assert (race.decision, test.decision) == ("drawn token, token race", "acceptance")
    for difference in (race, test):
        assert difference.excused == excused
        assert difference.margin == pytest.approx(closeness, rel=0.5)


def test_after_a_near_tie_the_rest_must_still_be_right() -> None:
    batch = batch_near_its_uniform(3e-6)
    wrong = evolve(rejected(batch), token_ids=torch.tensor([[0, -1]]))
    excused, unexplained = judge_verify(batch, PARAMS, Probabilistic(), wrong).differences
    assert excused.excused
    assert not unexplained.excused
    assert unexplained.decision.startswith("recovered token")


@pytest.mark.parametrize(
    ("logits", "bias", "right"),
    # In float32 0.1 + 0.2 is what the third token has; the lowest id wins.
    [([1.0, 1.0], {}, 0), ([-1.0, 0.1, 0.3], {1: 0.2}, 1)],
)
def test_a_tie_excuses_nobody(logits: list[float], bias: dict[int, float], right: int) -> None:
    params = SamplingTensors.stack([SamplingParams(seed=SEED, temperature=0, logit_bias=bias)])
    batch = SampleBatch(logits=torch.tensor([logits]), positions=torch.tensor([POSITION]))
    fine = torch.zeros(1, dtype=torch.int32)
    for token in range(len(logits)):
        found = judge_sample(batch, params, SampleOutput(torch.tensor([token]), fine, None))
        assert len(found.unexplained) == int(token != right)


def test_what_a_filter_cuts_by_a_hair_may_be_among_the_most_likely() -> None:
    batch, params = draw_near_a_filter(0.599999)
    output = REFERENCE.sample(batch, params)
    assert output.logprobs is not None
    assert output.logprobs.top_token_ids.tolist() == [[[2, 0, 1, 3]]]
    listing = evolve(
        output.logprobs,
        top_token_ids=torch.tensor([[[2, 3, 0, 1]]]),
        top=torch.tensor([[[0.6 / 0.85, 0.25 / 0.85, 0, 0]]]).log(),
    )
    (difference,) = judge_sample(batch, params, evolve(output, logprobs=listing)).differences
    assert difference.decision == "logprob order"
    # A record holds it as JSON.
    assert difference.excused is True


WITHOUT_WEIGHT = [1.0, 0.5, *[-math.inf] * 3]
OF_ONE_WEIGHT = [1e-30, 2e-30, 2e-30]


@pytest.mark.parametrize(
    ("logits", "order", "is_right"),
    [
        # Only tokens of probability 0 may come in any order.
        (WITHOUT_WEIGHT, (0, 1, 3, 2), True),
        (WITHOUT_WEIGHT, (0, 1, 2, 4), True),
        (WITHOUT_WEIGHT, (0, 3, 2, 4), False),
        (WITHOUT_WEIGHT, (0, 3, 1, 2), False),
        # Different logits of equal weight may be in the logits' order or by id.
        (OF_ONE_WEIGHT, (0, 1, 2), True),
        (OF_ONE_WEIGHT, (1, 2, 0), True),
        (OF_ONE_WEIGHT, (2, 1, 0), False),
    ],
)
def test_orders_of_most_likely(logits: list[float], order: tuple[int, ...], is_right: bool) -> None:
    row = torch.tensor([logits])
    batch = SampleBatch(logits=row, positions=torch.tensor([POSITION]))
    params = SamplingTensors.stack([SamplingParams(seed=SEED, logprobs=len(order))])
    output = REFERENCE.sample(batch, params)
    assert output.logprobs is not None
    top_token_ids = torch.tensor([[order]])
    top = row.log_softmax(-1)[0, top_token_ids]
    listing = evolve(output.logprobs, top_token_ids=top_token_ids, top=top)
    findings = judge_sample(batch, params, evolve(output, logprobs=listing))
    assert (not findings.unexplained) == is_right


def test_every_excuse_is_counted_and_too_many_fail() -> None:
    batch = SampleBatch(logits=logits_of_a_race(3e-6), positions=torch.tensor([POSITION]))
    turned = evolve(REFERENCE.sample(batch, PARAMS), token_ids=torch.tensor([1]))
    found = Findings()
    for place in range(5):
        assert found.is_conformant == (0 < place < 4)
        found += Findings(num_batches=1) + judge_sample(batch, PARAMS, turned).shown_by(
            "a near-tie"
        )
    assert found.near_ties == {"drawn token, token race": 5}
    assert found.unexplained == ()
    assert listing(found).count("(near-tie)\n    a near-tie\n") == 5


def test_a_whole_even_law_lies_on_the_edge_of_fly() -> None:
    """Its entropy is log V, but for rounding: one answer for all requests, whichever it is."""
    for vocab_size in (2, 7, 8200):
        (inputs,) = split_verify(dense(torch.zeros(1, 2, vocab_size)), PARAMS)
        for share, is_close in ((1.0, True), (0.99, False)):
            oracle = RequestOracle(inputs, Fly(min_entropy=share, window=0))
            assert bool(oracle.verdict(0, 1e-13 if is_close else 1e-4).doubted) == is_close


def test_an_entropy_may_be_in_doubt_beyond_measure() -> None:
    """So hot, min-p keeps any number of a thousand tokens."""
    hot = SamplingTensors.stack([SamplingParams(seed=SEED, temperature=1e6, min_p=1.0)])
    (inputs,) = split_verify(dense(torch.arange(1000.0).expand(1, 2, -1)), hot)
    assert RequestOracle(inputs, Typical(epsilon=1.0)).verdict(0, 1e-2).doubted


NEAR = Difference(0, 0, "drawn token, token race", "0", "1", 3e-6, excused=True)
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
    # A decision that both change is not a difference between them.
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
