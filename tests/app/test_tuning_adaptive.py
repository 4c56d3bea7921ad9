"""K of each request chosen anew in each step."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import cycle

import pytest
import torch
from attrs import evolve, field, frozen

from acceptor.app.decode import DecodeStep
from acceptor.app.engine.cuda_graphs import GraphRunner
from acceptor.app.engine.engine import Engine
from acceptor.app.engine.parts import Limits
from acceptor.app.engine.runner import EagerRunner, Runner
from acceptor.app.frontier import Running
from acceptor.app.request_state import RequestState
from acceptor.app.tuning.adaptive import AdaptiveRunner
from acceptor.app.tuning.costs import StepCosts, StepTimes
from acceptor.app.tuning.profile import AcceptanceProfile
from acceptor.app.verdicts import Verdict
from acceptor.core import Block, Policy, Probabilistic, Recipe, Strict
from kit.decode_law import DecodeSetup, Steps, random_model
from kit.toy_pair import Letters, Pair, TableModel, record
from kit.toy_requests import ask
from lab.proof.exact import EXACT, law_error

NewRunner = Callable[[DecodeStep], Runner]
MAX_SPEC_TOKENS = 6
PROFILE = AcceptanceProfile((0.6,), (100,))


def costs(draft: float, token: float = 0.0) -> StepCosts:
    return StepCosts(
        {
            (num_reqs, length): StepTimes(
                draft=draft * length, target=1.0, verification=token * num_reqs * length
            )
            for num_reqs in (1, 8)
            for length in (0, 1, MAX_SPEC_TOKENS)
        }
    )


def engine(
    pair: Pair, policy: Policy, known: StepCosts, new_runner: NewRunner = EagerRunner
) -> tuple[Engine, AdaptiveRunner]:
    decoder = evolve(pair.decoder(policy, MAX_SPEC_TOKENS), new_runner=new_runner)
    made = Engine.of(decoder, Limits(num_slots=4, max_len=128))
    runner = AdaptiveRunner(
        runner=made.loop.runner, costs=known, profile=PROFILE, max_spec_tokens=MAX_SPEC_TOKENS
    )
    made.loop.runner = runner
    return made, runner


RUNNERS = pytest.mark.parametrize(
    "new_runner", [EagerRunner, partial(GraphRunner, record=record)], ids=["eager", "graphs"]
)


@frozen(eq=False)
class Watched(Runner):
    """A runner that records the draft lengths of each step."""

    runner: Runner
    lengths: list[Sequence[int]] = field(factory=list)

    @property
    def drafted(self) -> list[int]:
        return [max(lengths) for lengths in self.lengths]

    def run(self, running: Running, draft_limits: Sequence[int]) -> list[Verdict]:
        self.lengths.append(draft_limits)
        return self.runner.run(running, draft_limits)


def test_a_draft_that_is_never_right_is_given_up_and_tried_again(pair: Pair) -> None:
    first = torch.tensor([0])
    target = TableModel(pair.target.table.index_fill(1, first, -50.0))
    wrong = Pair(target, TableModel(pair.target.table.index_fill(1, first, 50.0)))
    made, runner = engine(wrong, Strict(), costs(draft=0.2))
    runner.runner = watched = Watched(runner.runner)
    made.generate([ask(1, max_tokens=80)])
    assert watched.drafted[0] > 0
    given_up = watched.drafted.index(0)
    assert watched.drafted.count(0) > len(watched.drafted) / 2
    assert any(watched.drafted[given_up:])


@RUNNERS
def test_each_request_of_a_batch_has_its_own_length(pair: Pair, new_runner: NewRunner) -> None:
    twins = Pair(pair.target, pair.target)
    made, runner = engine(twins, Probabilistic(), costs(draft=0.05, token=0.05), new_runner)
    runner.runner = watched = Watched(runner.runner)
    blurred = Recipe(temperature=50.0)
    asked = (ask(1, seed=1, max_tokens=60), ask(1, seed=2, draft=blurred, max_tokens=60))
    good, bad = made.generate(asked)
    assert good.statistics.acceptance_rate == 1.0
    assert bad.statistics.acceptance_rate < 0.7
    together = [lengths for lengths in watched.lengths if len(lengths) == 2][3:-2]
    assert {of_good for of_good, _ in together} == {MAX_SPEC_TOKENS}
    assert max(of_bad for _, of_bad in together) < MAX_SPEC_TOKENS


@RUNNERS
def test_a_draft_model_reads_what_steps_without_drafts_emit(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, new_runner: NewRunner
) -> None:
    lengths = cycle((0, 4, 4, 0, 0, 0, 2))
    monkeypatch.setattr(AdaptiveRunner, "choose", lambda *given: [min(next(lengths), *given[-1])])
    made, _ = engine(Pair(pair.target, pair.target), Probabilistic(), costs(0.1), new_runner)
    for result in made.generate([ask(1, max_tokens=60)]) + made.generate([ask(2, max_tokens=60)]):
        assert result.statistics.acceptance_rate == 1.0


@pytest.mark.parametrize(
    ("token", "draft_limits", "expected"),
    [
        # Draft tokens that cost nothing are taken as far as there is room.
        (0.0, (6, 6), [6, 6]),
        (0.0, (4, 2), [4, 2]),
        (0.1, (6, 6), [6, 0]),
        (0.1, (0, 6), [0, 0]),
        (2.0, (6, 6), [0, 0]),
    ],
)
def test_what_a_token_costs_decides_whose_drafts_are_long(
    pair: Pair, token: float, draft_limits: tuple[int, int], expected: list[int]
) -> None:
    _, runner = engine(pair, Strict(), costs(draft=0.1, token=token))
    states = [make_state(), make_state()]
    for state, num_accepted in zip(states, (MAX_SPEC_TOKENS, 0), strict=True):
        for _ in range(100):
            runner.observe(state, MAX_SPEC_TOKENS, num_accepted)
    assert runner.choose(states, draft_limits) == expected


def test_drafts_are_as_long_as_so_many_requests_can_pay_for(pair: Pair) -> None:
    cheap, dear = costs(draft=0.01), costs(draft=9.0)
    by_size = {key: (cheap if key[0] == 1 else dear).medians[key] for key in cheap.medians}
    _, runner = engine(pair, Strict(), StepCosts(by_size))
    assert runner.choose([make_state()], [6]) == [6]
    assert runner.choose([make_state() for _ in range(8)], [6] * 8) == [0] * 8


def make_state() -> RequestState:
    return RequestState(
        index=0, request=ask(1), eos_token_ids=frozenset(), max_len=99, detokenizer=Letters()
    )


@pytest.mark.parametrize("policy", [Strict(), Probabilistic(), Block()])
def test_the_law_of_the_output_is_the_targets(pair: Pair, policy: Policy) -> None:
    _, runner = engine(pair, policy, costs(draft=0.2, token=0.05))
    chosen = set()

    @cache
    def adapts(steps: Steps) -> int:
        state = make_state()
        # Often enough to matter within a few tokens.
        for num_draft_tokens, num_accepted in 8 * steps:
            runner.observe(state, num_draft_tokens, num_accepted)
        (length,) = runner.choose([state], [2])
        chosen.add((len(steps), length))
        return length

    setup = DecodeSetup(
        target=random_model(2, seed=1),
        draft=random_model(2, seed=2),
        policy=policy,
        num_spec_tokens=2,
        adapts=adapts,
    )
    assert law_error(setup, 4).joint < EXACT
    assert chosen >= {(0, 2), (1, 1), (1, 0)}
