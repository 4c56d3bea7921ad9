"""Two backends on the same batches: what the comparison with each other sees and excuses."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve

from acceptor.backends.conformance import Case, Tally
from acceptor.backends.conformance.corners import corners
from acceptor.backends.conformance.record import Record
from acceptor.backends.conformance.run import each_case
from acceptor.backends.reference import ReferenceSampler
from acceptor.core import (
    InvalidInputError,
    Logprobs,
    Policy,
    Probabilistic,
    SampleBatch,
    SampleOutput,
    Sampler,
    SamplingParams,
    SamplingTensors,
    VerifyBatch,
    VerifyOutput,
)
from kit.equivalence import __main__ as command
from kit.equivalence import campaign
from kit.equivalence.between import differences
from kit.equivalence.compare import Found, compare_case, compare_corner
from kit.equivalence.forms import forms
from kit.equivalence.questions import Sampled, Verified
from kit.near_ties import (
    PARAMS,
    POSITION,
    SEED,
    batch_near_its_uniform,
    draw_near_a_filter,
    logits_of_a_race,
    rejected,
)
from kit.only_strict import OnlyStrict
from kit.planted_bugs import SHOWN_BY_BATCHES, SHOWN_BY_CORNERS, batches_for
from kit.wrong_backends import WrongSampler

CPU = torch.device("cpu")
REFERENCE = ReferenceSampler()
ONLY_NUMBERS_SHOW = {"no variation reported"}
"""Those are the oracle's to judge, for each backend."""


def between(first: Sampler, second: Sampler, case: Case) -> Tally:
    return compare_case(case, (first, second), CPU).compared


@pytest.mark.parametrize("number", [0, 9, 20])
def test_the_reference_agrees_with_itself(number: int) -> None:
    found = [Found.nothing(2)]

    def compare(case: Case) -> None:
        found.append(compare_case(case, (REFERENCE, REFERENCE), CPU))

    each_case(compare, number, 5, [*forms(3)][number].cases)
    first, second, compared = sum(found[1:], found[0]).tallies
    assert first == second == compared
    assert compared.num_batches == 5
    assert compared.num_differences == 0
    assert compared.num_decisions > 0


def test_one_backend_is_compared_with_the_oracle_only() -> None:
    (tally,) = compare_case(Case(), (REFERENCE,), CPU).tallies
    assert tally.num_batches == 1


@pytest.mark.parametrize(
    "wrong",
    [wrong for wrong in SHOWN_BY_BATCHES if wrong.name not in ONLY_NUMBERS_SHOW],
    ids=lambda wrong: wrong.name,
)
def test_a_planted_bug_shows_beside_the_reference(wrong: WrongSampler) -> None:
    def compare(case: Case) -> None:
        if between(REFERENCE, wrong, case).failures:
            raise SeenError

    with pytest.raises(SeenError):
        each_case(compare, 0, 300, batches_for(wrong))


class SeenError(Exception):
    """Ends a search."""


@pytest.mark.parametrize("wrong", SHOWN_BY_CORNERS, ids=lambda wrong: wrong.name)
def test_corners_show_it_too(wrong: WrongSampler) -> None:
    found = [compare_corner(corner, (REFERENCE, wrong), CPU) for corner in corners()]
    assert sum(found[1:], found[0]).compared.failures


def test_decisions_by_a_hair_may_fall_either_way() -> None:
    for distance, excused in ((3e-6, True), (1e-3, False)):
        batch = batch_near_its_uniform(distance)
        accepted = REFERENCE.verify(batch, PARAMS, Probabilistic())
        (difference,) = differences(*verified(batch, accepted, rejected(batch)))
        assert difference.decision == "acceptance"
        assert difference.excused == excused
        assert difference.margin == pytest.approx(distance, rel=0.5)


def verified(batch: VerifyBatch, *outputs: VerifyOutput) -> list[Verified]:
    return [Verified(batch, PARAMS, Probabilistic(), output) for output in outputs]


def test_a_near_tie_is_no_excuse_for_what_follows() -> None:
    batch = batch_near_its_uniform(3e-6)
    accepted = REFERENCE.verify(batch, PARAMS, Probabilistic())
    wrong = evolve(rejected(batch), token_ids=torch.tensor([[0, -1]]))
    (difference,) = differences(*verified(batch, accepted, wrong))
    assert not difference.excused


def test_what_is_malformed_is_never_excused() -> None:
    batch = batch_near_its_uniform(3e-6)
    accepted = REFERENCE.verify(batch, PARAMS, Probabilistic())
    short = evolve(accepted, token_ids=accepted.token_ids.int())
    (difference,) = differences(*verified(batch, short, rejected(batch)))
    assert not difference.excused


def test_what_both_turn_is_no_difference_between_them() -> None:
    batch = SampleBatch(logits=logits_of_a_race(3e-6), positions=torch.tensor([POSITION]))
    right = REFERENCE.sample(batch, PARAMS)
    turned = evolve(right, token_ids=1 - right.token_ids)
    answers = [Sampled(batch, PARAMS, output) for output in (turned, turned, right)]
    assert [*differences(*answers[:2])] == []
    (difference,) = differences(*answers[1:])
    assert (difference.excused, difference.decision) == (True, "drawn token, token race")
    assert difference.race.endswith(":1")


LOGITS = (2.0, 2.0 - 5e-5, 0.0, 0.0, -1.0)


@pytest.mark.parametrize(
    ("order", "excused"),
    [((1, 0, 2, 3), True), ((1, 0, 4, 3), False), ((1, 0, 3, 2), False)],
)
def test_two_that_the_oracle_excuses_may_still_differ(
    order: tuple[int, ...], excused: bool
) -> None:
    """It looks no further than the first excused rank; ties and tokens behind it still count."""
    answers = orders(order)
    assert [found.judge().unexplained for found in answers] == [(), ()]
    (difference,) = differences(*answers)
    assert (difference.decision, difference.excused) == ("logprob order", excused)


