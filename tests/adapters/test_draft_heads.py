"""Draft heads through the decode loop, against plain arithmetic on the library's hidden states."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import define, evolve, frozen
from torch import Tensor
from transformers import LlamaConfig

from acceptor.adapters.draft_heads.loader import find_head, load_head
from acceptor.adapters.loader import load_any_model
from acceptor.app.engine.cuda_graphs import GraphRunner
from acceptor.app.engine.runner import EagerRunner, Runner
from acceptor.app.frontier import Running
from acceptor.app.head_drafter import HeadDrafter
from acceptor.app.verdicts import Verdict
from acceptor.core import AcceptanceStatistics, Probabilistic, Strict, Synthetic
from kit.draft_heads import SPECULATORS, TAPS, Arithmetic, HeadFiles, eagle, eagle3
from kit.head_decoding import PROMPTS, decode, decoder_of, distance
from kit.small_families import SHAPE
from kit.toy_pair import engine_with, record
from kit.toy_requests import ask

NUM_LAYERS = 7


@frozen
class Target:
    model: Any
    reference: Any


@pytest.fixture(scope="module")
def target(save: Callable[..., Any]) -> Target:
    saved = save(LlamaConfig(**SHAPE | {"num_hidden_layers": NUM_LAYERS}))
    return Target(load_any_model(saved.directory), saved.reference)


@frozen
class Case:
    """A head, its taps, and the switches that a wrong reading would invert."""

    files: HeadFiles
    taps: Sequence[int] = (2, 3, 4)
    switches: Sequence[str] = ("order", "rope_theta")


THREE = ("norm_before_residual", "norm_output", "order")
CASES = {
    "eagle": Case(eagle(rope_theta=7e4), (NUM_LAYERS,)),
    "eagle with a bias": Case(eagle(bias=True), (NUM_LAYERS,)),
    "eagle3": Case(eagle3(), switches=(*THREE, "rope_theta")),
    "eagle3, own embedding, fewer ids": Case(
        eagle3(own_embedding=True, draft_vocab_size=23, head_dim=10), switches=("embed_tokens",)
    ),
    "eagle3, other layers": Case(
        eagle3(num_taps=2, eagle_config={TAPS: [6, 1]}, norm_before_residual=True),
        taps=(1, 6),
        switches=THREE,
    ),
    "eagle3, norm before fc, qwen3": Case(
        eagle3(
            nested={**SPECULATORS, "norm_before_fc": True, TAPS: None},
            model_type="qwen3",
            own_embedding=True,
            draft_vocab_size=23,
        ),
        switches=(*THREE, "norm_before_fc"),
    ),
    "eagle3, norm of each tap and of the output": Case(
        eagle3(nested={**SPECULATORS, "fc_norm": True, "norm_output": True, TAPS: [0, 4, 6]}),
        taps=(0, 4, 6),
        switches=(*THREE, "fc_norm"),
    ),
}


@pytest.mark.parametrize("num_spec_tokens", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_plain_arithmetic(
    target: Target, tmp_path: Path, name: str, num_spec_tokens: int
) -> None:
    case = CASES[name]
    directory = case.files.save(tmp_path, pickled="bias" in name)
    kind = "eagle3" if "eagle3" in name else "eagle"
    assert find_head(directory) == kind
    drafts, texts = decode(target.model, load_head(directory, kind, target.model), num_spec_tokens)
    wanted = arithmetic_of(target, case.files)
    hidden = [hidden_states(target.reference, text, case.taps) for text in texts]

    assert distance(wanted.draft_logits, drafts, texts, hidden) <= 1e-5
    # The features that a head passes on do not affect first drafts.
    for switch in case.switches if num_spec_tokens > 1 else ():
        assert distance(wanted.wrong(switch).draft_logits, drafts, texts, hidden) > 1e-2, switch
    below = [max(tap - 1, 0) for tap in case.taps]
    lower = [hidden_states(target.reference, text, below) for text in texts]
    assert distance(wanted.draft_logits, drafts, texts, lower) > 1e-2


def arithmetic_of(target: Target, files: HeadFiles) -> Arithmetic:
    return Arithmetic(
        files=files,
        embedding=target.reference.get_input_embeddings().weight.detach(),
        lm_head=target.reference.get_output_embeddings().weight.detach(),
    )


def hidden_states(reference: Any, text: Sequence[int], taps: Sequence[int]) -> list[Tensor]:
    """The library's hidden states; the last one is after the final norm."""
    with torch.inference_mode():
        states = reference(torch.tensor([text]), output_hidden_states=True).hidden_states
    return [states[tap][0] for tap in taps]


