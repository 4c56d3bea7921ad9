"""The exact law of whole decode runs, through the real sampler and the real drafting.

A run drafts, verifies and advances until it has enough tokens, so that positions are drafted and
tested again after a rejection. The expected law is in `lab.proof.exact`.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache

import torch
from attrs import evolve, field, frozen
from torch import Tensor

from acceptor.backends import load_sampler
from acceptor.core import (
    Policy,
    SampleBatch,
    SamplingParams,
    SamplingTensors,
    TokenCounts,
    VerifyBatch,
    pack_allowed,
)
from kit.hidden_noise import Branch, Counter, HiddenNoise, Interval, branches, replaced_by

Tokens = tuple[int, ...]
Logits = Callable[[Tokens], Tensor]
Steps = tuple[tuple[int, int], ...]
Law = dict[Tokens, float]
Stage = tuple[int, int, bool]


@frozen(kw_only=True)
class DecodeSetup:
    """Two small models, a policy, and how they decode.

    Attributes:
        target: the target's raw logits after these tokens, [vocab_size].
        draft: the draft model's after these tokens, [draft_vocab_size]; None if drafts are guessed.
        guess: the law of guessed drafts after these tokens, which the sampler does not know.
        policy: the policy.
        params: the request's; the seed selects the noise.
        num_spec_tokens: the longest draft; drafts end where the run does.
        draft_to_target: target id of each draft id.
        ends_early: whether the drafter gives up after these tokens.
        adapts: the longest draft of a step, by how many tokens were drafted and accepted in each
            step before; None for the longest of all.
        prompt: for penalties.
        allows: the tokens that a mask allows after these; None without masks.
    """

    target: Logits
    policy: Policy
    num_spec_tokens: int
    params: SamplingParams = field(default=SamplingParams(seed=5))
    draft: Logits | None = None
    guess: Callable[[Tokens], Sequence[float]] | None = None
    draft_to_target: Tokens | None = None
    ends_early: Callable[[Tokens], bool] = lambda _: False
    adapts: Callable[[Steps], int] | None = None
    prompt: Tokens = ()
    allows: Callable[[Tokens], Tokens] | None = None

    @property
    def vocab_size(self) -> int:
        return len(self.target(()))

    @property
    def id_map(self) -> Tensor | None:
        """`draft_to_target` as samplers expect it."""
        return None if self.draft_to_target is None else torch.tensor(self.draft_to_target)


@frozen
class State:
    """The state of a run: emitted tokens, drafts, and what is known of the noise.

    Steps are remembered only if drafts adapt to them.
    """

    tokens: Tokens
    drafts: Tokens = ()
    steps: Steps = ()
    drafted: bool = False
    known: frozenset[tuple[Counter, Interval]] = frozenset()

    @property
    def stage(self) -> Stage:
        """A number that rises with every move."""
        return len(self.tokens), len(self.drafts), self.drafted

    @property
    def text(self) -> Tokens:
        return self.tokens + self.drafts


Asked = dict[Stage, set[Counter]]
Move = Callable[[Branch], State]


def emitted_law(setup: DecodeSetup, num_tokens: int) -> Law:
    """The probability of every sequence of the first num_tokens tokens of a run."""
    # Noise that no later stage needs is not remembered; a first pass, which remembers nothing,
    # finds the last stage that needs each.
    asked: Asked = {}
    _explore(setup, num_tokens, asked)
    return _explore(setup, num_tokens, asked)


def _explore(setup: DecodeSetup, num_tokens: int, asked: Asked) -> Law:
    reached: defaultdict[Stage, defaultdict[State, float]] = defaultdict(lambda: defaultdict(float))
    reached[0, 0, False][State(())] = 1.0
    law: defaultdict[Tokens, float] = defaultdict(float)
    while reached:
        stage = min(reached)
        states = reached.pop(stage).items()
        if stage[0] >= num_tokens:
            for state, mass in states:
                law[state.tokens[:num_tokens]] += mass
            continue
        later = set().union(*(counters for other, counters in asked.items() if other > stage))
        noise = HiddenNoise(horizon=num_tokens)
        with replaced_by(noise):
            for state, mass in states:
                for probability, following in branches(_move(setup, state, noise)):
                    known = frozenset((c, part) for c, part in noise.known.items() if c in later)
                    remembering = evolve(following, known=known)
                    reached[remembering.stage][remembering] += mass * probability
        asked.setdefault(stage, set()).update(noise.used)
    return dict(law)


def _move(setup: DecodeSetup, state: State, noise: HiddenNoise) -> Move:
    move = _verify(setup, state) if state.drafted else draft_one(setup, state, noise.horizon)

    def move_with_noise(branch: Branch) -> State:
        noise.begin(branch, state.known)
        return move(branch)

    return move_with_noise


def draft_one(setup: DecodeSetup, state: State, num_tokens: int) -> Move:
    """One more draft token, or the end of the draft."""
    text, drafts = state.text, state.drafts
    longest = setup.num_spec_tokens if setup.adapts is None else setup.adapts(state.steps)
    room = min(longest - len(drafts), num_tokens - len(text))
    if room == 0 or setup.ends_early(text):
        return lambda _: evolve(state, drafted=True)
    guess = setup.guess
    if guess is not None:
        return lambda branch: evolve(state, drafts=(*drafts, branch.choose(guess(text))))
    assert setup.draft is not None
    batch = SampleBatch(
        logits=setup.draft(text)[None],
        positions=torch.tensor([len(text)]),
        draft_index=len(drafts) + 1,
        draft_stream=setup.policy.draft_stream,
        draft_to_target=setup.id_map,
        target_vocab_size=setup.vocab_size,
    )
    sampler, params = load_sampler("reference"), SamplingTensors.stack([setup.params])
    return lambda _: evolve(state, drafts=(*drafts, int(sampler.sample(batch, params).token_ids)))


def _verify(setup: DecodeSetup, state: State) -> Move:
    sampler, params = load_sampler("reference"), SamplingTensors.stack([setup.params])
    batch = verify_batch(setup, state)

    def move(_: Branch) -> State:
        output = sampler.verify(batch, params, setup.policy)
        assert output.status.tolist() == [0]
        num_accepted = int(output.num_accepted)
        emitted = output.token_ids[0, : num_accepted + 1].tolist()
        step = (len(state.drafts), num_accepted)
        steps = () if setup.adapts is None else (*state.steps, step)
        return State((*state.tokens, *emitted), steps=steps)

    return move


def verify_batch(setup: DecodeSetup, state: State) -> VerifyBatch:
    """The batch that verifies the draft of a state."""
    contexts = [state.text[:place] for place in range(len(state.tokens), len(state.text) + 1)]
    counts = TokenCounts.empty(1, setup.vocab_size)
    counts.start(0, setup.prompt)
    counts.add(torch.tensor([0]), torch.tensor([state.tokens], dtype=torch.int64))
    draft_logits = None
    if setup.draft is not None and state.drafts:
        draft_logits = torch.stack([setup.draft(context) for context in contexts[:-1]])[None]
    return VerifyBatch.dense(
        target_logits=torch.stack([setup.target(context) for context in contexts])[None],
        draft_token_ids=torch.tensor([state.drafts], dtype=torch.int64),
        positions=torch.tensor([len(state.tokens)]),
        draft_logits=draft_logits,
        draft_to_target=setup.id_map,
        token_counts=counts,
        allowed_tokens=None if setup.allows is None else _masks(setup, contexts),
    )


def _masks(setup: DecodeSetup, contexts: Sequence[Tokens]) -> Tensor:
    assert setup.allows is not None
    allowed = torch.zeros(len(contexts), setup.vocab_size, dtype=torch.bool)
    for row, context in zip(allowed, contexts, strict=True):
        row[list(setup.allows(context))] = True
    return pack_allowed(allowed)


def random_model(vocab_size: int, seed: int, sharpness: float = 1.5) -> Logits:
    """A language model: random float32 logits for every context, made on demand."""

    @cache
    def logits(tokens: Tokens) -> Tensor:
        # The hash of a tuple of integers is the same in every process.
        generator = torch.Generator().manual_seed(hash((seed, tokens)) % 2**63)
        return sharpness * torch.randn(vocab_size, generator=generator)

    return logits
