"""The engine on a CUDA device: a graph does the same as its operations, and nothing waits."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from attrs import evolve

from acceptor.adapters.draft_heads.loader import load_head, random_head
from acceptor.adapters.language_model import TransformerModel
from acceptor.adapters.loader import random_any_model
from acceptor.adapters.random_weights import random_model
from acceptor.app.decoder import Decoder
from acceptor.app.drafter import NoDrafter
from acceptor.app.engine.engine import Engine
from acceptor.app.engine.parts import Limits
from acceptor.app.engine.runner import EagerRunner
from acceptor.app.model_drafter import DraftVocabulary
from acceptor.app.request import FinishReason, GenerationRequest
from acceptor.app.token_masks import NewTokenMasks
from acceptor.app.wiring import runner_for
from acceptor.core import Policy, Probabilistic, SamplingParams, Strict
from kit.draft_heads import TAPS, eagle, eagle3
from kit.head_decoding import with_head
from kit.on_gpu import every_fused_backend, sampler_of
from kit.shapes import DRAFT, TARGET
from kit.shapes import FOR_KERNELS as SMALL
from kit.toy_pair import decoder_for, with_draft
from kit.toy_requests import ByLast, ask

pytestmark = pytest.mark.gpu

NUM_WATCHED = 12
HEAD: dict[str, Any] = SMALL | {"num_hidden_layers": 1, "head_dim": 64}
BY_LAST = partial(ByLast, vocab_size=SMALL["vocab_size"])

Change = Callable[[Decoder, Path], Decoder]


def unchanged(decoder: Decoder, folder: Path) -> Decoder:  # noqa: ARG001, see `Change`
    return decoder


def with_own_ids(decoder: Decoder, folder: Path) -> Decoder:  # noqa: ARG001
    """Its draft model numbers tokens in reverse, and shares all but one in eight."""
    size = decoder.target.vocab_size
    ids = {size - 1 - token_id: token_id for token_id in range(size) if token_id % 8}
    vocabulary = DraftVocabulary.of(ids, size, device=decoder.target.device)
    return evolve(decoder, drafter=evolve(decoder.drafter, vocabulary=vocabulary))  # type: ignore[misc]


def with_eagle(decoder: Decoder, folder: Path) -> Decoder:
    target: Any = decoder.target
    files = eagle(**HEAD)
    return with_head(decoder, load_head(files.save(folder / "head"), "eagle", target))


def with_eagle3(decoder: Decoder, folder: Path) -> Decoder:
    """Of half of the target's ids."""
    target: Any = decoder.target
    sizes = {"target_size": target.hidden_size, "draft_vocab_size": target.vocab_size // 2}
    files = eagle3(eagle_config={TAPS: [0, 1, 2]}, **sizes, **HEAD)
    return with_head(decoder, load_head(files.save(folder / "head"), "eagle3", target))


def library_decoder(
    folder: Path, dtype: torch.dtype, policy: Policy, backend: str, family: str
) -> Decoder:
    """A target of transformers with experts, and the head that it was published with."""
    families = pytest.importorskip("kit.small_families", reason="needs transformers")
    fields = families.FAMILIES[family].to_dict()
    fields |= {name: SMALL[name] for name in ("vocab_size", "hidden_size")}
    # Any architecture that this project's decoder lacks.
    fields["architectures"] = [family]
    file = folder / f"{family}.json"
    file.write_text(json.dumps(fields | {"num_nextn_predict_layers": 1}), encoding="utf-8")
    target: Any = random_any_model(file, dtype=dtype, device="cuda")
    decoder = evolve(
        decoder_of(folder, dtype, policy, backend), target=target, new_runner=runner_for(target)
    )
    if family == "gpt-oss":
        return with_eagle3(decoder, folder)
    return with_head(decoder, random_head(file, "mtp", target))


@every_fused_backend
@pytest.mark.parametrize("change", [unchanged, with_own_ids, with_eagle, with_eagle3])
@pytest.mark.parametrize("policy", [Strict(), Probabilistic()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_graph_emits_what_its_operations_emit(
    tmp_path: Path, dtype: torch.dtype, policy: Policy, change: Change, backend: str
) -> None:
    assert_as_uncaptured(change(decoder_of(tmp_path, dtype, policy, backend), tmp_path))


@every_fused_backend
@pytest.mark.parametrize("family", ["gpt-oss", "glm4-moe-lite"])
@pytest.mark.parametrize("policy", [Strict(), Probabilistic()])
def test_a_graph_of_a_network_of_transformers_with_a_head(
    tmp_path: Path, policy: Policy, family: str, backend: str
) -> None:
    decoder = library_decoder(tmp_path, torch.bfloat16, policy, backend, family)
    assert decoder.start(requests_of(1, max_tokens=1)).loop.runner.is_captured
    assert_as_uncaptured(decoder)


def assert_as_uncaptured(
    decoder: Decoder, new_masks: Sequence[NewTokenMasks | None] = (None,) * 4
) -> None:
    # As many requests as a graph has rows, so that both multiply matrices of the same shapes.
    asked = zip(requests_of(4, max_tokens=12), new_masks, strict=True)
    requests = [evolve(request, new_masks=masks) for request, masks in asked]
    captured = decoder.generate(requests)
    eager = evolve(decoder, new_runner=EagerRunner).generate(requests)
    assert [r.finish_reason for r in captured] == [FinishReason.LENGTH] * 4
    # Until the first of them ends they are the same batch; after that the shapes differ.
    assert [r.token_ids[:9] for r in captured] == [r.token_ids[:9] for r in eager]


@pytest.mark.parametrize("head", ["eagle", "eagle3", "gpt-oss", "glm4-moe-lite"])
def test_heads_change_no_token_under_a_strict_policy(tmp_path: Path, head: str) -> None:
    if head in ("eagle", "eagle3"):
        change = with_eagle if head == "eagle" else with_eagle3
        decoder = change(decoder_of(tmp_path, torch.float32, Strict(), "triton"), tmp_path)
    else:
        decoder = library_decoder(tmp_path, torch.float32, Strict(), "triton", head)
    requests = requests_of(4, max_tokens=12)
    plain = evolve(decoder, drafter=NoDrafter()).generate(requests)
    assert [r.token_ids for r in decoder.generate(requests)] == [r.token_ids for r in plain]


def test_experts_that_wait_for_the_device_are_not_captured(tmp_path: Path) -> None:
    decoder = library_decoder(tmp_path, torch.float32, Strict(), "triton", "gpt-oss")
    assert not decoder.start(requests_of(1, max_tokens=1)).loop.runner.is_captured


@every_fused_backend
def test_masked_steps_are_graphs_too(tmp_path: Path, backend: str) -> None:
    decoder = decoder_of(tmp_path, torch.bfloat16, Probabilistic(), backend)
    # `ByLast.accept` checks each token of the first two against its mask.
    assert_as_uncaptured(decoder, (BY_LAST, BY_LAST, None, None))


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
    ("repetition_penalty", "change", "new_masks"),
    [
        (1.0, unchanged, None),
        (1.2, unchanged, None),
        (1.0, with_own_ids, None),
        (1.0, with_eagle3, None),
        (1.0, unchanged, BY_LAST),
    ],
    ids=["ahead", "penalties", "own vocabulary", "head", "masks"],
)
def test_a_captured_step_waits_for_its_tokens_and_for_nothing_else(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    repetition_penalty: float,
    change: Change,
    new_masks: NewTokenMasks | None,
) -> None:
    decoder = change(decoder_of(tmp_path, torch.bfloat16, Probabilistic(), backend), tmp_path)
    engine = Engine.of(decoder, Limits(num_slots=4, max_len=128))
    for seed in range(4):
        params = SamplingParams(seed=seed, repetition_penalty=repetition_penalty)
        engine.add_request([seed + 1] * 3, params, max_tokens=100, new_masks=new_masks)
    # By then all is compiled and captured.
    for _ in range(4):
        engine.step()
    with counted_waits(monkeypatch) as waits:
        gained = [len(engine.step()) for _ in range(NUM_WATCHED)]
    assert gained == [4] * NUM_WATCHED
    # Masks are filled when the drafts are known.
    assert len(waits) == NUM_WATCHED * (1 if new_masks is None else 2)


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
    return with_draft(decoder_for(target, sampler_of(backend), policy), draft)


def requests_of(num_reqs: int, max_tokens: int) -> list[GenerationRequest]:
    """Prompts of different lengths, each with its own seed."""
    return [
        ask(*[seed + 1] * (5 * seed + 1), seed=seed, temperature=0.7, max_tokens=max_tokens)
        for seed in range(num_reqs)
    ]
