"""K chosen anew in each step."""

from collections.abc import Sequence

import pytest
import torch
from attrs import field, frozen

from acceptor.app.engine.engine import Engine
from acceptor.app.engine.runner import Runner
from acceptor.app.engine.schedule import Limits
from acceptor.app.frontier import Running
from acceptor.app.request import GenerationRequest, GenerationResult
from acceptor.app.request_state import RequestState, Verdict
from acceptor.app.tuning.adaptive import AdaptiveRunner
from acceptor.app.tuning.costs import StepCosts, StepTimes
from acceptor.app.tuning.profile import AcceptanceProfile
from acceptor.core import Policy, SamplingParams, Strict, TokenCounts
from kit.toy_pair import Pair, TableModel

MAX_SPEC_TOKENS = 6
PROFILE = AcceptanceProfile((0.6,), (100,))


def costs(draft: float) -> StepCosts:
    return StepCosts(
        {
            (num_reqs, length): StepTimes(
                draft=draft * length, target=1.0, verification=0.0, host=0.0
            )
            for num_reqs in (1, 8)
            for length in (0, 1, MAX_SPEC_TOKENS)
        }
    )


def engine(pair: Pair, policy: Policy, known: StepCosts) -> tuple[Engine, AdaptiveRunner]:
    made = Engine.of(pair.decoder(policy, MAX_SPEC_TOKENS), Limits(num_slots=4, max_len=128))
    runner = AdaptiveRunner(
        runner=made.loop.runner, costs=known, profile=PROFILE, max_spec_tokens=MAX_SPEC_TOKENS
    )
    made.loop.runner = runner
    return made, runner


def generate(made: Engine, num_reqs: int = 6) -> list[GenerationResult]:
    return made.generate(
        GenerationRequest(
            prompt_token_ids=[1 + seed], params=SamplingParams(seed=seed), max_tokens=80
        )
        for seed in range(num_reqs)
    )


def mean_draft_len(results: list[GenerationResult]) -> float:
    drafted = sum(result.statistics.num_draft_tokens for result in results)
    # A step without a draft is a step, too.
    finals = sum(kind != "accepted" for result in results for kind in result.kinds)
    return drafted / finals


def test_strict_output_does_not_change(pair: Pair) -> None:
    made, _ = engine(pair, Strict(), costs(draft=0.1))
    fixed = Engine.of(pair.decoder(Strict(), 3), Limits(num_slots=4, max_len=128))
    assert [one.token_ids for one in generate(made)] == [one.token_ids for one in generate(fixed)]


@pytest.mark.parametrize(("draft", "shortest", "longest"), [(0.001, 5, 6), (10.0, 0, 0)])
def test_what_drafts_cost_decides(
    pair: Pair, draft: float, shortest: float, longest: float
) -> None:
    made, _ = engine(pair, Strict(coupled=True), costs(draft))
    assert shortest <= mean_draft_len(generate(made)) <= longest


@frozen(eq=False)
class Watched:
    """A runner that notes the longest draft of each step."""

    runner: Runner
    drafted: list[int] = field(factory=list)

    def gather(self, states: Sequence[RequestState]) -> Running:
        return self.runner.gather(states)

    def run(
        self, running: Running, rooms: Sequence[int], token_counts: TokenCounts | None
    ) -> list[Verdict]:
        self.drafted.append(max(rooms))
        return self.runner.run(running, rooms, token_counts)


def test_a_draft_that_is_never_right_is_given_up_and_tried_again(pair: Pair) -> None:
    first = torch.tensor([0])
    target = TableModel(pair.target.table.index_fill(1, first, -50.0))
    wrong = Pair(target, TableModel(pair.target.table.index_fill(1, first, 50.0)))
    made, runner = engine(wrong, Strict(), costs(draft=0.2))
    runner.runner = watched = Watched(runner.runner)
    generate(made, 1)
    assert watched.drafted[0] > 0
    given_up = watched.drafted.index(0)
    assert watched.drafted.count(0) > len(watched.drafted) / 2
    assert any(watched.drafted[given_up:])


def test_a_draft_that_is_always_right_grows(pair: Pair) -> None:
    made, runner = engine(Pair(pair.target, pair.target), Strict(coupled=True), costs(draft=0.2))
    runner.runner = watched = Watched(runner.runner)
    generate(made, 1)
    assert watched.drafted[0] < MAX_SPEC_TOKENS
    assert watched.drafted.count(MAX_SPEC_TOKENS) > len(watched.drafted) / 2
