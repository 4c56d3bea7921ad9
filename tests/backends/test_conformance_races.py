"""One race that two calls look at is one near-tie and one decision; two races are two."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve

from acceptor.backends.conformance import (
    Case,
    Difference,
    Findings,
    Tally,
    judge_sample,
    judge_verify,
    run_case,
)
from acceptor.backends.conformance.record import Record
from acceptor.backends.conformance.table import markdown
from acceptor.backends.reference import ReferenceSampler
from acceptor.core import (
    Policy,
    SampleBatch,
    SampleOutput,
    SamplingParams,
    SamplingTensors,
    Strict,
    VerifyBatch,
    VerifyOutput,
)
from kit.no_workspace import NoWorkspace

SEED, POSITION = 5, 9
TIE = torch.tensor([[0.3, 0.1, -1.0]])
"""With a bias of 0.2 the second token has what the first one has, but for a rounding."""


def params(*seeds: int) -> SamplingTensors:
    return SamplingTensors.stack(
        [SamplingParams(seed=seed, temperature=0, logit_bias={1: 0.2}) for seed in seeds]
    )


class Turned(NoWorkspace):
    """The reference, which takes another token wherever one of some is due."""

    def __init__(self, tokens: dict[int, int]) -> None:
        self.tokens = tokens
        self.reference = ReferenceSampler()

    def sample(self, batch: SampleBatch, params: SamplingTensors, **more: Any) -> SampleOutput:
        output = self.reference.sample(batch, params, **more)
        return evolve(output, token_ids=self._turn(output.token_ids))

    def verify(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy, **more: Any
    ) -> VerifyOutput:
        output = self.reference.verify(batch, params, policy, **more)
        return evolve(output, token_ids=self._turn(output.token_ids))

    def _turn(self, token_ids: torch.Tensor) -> torch.Tensor:
        others = [self.tokens.get(token_id, token_id) for token_id in token_ids.flatten().tolist()]
        return torch.tensor(others, dtype=torch.int64).view(token_ids.shape)


BOTH = {0: 1, 1: 0}


def drawn(sampler: Turned, seed: int = SEED, position: int = POSITION) -> Findings:
    batch = SampleBatch(logits=TIE, positions=torch.tensor([position]))
    return judge_sample(batch, params(seed), sampler.sample(batch, params(seed)))


def verified(sampler: Turned) -> Findings:
    """Without drafts, so that the same race draws the only token."""
    batch = VerifyBatch(
        target_logits=TIE,
        cu_num_logits=torch.tensor([0, 1]),
        draft_token_ids=torch.empty((1, 0), dtype=torch.int64),
        positions=torch.tensor([POSITION]),
    )
    output = sampler.verify(batch, params(SEED), Strict())
    return judge_verify(batch, params(SEED), Strict(), output)


def turned(found: Findings) -> tuple[int, int]:
    """Near-ties and decisions of a case that found this."""
    tally = Tally()
    tally.add("a case", found)
    assert tally.failures == []
    return round(tally.near_tie_rate * tally.num_decisions), tally.num_decisions


def test_a_race_that_is_drawn_twice_is_one_near_tie_and_one_decision() -> None:
    once, again = drawn(Turned(BOTH)), verified(Turned(BOTH))
    assert turned(once) == turned(again) == (1, 1)
    assert len((once + again).differences) == 2
    assert turned(once + again) == turned(once + again + once) == (1, 1)


def test_without_differences_such_a_race_is_one_decision_as_well() -> None:
    assert turned(drawn(Turned({})) + verified(Turned({}))) == (0, 1)


@pytest.mark.parametrize(
    "other",
    [
        lambda: drawn(Turned(BOTH), position=POSITION + 1),
        lambda: drawn(Turned(BOTH), seed=SEED + 1),
    ],
    ids=["position", "seed"],
)
def test_races_with_other_noise_are_two_near_ties(other: Callable[[], Findings]) -> None:
    assert turned(drawn(Turned(BOTH)) + other()) == (2, 2)


def test_the_same_race_of_two_requests_is_two_near_ties() -> None:
    batch = SampleBatch(
        logits=TIE.expand(2, -1).contiguous(), positions=torch.tensor([POSITION, POSITION])
    )
    output = Turned(BOTH).sample(batch, params(SEED, SEED))
    assert turned(judge_sample(batch, params(SEED, SEED), output)) == (2, 2)


def test_the_draft_s_race_is_another_one_than_the_target_s() -> None:
    batch = SampleBatch(logits=TIE, positions=torch.tensor([POSITION]), draft_index=1)
    found = judge_sample(batch, params(SEED), ReferenceSampler().sample(batch, params(SEED)))
    assert turned(drawn(Turned(BOTH)) + found) == (1, 2)


def test_one_noise_and_two_laws_are_two_races() -> None:
    batch = SampleBatch(logits=TIE[:, :2], positions=torch.tensor([POSITION]))
    found = judge_sample(batch, params(SEED), Turned(BOTH).sample(batch, params(SEED)))
    assert turned(drawn(Turned(BOTH)) + found) == (2, 2)


def test_two_winners_of_one_race_are_two_near_ties() -> None:
    first = Difference(0, 0, "drawn token", "0", "1", 1e-8, excused=True, race="one:1")
    found = Findings(1, 5, (first, evolve(first, got="2", race="one:2"), first))
    assert turned(found) == (2, 5)


def strict(drafted: int, *token_ids: int) -> Findings:
    """Of one request with equal rows and the same token drafted for all, if this is the answer."""
    num_rows = len(token_ids)
    batch = VerifyBatch(
        target_logits=TIE.expand(num_rows, -1).contiguous(),
        cu_num_logits=torch.tensor([0, num_rows]),
        draft_token_ids=torch.full((1, num_rows - 1), drafted),
        positions=torch.tensor([POSITION]),
    )
    output = ReferenceSampler().verify(batch, params(SEED), Strict())
    num_accepted = torch.full_like(output.num_accepted, num_rows - 1 - token_ids.count(-1))
    answer = evolve(output, token_ids=torch.tensor([token_ids]), num_accepted=num_accepted)
    return judge_verify(batch, params(SEED), Strict(), answer)


def test_a_strict_test_asks_who_won_its_row_s_race() -> None:
    row = SampleBatch(logits=TIE, positions=torch.tensor([POSITION]))
    due = int(ReferenceSampler().sample(row, params(SEED)).token_ids)
    plain = drawn(Turned(BOTH))
    assert turned(strict(due, due, due)) == (0, 2)
    assert turned(strict(1 - due, due, -1)) == (0, 1)
    # Wrongly refused: the answer's own sample shows twice. Wrongly accepted: it goes on.
    refused, accepted = strict(due, 1 - due, -1), strict(1 - due, 1 - due, due)
    assert [d.decision.partition(",")[0] for d in refused.differences] == [
        "acceptance",
        "recovered token",
    ]
    assert turned(refused) == turned(plain + refused) == (1, 2)
    assert turned(accepted) == turned(plain + accepted) == (1, 1)
    # Another near-tie behind it is another one.
    both = strict(1 - due, 1 - due, 1 - due)
    assert turned(plain + both) == (2, 1)
    # So is one that a wrong acceptance hides.
    assert turned(plain + strict(1 - due, 1 - due, 1 - due, due)) == (2, 1)


def test_what_is_unexplained_counts_each_time() -> None:
    tally = Tally()
    tally.add("a case", drawn(Turned({0: 2, 1: 2})) + verified(Turned({0: 2, 1: 2})))
    assert len(tally.failures) == 2
    assert tally.num_repeated == 0


def test_decisions_that_are_no_races_are_never_one() -> None:
    acceptance = Difference(0, 0, "acceptance", "1 accepted", "0 accepted", 1e-8, excused=True)
    assert turned(Findings(1, 5, (acceptance, acceptance))) == (2, 5)


def test_a_case_of_the_record_shows_its_race_twice(tmp_path: Path) -> None:
    case = Case.from_json(
        '{"seed": 15038, "vocab_size": 2500, "num_draft_tokens": [2, 2, 2, 2], "policy": ["Fly", '
        '{"min_entropy": 0.3, "window": 2}], "logits": "ties", "drafter": "mapped", "dtype": '
        '"float32", "draft_dtype": "bfloat16", "features": ["arbitrary drafts", '
        '"bad target rows", "bias", "draft recipe", "equal drafter", "extreme temperature", '
        '"logprobs", "min-p", "penalties", "room", "temperature", "top-k", "top-p"]}'
    )
    tally = Tally()
    tally.add_case(case, run_case(case, Turned({1590: 2007}), torch.device("cpu")))
    assert tally.near_ties.total() - tally.near_ties["logprob order"] == 2
    assert (tally.num_repeated, tally.failures) == (1, [])
    assert "| of these, a race that is counted already | 1 |" in markdown(tally)
    Record("some", "cpu", (), tally).write(tmp_path / "record.json")
    assert Record.read(tmp_path / "record.json").tally == tally
