"""The engine on a CUDA device: a graph does what its operations do one by one."""

import json
from pathlib import Path

import pytest
import torch
from attrs import evolve

from acceptor.adapters.language_model import TransformerModel
from acceptor.adapters.random_weights import random_model
from acceptor.app.decoder import Decoder
from acceptor.app.engine.runner import EagerRunner
from acceptor.app.engine.speed.shapes import DRAFT, TARGET
from acceptor.app.model_drafter import ModelDrafter
from acceptor.app.request import FinishReason, GenerationRequest
from acceptor.backends import load_sampler
from acceptor.core import Policy, Probabilistic, SamplingParams, Strict
from kit.toy_pair import Letters

pytestmark = pytest.mark.gpu

SMALL = {
    "vocab_size": 1024,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def decoder_of(tmp_path: Path, dtype: torch.dtype, policy: Policy) -> Decoder:
    models: list[TransformerModel] = []
    for name, shape in (("target", TARGET), ("draft", DRAFT)):
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(shape | SMALL), encoding="utf-8")
        models.append(random_model(file, dtype=dtype, device="cuda"))
    target, draft = models
    sampler = load_sampler("triton")
    return Decoder(
        target=target,
        drafter=ModelDrafter(model=draft, sampler=sampler, policy=policy, num_spec_tokens=3),
        sampler=sampler,
        policy=policy,
        eos_token_ids=frozenset(),
        new_detokenizer=Letters,
    )


@pytest.mark.parametrize("policy", [Strict(), Probabilistic()], ids=lambda policy: policy.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_graph_emits_what_its_operations_emit(
    tmp_path: Path, dtype: torch.dtype, policy: Policy
) -> None:
    decoder = decoder_of(tmp_path, dtype, policy)
    # As many as a graph has rows, so that both multiply matrices of the same shapes.
    requests = [
        GenerationRequest(
            prompt_token_ids=[seed + 1] * (5 * seed + 1),
            params=SamplingParams(seed=seed, temperature=0.7),
            max_tokens=12,
        )
        for seed in range(4)
    ]
    captured = decoder.generate(requests)
    eager = evolve(decoder, new_runner=EagerRunner).generate(requests)
    assert [r.finish_reason for r in captured] == [FinishReason.LENGTH] * 4
    # Until the first of them ends they are the same batch, and behind it the shapes differ.
    assert [r.token_ids[:9] for r in captured] == [r.token_ids[:9] for r in eager]
