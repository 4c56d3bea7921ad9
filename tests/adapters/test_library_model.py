"""Networks of the transformers library as targets: slots, ragged batches, rollback and taps."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import frozen
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    BloomConfig,
    FalconConfig,
    GPT2Config,
    GptOssConfig,
    LlamaConfig,
    MambaConfig,
    PretrainedConfig,
    RwkvConfig,
)

from acceptor.adapters.library_model.loader import adapt_network
from acceptor.adapters.library_model.model import LibraryModel
from acceptor.adapters.loader import load_any_model
from acceptor.app.engine.parts import num_bytes
from acceptor.core import CheckpointError, InvalidInputError, UnavailableError
from kit.checkpoints import edit_json
from kit.small_families import FAMILIES, SHAPE, VOCAB_SIZE

SMALL: dict[str, Any] = {"vocab_size": 61, "hidden_size": 16, "eos_token_id": 1}


@frozen
class Family:
    model: LibraryModel
    reference: Any


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, save: Callable[..., Any]) -> Family:
    saved = save(FAMILIES[request.param])
    return Family(load(saved.directory), saved.reference)


def load(directory: Path, **settings: Any) -> LibraryModel:
    model = load_any_model(directory, adapter="transformers", **settings)
    assert isinstance(model, LibraryModel)
    return model


def test_taps_in_chunks_are_what_the_library_shows(family: Family) -> None:
    token_ids = torch.randint(VOCAB_SIZE, (2, 24), generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        said = family.reference(token_ids, output_hidden_states=True)
    model, cache, slots = family.model, family.model.new_cache(3, 24), torch.tensor([2, 0])
    parts = [
        model.forward(token_ids[:, :16], places(0, 16), cache, slots, taps=(0, 2, 4)),
        # Rejected, and overwritten.
        model.forward(token_ids[:, :8] * 0, places(16, 24), cache, slots),
        model.forward(token_ids[:, 16:], places(16, 24), cache, slots, taps=(0, 2, 4)),
    ]
    first, middle, last = (
        torch.cat((one, other), 1)
        for one, other in zip(parts[0].hidden, parts[2].hidden, strict=True)
    )
    logits = torch.cat((parts[0].logits, parts[2].logits), 1)
    norm = model.network.base_model.norm
    for got, expected in (
        (logits, said.logits),
        (first, said.hidden_states[0]),
        (middle, said.hidden_states[2]),
        (norm(last), said.hidden_states[4]),
    ):
        torch.testing.assert_close(got, expected, atol=2e-5, rtol=0)


def places(first: int, last: int) -> Tensor:
    return torch.arange(first, last).expand(2, -1).contiguous()


@pytest.fixture(scope="module")
def llama(save: Callable[..., Any]) -> Path:
    directory: Path = save(LlamaConfig(**SHAPE)).directory
    return directory


def test_auto_takes_own_decoders_of_known_families(llama: Path, save: Callable[..., Any]) -> None:
    assert load_any_model(llama).forward_name == "torch"
    assert load(llama).forward_name == "transformers"
    assert load_any_model(save(FAMILIES["gpt-oss"]).directory).forward_name == "transformers"


def test_slots_are_forgotten(llama: Path) -> None:
    model = load(llama, max_model_len=16)
    cache = model.new_cache(2, 16)
    for layer in cache.layers:
        layer.fill_(torch.nan)
    model.clear(cache, [1])
    scores = model.forward(torch.tensor([[3]]), torch.tensor([[2]]), cache, torch.tensor([1]))
    assert scores.logits.isfinite().all()
    assert model.eos_token_ids == (1,)


def test_a_memory_plan_counts_all_that_a_network_holds_and_remembers(llama: Path) -> None:
    model = load(llama, max_model_len=16)
    network, memory = model.network, model.new_cache(2, 16)
    held = {one.data_ptr(): one.nbytes for one in (*network.parameters(), *network.buffers())}
    assert num_bytes(network) == sum(held.values())
    remembered = [layer.nbytes for layer in memory.layers]
    assert num_bytes(memory) == sum(remembered) + memory.slot_ids.nbytes


def test_it_refuses_what_it_cannot_serve(llama: Path, save: Callable[..., Any]) -> None:
    with pytest.raises(InvalidInputError, match="adapter: expected one of auto, own, transformers"):
        load_any_model(llama, adapter="jax")
    with pytest.raises(UnavailableError, match="forward triton: expected the adapter own"):
        load(llama, forward="triton")
    with pytest.raises(InvalidInputError, match="max_model_len"):
        load(llama, max_model_len=129)
    with pytest.raises(CheckpointError, match="layer_types: expected full_attention or sliding"):
        load(save(MambaConfig(**SMALL, num_hidden_layers=1, state_size=4)).directory)
    # Its memory is a state, which takes no mask and cannot be rolled back.
    with pytest.raises(
        CheckpointError, match="expected layers that keep keys and values, got none"
    ):
        load(save(RwkvConfig(**SMALL, num_hidden_layers=2)).directory)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_hidden_layers": 5}, "expected a tensor that fits, got missing ones"),
        ({"intermediate_size": 44}, "down_proj.weight: expected a tensor that fits, got mismatch"),
        ({"quantization_config": {"quant_method": "gptq"}}, "expected none or mxfp4, got gptq"),
        ({"model_type": "unheard"}, "expected a causal language model that transformers loads"),
        ({"model_type": "odd", "auto_map": {"AutoConfig": "odd.Config"}}, "contains custom code"),
    ],
)
def test_a_damaged_checkpoint(
    checkpoint: Path, changes: dict[str, Any], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    edit_json(checkpoint / "config.json", **changes)
    with pytest.raises(CheckpointError, match=rf"^.*{said}.*\Z"):
        load(checkpoint)
    # Neither a report, nor a bar, nor a question.
    assert capfd.readouterr() == ("", "")


def test_a_network_with_its_norm_elsewhere_gives_no_last_tap(save: Callable[..., Any]) -> None:
    config = GPT2Config(**SMALL, n_layer=1, n_head=2, n_positions=32)
    model = load(save(config).directory)
    place, cache = torch.tensor([[0]]), model.new_cache(1, 8)
    assert model.forward(place, place, cache, taps=(0,)).hidden[0].shape == (1, 1, 16)
    with pytest.raises(UnavailableError, match="final norm"):
        model.forward(place, place, cache, taps=(1,))


@pytest.mark.parametrize(
    "config",
    [
        BloomConfig(**SMALL, n_layer=1, n_head=2),
        FalconConfig(**SMALL, num_hidden_layers=1, num_attention_heads=2, alibi=True),
    ],
)
def test_a_network_that_makes_its_own_masks_is_refused_by_name(
    save: Callable[..., Any], config: PretrainedConfig
) -> None:
    saved = save(config)
    with pytest.raises(
        CheckpointError, match=r"^(Bloom|Falcon)ForCausalLM: expected a network that"
    ):
        load(saved.directory)
    with pytest.raises(CheckpointError, match="that takes a mask of what each token sees, got "):
        adapt_network(saved.reference)


CODES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def test_experts_in_mxfp4_are_what_their_codes_say(save: Callable[..., Any]) -> None:
    config = FAMILIES["gpt-oss"].to_dict() | {"hidden_size": 64, "intermediate_size": 64}
    saved = save(GptOssConfig(**config))
    file, generator = saved.directory / "model.safetensors", torch.Generator().manual_seed(2)
    tensors, experts = load_file(file), {}
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        num_experts, num_inputs, num_outputs = tensors.pop(name).shape
        # In blocks of 32 inputs: two codes to a byte, the first in its lower half, and one scale.
        shape = (num_experts, num_outputs, num_inputs // 32)
        codes = torch.randint(16, (*shape, 32), generator=generator)
        scales = torch.randint(124, 128, shape, generator=generator)
        tensors[name + "_blocks"] = (codes[..., ::2] + 16 * codes[..., 1::2]).to(torch.uint8)
        tensors[name + "_scales"] = scales.to(torch.uint8)
        values = CODES[codes % 8] * (1 - 2 * (codes // 8)) * 2.0 ** (scales - 127)[..., None]
        experts[name] = values.flatten(2).transpose(1, 2)
    save_file(tensors, file, metadata={"format": "pt"})
    edit_json(
        saved.directory / "config.json",
        quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
    )
    model = load(saved.directory)
    state = model.network.state_dict()
    for name, values in experts.items():
        assert torch.equal(state[name], values), name
    place = torch.tensor([[0]])
    assert model.forward(place, place, model.new_cache(1, 8)).logits.isfinite().all()
