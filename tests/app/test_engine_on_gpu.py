"""The engine on a CUDA device: a graph does what its operations do one by one, and nobody waits."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from attrs import evolve

from acceptor.adapters.draft_heads.loader import load_head
from acceptor.adapters.language_model import TransformerModel
from acceptor.adapters.random_weights import random_model
from acceptor.app.decoder import Decoder
from acceptor.app.draft_vocabulary import DraftVocabulary
from acceptor.app.engine.engine import Engine
from acceptor.app.engine.runner import EagerRunner
from acceptor.app.engine.schedule import Limits
from acceptor.app.head_drafter import HeadDrafter
from acceptor.app.model_drafter import ModelDrafter
from acceptor.app.request import FinishReason, GenerationRequest
from acceptor.core import Policy, Probabilistic, SamplingParams, Strict
from kit.draft_heads import TAPS, eagle3
from kit.llama_shapes import DRAFT, TARGET
from kit.on_gpu import every_fused_backend, sampler_of
from kit.toy_pair import Letters

pytestmark = pytest.mark.gpu

NUM_WATCHED = 12


Change = Callable[[Decoder, Path], Decoder]


def unchanged(decoder: Decoder, folder: Path) -> Decoder:  # noqa: ARG001, see `Change`
    return decoder


def with_own_ids(decoder: Decoder, folder: Path) -> Decoder:  # noqa: ARG001
    """Its draft model numbers tokens from behind, and shares all but one in eight."""
    size = decoder.target.vocab_size
    ids = {size - 1 - token_id: token_id for token_id in range(size) if token_id % 8}
    vocabulary = DraftVocabulary.of(ids, size, device=decoder.target.device)
    return evolve(decoder, drafter=evolve(decoder.drafter, vocabulary=vocabulary))  # type: ignore[misc]


def with_a_head(decoder: Decoder, folder: Path) -> Decoder:
    """Of half of the target's ids."""
    shape: dict[str, Any] = {**SMALL, "num_hidden_layers": 1}
    files = eagle3(
        target_size=shape["hidden_size"],
        draft_vocab_size=shape["vocab_size"] // 2,
        head_dim=shape["hidden_size"] // shape["num_attention_heads"],
        eagle_config={TAPS: [0, 1, 2]},
        **shape,
    )
    target = decoder.target
    assert isinstance(target, TransformerModel)
    head = load_head(files.save(folder / "head"), "eagle3", target)
    drafter = HeadDrafter(
        head=head,
        target_vocab_size=target.vocab_size,
        sampler=decoder.sampler,
        policy=decoder.policy,
        num_spec_tokens=3,
    )
    return evolve(decoder, drafter=drafter)


@every_fused_backend
@pytest.mark.parametrize("change", [unchanged, with_own_ids, with_a_head])
@pytest.mark.parametrize("policy", [Strict(), Probabilistic()], ids=lambda policy: policy.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_graph_emits_what_its_operations_emit(
    tmp_path: Path, dtype: torch.dtype, policy: Policy, change: Change, backend: str
) -> None:
    decoder = change(decoder_of(tmp_path, dtype, policy, backend), tmp_path)
    # As many as a graph has rows, so that both multiply matrices of the same shapes.
    requests = requests_of(4, max_tokens=12)
    captured = decoder.generate(requests)
    eager = evolve(decoder, new_runner=EagerRunner).generate(requests)
    assert [r.finish_reason for r in captured] == [FinishReason.LENGTH] * 4
    # Until the first of them ends they are the same batch, and behind it the shapes differ.
    assert [r.token_ids[:9] for r in captured] == [r.token_ids[:9] for r in eager]


@contextmanager
def counted_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[None]]:
    """One entry for each event that the host waits for; waiting in another way is an error."""
    waits: list[None] = []
    wait = torch.cuda.Event.synchronize

    def counted(event: torch.cuda.Event) -> None:
        waits.append(None)
        wait(event)

    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda.Event, "synchronize", counted)
        refused = Mock(side_effect=AssertionError("waited for the whole device"))
        patch.setattr(torch.cuda, "synchronize", refused)
        patch.setattr(torch.cuda.Stream, "synchronize", refused)
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield waits
        finally:
            torch.cuda.set_sync_debug_mode("default")


@every_fused_backend
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize(
    ("repetition_penalty", "change"),
    [(1.0, unchanged), (1.2, unchanged), (1.0, with_own_ids), (1.0, with_a_head)],
    ids=["ahead", "penalties", "own vocabulary", "head"],
)
def test_a_captured_step_waits_for_its_tokens_and_for_nothing_else(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    repetition_penalty: float,
    change: Change,
) -> None:
    decoder = change(decoder_of(tmp_path, torch.bfloat16, Probabilistic(), backend), tmp_path)
    engine = Engine.of(decoder, Limits(num_slots=4, max_len=128))
    for seed in range(4):
        params = SamplingParams(seed=seed, repetition_penalty=repetition_penalty)
        engine.add_request([seed + 1] * 3, params, max_tokens=100)
    # What is to be compiled and captured is by then.
    for _ in range(4):
        engine.step()
    with counted_waits(monkeypatch) as waits:
        gained = [len(engine.step()) for _ in range(NUM_WATCHED)]
    assert gained == [4] * NUM_WATCHED
    assert len(waits) == NUM_WATCHED


SMALL = {
    "vocab_size": 1024,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def decoder_of(
    tmp_path: Path, dtype: torch.dtype, policy: Policy, backend: str, device: str = "cuda"
) -> Decoder:
    """A target, a draft and K = 3; skips the test where the backend lacks something."""
    models: list[TransformerModel] = []
    for name, shape in (("target", TARGET), ("draft", DRAFT)):
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(shape | SMALL), encoding="utf-8")
        models.append(random_model(file, dtype=dtype, device=device))
    target, draft = models
    sampler = sampler_of(backend)
    return Decoder(
        target=target,
        drafter=ModelDrafter(model=draft, sampler=sampler, policy=policy, num_spec_tokens=3),
        sampler=sampler,
        policy=policy,
        eos_token_ids=frozenset(),
        new_detokenizer=Letters,
    )


def requests_of(num_reqs: int, max_tokens: int) -> list[GenerationRequest]:
    """Prompts of different lengths, each with its own seed."""
    return [
        GenerationRequest(
            prompt_token_ids=[seed + 1] * (5 * seed + 1),
            params=SamplingParams(seed=seed, temperature=0.7),
            max_tokens=max_tokens,
        )
        for seed in range(num_reqs)
    ]
