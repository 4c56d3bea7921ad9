"""Draft heads through the decode loop, against plain arithmetic on the library's hidden states."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve, field, frozen
from torch import Tensor
from transformers import LlamaConfig

from acceptor.adapters.adapter_choice import load_any_model
from acceptor.adapters.draft_heads.loader import find_head, load_head
from acceptor.app.decoder import Decoder
from acceptor.app.head_drafter import HeadDrafter
from acceptor.backends import load_sampler
from acceptor.core import (
    AcceptanceStatistics,
    Policy,
    Probabilistic,
    SampleBatch,
    SampleOutput,
    Sampler,
    SamplingTensors,
    VerifyBatch,
    VerifyOutput,
)
from kit.draft_heads import Arithmetic, HeadFiles, eagle, eagle3
from kit.no_workspace import NoWorkspace
from kit.toy_pair import Letters
from kit.toy_requests import ask

VOCAB_SIZE, NUM_LAYERS, NUM_TOKENS = 61, 7, 10
PROMPTS = ((5,), (7, 3, 9, 9, 4, 11, 2), (8, 2, 30, 41, 6, 5, 3, 20, 10, 4, 12, 33))
TAPS = "eagle_aux_hidden_state_layer_ids"


@frozen
class Draft:
    """Of one request in one step."""

    request: int
    length: int
    token_ids: list[int]
    logits: Tensor


@frozen
class Noting(NoWorkspace):
    """A sampler that notes what it verifies."""

    sampler: Sampler
    drafts: list[Draft] = field(factory=list)

    def sample(self, batch: SampleBatch, params: SamplingTensors, **memory: Any) -> SampleOutput:
        return self.sampler.sample(batch, params, **memory)

    def verify(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy, **memory: Any
    ) -> VerifyOutput:
        assert batch.slot_ids is not None
        lengths, slots = batch.positions.tolist(), batch.slot_ids.tolist()
        per_request = batch.draft_token_ids.view(len(slots), -1).tolist()
        for length, slot, row in zip(lengths, slots, per_request, strict=True):
            drafted = [token_id for token_id in row if token_id >= 0]
            if drafted:
                assert batch.draft_logits is not None
                logits = batch.draft_logits[slot, : len(drafted)].clone()
                self.drafts.append(Draft(slot, length, drafted, logits))
        return self.sampler.verify(batch, params, policy, **memory)


@frozen
class Target:
    directory: Path
    model: Any
    reference: Any


@pytest.fixture(scope="module")
def target(save: Callable[..., Any]) -> Target:
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    saved = save(config)
    return Target(saved.directory, load_any_model(saved.directory), saved.reference)


def decoder(target: Any, head: Any, policy: Policy, num_spec_tokens: int) -> Decoder:
    sampler = load_sampler("reference")
    return Decoder(
        target=target,
        drafter=HeadDrafter(
            head=head,
            target_vocab_size=target.vocab_size,
            sampler=sampler,
            policy=policy,
            num_spec_tokens=num_spec_tokens,
        ),
        sampler=sampler,
        policy=policy,
        eos_token_ids=frozenset(),
        new_detokenizer=Letters,
    )


@frozen
class Case:
    """A head, where it looks, and the switches that another reading would set otherwise."""

    files: HeadFiles
    taps: Sequence[int] = (2, 3, 4)
    switches: Sequence[str] = ("order", "rope_theta")


SPECULATORS: Mapping[str, Any] = {"norm_before_residual": True, "target_hidden_size": 32}
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
    assert find_head(directory) == (None if "bias" in name else kind)
    drafts, texts = decode(target, load_head(directory, kind, target.model), num_spec_tokens)
    wanted = Arithmetic(
        files=case.files,
        embedding=target.reference.get_input_embeddings().weight.detach(),
        lm_head=target.reference.get_output_embeddings().weight.detach(),
    )
    hidden = [hidden_states(target.reference, text, case.taps) for text in texts]

    def distance(arithmetic: Arithmetic, states: Sequence[Sequence[Tensor]]) -> float:
        return max(
            float((draft.logits - said(arithmetic, draft, states, texts)).abs().max())
            for draft in drafts
        )

    assert distance(wanted, hidden) <= 1e-5
    # What a head hands on does not concern first drafts.
    for switch in case.switches if num_spec_tokens > 1 else ():
        assert distance(wanted.wrong(switch), hidden) > 1e-2, switch
    below = [max(tap - 1, 0) for tap in case.taps]
    lower = [hidden_states(target.reference, text, below) for text in texts]
    assert distance(wanted, lower) > 1e-2


def decode(target: Target, head: Any, num_spec_tokens: int) -> tuple[list[Draft], list[list[int]]]:
    """Everything that was drafted, and the texts; some drafts are rejected, some are not."""
    noting = Noting(load_sampler("reference"))
    decoding = decoder(target.model, head, Probabilistic(), num_spec_tokens)
    requests = [ask(*p, seed=i, max_tokens=NUM_TOKENS) for i, p in enumerate(PROMPTS)]
    results = evolve(decoding, sampler=noting).generate(requests)
    total = sum((one.statistics for one in results), AcceptanceStatistics())
    assert 0 < total.num_accepted_tokens < total.num_draft_tokens
    texts = [[*p, *one.token_ids] for p, one in zip(PROMPTS, results, strict=True)]
    return noting.drafts, texts


def hidden_states(reference: Any, text: Sequence[int], taps: Sequence[int]) -> list[Tensor]:
    """As the library shows them: the last is behind the final norm."""
    with torch.inference_mode():
        states = reference(torch.tensor([text]), output_hidden_states=True).hidden_states
    return [states[tap][0] for tap in taps]


def said(
    arithmetic: Arithmetic,
    draft: Draft,
    hidden: Sequence[Sequence[Tensor]],
    texts: Sequence[Sequence[int]],
) -> Tensor:
    drafts = draft.token_ids
    known = texts[draft.request][: draft.length]
    return arithmetic.draft_logits(hidden[draft.request], known, drafts)