@pytest.mark.parametrize(
    ("one", "other", "excused"),
    [
        ((2, 3, 0, 1), (2, 0, 1, 3), True),
        ((2, 0, 1, 3), (2, 1, 0, 3), False),
        ((2, 3, 0, 1), (2, 3, 1, 0), False),
        ((2, 3, 0, 1), (2, 3, 0, -1), False),
    ],
)
def test_a_filters_edge_moves_all_later_ranks(
    one: tuple[int, ...], other: tuple[int, ...], excused: bool
) -> None:
    batch, params = draw_near_a_filter(0.6)
    right = REFERENCE.sample(batch, params)
    answers = [Sampled(batch, params, with_order(right, order)) for order in (one, other)]
    (difference,) = differences(*answers)
    assert (difference.decision, difference.excused) == ("logprob order", excused)


def test_what_is_no_token_is_never_excused() -> None:
    (difference,) = differences(*orders((1, 0, -1, 3)))
    assert not difference.excused


def orders(order: tuple[int, ...]) -> list[Sampled]:
    """The reference's answer, and the same with other tokens as the most likely ones."""
    params = SamplingTensors.stack([SamplingParams(seed=SEED, logprobs=4)])
    batch = SampleBatch(logits=torch.tensor([LOGITS]), positions=torch.tensor([POSITION]))
    right = REFERENCE.sample(batch, params)
    assert right.logprobs is not None
    assert right.logprobs.top_token_ids.tolist() == [[[0, 1, 2, 3]]]
    return [Sampled(batch, params, some) for some in (right, with_order(right, order))]


def with_order(output: SampleOutput, order: tuple[int, ...]) -> SampleOutput:
    assert output.logprobs is not None
    return with_logprobs(output, evolve(output.logprobs, top_token_ids=torch.tensor([[order]])))


def with_logprobs(output: SampleOutput, logprobs: Logprobs | None) -> SampleOutput:
    return evolve(output, logprobs=logprobs)


def test_logprobs_that_only_one_reports_are_a_difference() -> None:
    params = SamplingTensors.stack([SamplingParams(seed=SEED, logprobs=1)])
    batch = SampleBatch(logits=torch.tensor([LOGITS]), positions=torch.tensor([POSITION]))
    output = REFERENCE.sample(batch, params)
    answers = [Sampled(batch, params, some) for some in (output, with_logprobs(output, None))]
    (difference,) = differences(*answers)
    assert (difference.decision, difference.excused) == ("logprobs", False)


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


def test_a_policy_that_one_lacks_is_not_compared() -> None:
    first, second, compared = compare_case(
        Case(policy=Probabilistic()), (REFERENCE, OnlyStrict()), CPU
    ).tallies
    assert (first.num_batches, second.num_batches, compared.num_batches) == (1, 0, 0)
    assert (second.num_unsupported, compared.num_unsupported) == (1, 1)


def test_what_only_one_answers_is_a_difference() -> None:
    compared = between(REFERENCE, Broken(), Case())
    assert [difference.decision for _, difference in compared.failures] == ["answers"]


def test_both_verify_the_drafts_of_the_first() -> None:
    case = Case(seed=3, vocab_size=7, num_draft_tokens=(2, 2, 2), policy=Probabilistic())
    compared = between(REFERENCE, DraftsOtherwise(), case)
    assert compared.failures
    assert {d.decision.partition(",")[0] for _, d in compared.failures} == {"drawn token"}


@pytest.fixture
def few_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [*next(iter(forms(1))).parts][:1]
    monkeypatch.setattr(campaign, "forms", lambda _: few)


@pytest.mark.usefixtures("few_forms")
@pytest.mark.parametrize(
    ("beside", "status"), [("reference", 0), ("kit.wrong_backends:flat_race", 1)]
)
def test_the_command_ends_with_1_where_two_backends_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: str, status: int
) -> None:
    options = ["--device", "cpu", "--batches", "10", "--chunk", "16", "--workers", "2"]
    file = tmp_path / "record.json"
    wishes = ["--backend", "reference", "--beside", beside, *options, "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["kit.equivalence", *wishes])
    assert command.main() == status
    record = Record.read(file)
    assert record.beside is not None
    assert record.tally.is_conformant
    assert record.is_conformant == (status == 0)
    assert bool(record.beside.between.failures) == (status == 1)
    assert record.beside.between.num_batches == record.tally.num_batches > 16
    page = file.with_suffix(".md").read_text()
    assert f"`reference` and `{beside}` compared with each other:\n" in page
    assert f"| batches compared | {record.tally.num_batches} |" in page


@pytest.mark.usefixtures("few_forms")
def test_the_command_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "record.json"
    options = ["--device", "cpu", "--chunk", "4", "--workers", "1", "--json", str(file)]
    wishes = ["kit.equivalence", "--backend", "reference", "--beside", "reference", *options]
    records: list[Record] = []
    for further in ([], ["--continue"]):
        enough = str(len([*corners()]) + 4 + 8 * len(records))
        monkeypatch.setattr(sys, "argv", [*wishes, "--batches", enough, *further])
        assert command.main() == 0
        records.append(Record.read(file))
    first, both = records
    assert {*first.chunks} < {*both.chunks}
    assert len({*both.chunks}) == len(both.chunks) == len(first.chunks) + 2
    assert both.tally.num_batches == first.tally.num_batches + 8
    alone = ["kit.equivalence", "--backend", "reference", *options, "--continue"]
    monkeypatch.setattr(sys, "argv", alone)
    with pytest.raises(InvalidInputError, match="expected a record of"):
        command.main()
