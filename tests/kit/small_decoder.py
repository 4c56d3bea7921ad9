"""Decoders of small random models that take every way a large one takes on a GPU."""

import json
from pathlib import Path

import torch

from acceptor.adapters.language_model import TransformerModel
from acceptor.adapters.random_weights import random_model
from acceptor.app.decoder import Decoder
from acceptor.app.model_drafter import ModelDrafter
from acceptor.app.request import GenerationRequest
from acceptor.core import Policy, SamplingParams
from kit.llama_shapes import DRAFT, TARGET
from kit.on_gpu import sampler_of
from kit.toy_pair import Letters

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