@define(eq=False)
class Changing(Runner):
    """Drafts of another length in every step, as adaptive K may have it."""

    runner: Runner
    lengths: Iterator[int]

    def run(self, running: Running, draft_limits: Sequence[int]) -> list[Verdict]:
        longest = next(self.lengths)
        return self.runner.run(running, [min(one, longest) for one in draft_limits])


RUNNERS = pytest.mark.parametrize("runner", [EagerRunner, partial(GraphRunner, record=record)])


@RUNNERS
def test_k_may_change(target: Target, tmp_path: Path, runner: Callable[..., Runner]) -> None:
    files = CASES["eagle3"].files
    head = load_head(files.save(tmp_path), "eagle3", target.model)
    turns = cycle((3, 0, 2, 0, 0, 1))
    drafts, texts = decode(target.model, head, 3, lambda step: Changing(runner(step), turns))
    assert {len(draft.token_ids) for draft in drafts} == {1, 2, 3}
    hidden = [hidden_states(target.reference, text, CASES["eagle3"].taps) for text in texts]
    assert distance(arithmetic_of(target, files).draft_logits, drafts, texts, hidden) <= 1e-5


@RUNNERS
def test_an_engine_gives_requests_what_they_get_alone(
    target: Target, tmp_path: Path, runner: Callable[..., Runner]
) -> None:
    """Slots are used again, drafts are cut and left out, and prompts come in while others run."""
    head = load_head(eagle3(draft_vocab_size=23).save(tmp_path), "eagle3", target.model)
    decoding = decoder_of(target.model, head, Probabilistic(), 3)
    requests = [
        ask(
            *PROMPTS[seed % 3],
            seed=seed,
            max_tokens=4 + seed,
            num_spec_tokens=(None, 0, 2)[seed % 3],
        )
        for seed in range(6)
    ]
    engine = engine_with(evolve(decoding, new_runner=runner), num_slots=2)
    # Equal up to rounding: batches use different matrix products.
    assert [r.token_ids for r in engine.generate(requests)] == [
        decoding.generate([request])[0].token_ids for request in requests
    ]


REJECTED, ACCEPTED = Verdict((4,), 1, 0), Verdict((4, 5), 1, 1)


def test_a_head_of_which_nothing_is_accepted_is_spoken_of_once(
    target: Target, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    head = load_head(eagle3().save(tmp_path), "eagle3", target.model)
    decoding = decoder_of(target.model, head, Strict(), 1)
    assert isinstance(decoding.drafter, HeadDrafter)
    decoding.generate([ask(3, 4, max_tokens=9)])
    assert decoding.drafter.first_drafts is not None
    assert decoding.drafter.first_drafts.num_drafts > 3
    for policy, verdicts in (
        (Strict(), [REJECTED] * 100),
        (Strict(), [ACCEPTED, *[REJECTED] * 9] * 10),
        (Synthetic.from_acceptance_length(1.0, 1), [REJECTED] * 100),
    ):
        drafter = evolve(decoding.drafter, policy=policy, first_drafts=AcceptanceStatistics())
        for _ in range(4):
            drafter.notice(verdicts)
    (said,) = caplog.messages
    assert said == (
        "draft head: 0.0 % of the first 256 drafts were accepted; check that it is this target's, "
        f"and norm_before_residual (False), rope_theta (10000), {TAPS} ([2, 3, 4])"
    )
