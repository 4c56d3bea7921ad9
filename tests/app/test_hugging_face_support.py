"""Which calls of transformers' `generate` are supported: fields, refusals, and recipes."""

from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor
from transformers import (
    DynamicCache,
    GenerationConfig,
    LlamaConfig,
    LogitsProcessorList,
    MambaConfig,
    MambaForCausalLM,
    MinPLogitsWarper,
    PreTrainedModel,
    RepetitionPenaltyLogitsProcessor,
    SynthIDTextWatermarkingConfig,
    T5Config,
    T5ForConditionalGeneration,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from acceptor.app.hugging_face import Speculation, generate, support
from acceptor.backends import load_sampler
from acceptor.core import (
    AcceptorError,
    CheckpointError,
    Recipe,
    SampleBatch,
    SamplingTensors,
    TokenCounts,
    UnavailableError,
)
from acceptor.core.sampling_params import LogprobsMode
from kit.small_families import SHAPE, VOCAB_SIZE, random_model

FIELDS = {name for name in vars(GenerationConfig()) if not name.startswith("_")}
IDS = torch.tensor([[0, 0, 5, 9, 4], [8, 2, 30, 41, 6]])
PADDING = (2, 0)


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return random_model(LlamaConfig(**SHAPE | {"num_hidden_layers": 1}))


def test_every_field_is_in_the_table_once() -> None:
    assert support.SERVED | support.WITHOUT_EFFECT | support.REFUSED.keys() == FIELDS
    assert len(support.SERVED) + len(support.WITHOUT_EFFECT) + len(support.REFUSED) == len(FIELDS)


@pytest.mark.parametrize("name", support.REFUSED)
def test_a_field_that_is_not_served_is_refused_by_name(name: str) -> None:
    config = GenerationConfig()
    for neutral in support.REFUSED[name]:
        setattr(config, name, neutral)
        support.check_config(config)
    setattr(config, name, 3)
    with pytest.raises(UnavailableError, match=f"^{name}: expected None.* with acceptor, got 3$"):
        support.check_config(config)


def test_a_field_that_the_table_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acceptor.app.hugging_face.support.SERVED", support.SERVED - {"top_h"})
    with pytest.raises(UnavailableError, match="top_h"):
        support.check_config(GenerationConfig(top_h=0.4))
    support.check_config(GenerationConfig(chat_format="chatml"))


ONES = torch.ones_like(IDS)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"num_beams": 2}, "num_beams"),
        ({"output_hidden_states": True, "return_dict_in_generate": True}, "output_hidden_states"),
        ({"past_key_values": DynamicCache()}, "past_key_values: expected None"),
        (
            {"watermarking_config": SynthIDTextWatermarkingConfig(ngram_len=3, keys=[3, 4, 5])},
            "expected functions of ids and scores, got a SynthID",
        ),
        ({"attention_mask": ONES.tril(2)}, "attention_mask: expected zeros on the left"),
        ({"attention_mask": ONES[:, :4]}, "position_ids: expected the place"),
        ({"position_ids": torch.arange(1, 6).expand(2, 5)}, "position_ids: expected the place"),
        (
            {"inputs": torch.tensor([[5, -3]])},
            r"input_ids: expected a number in \[0, inf\), got -3",
        ),
        ({"max_new_tokens": 500}, r"max_length.*: expected a number in \[1, 128\], got 505"),
        ({"do_sample": True, "temperature": 1e7}, "temperature: expected a number"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_call_that_is_not_served_is_refused(
    model: PreTrainedModel, settings: dict[str, Any], said: str
) -> None:
    settings = {"inputs": IDS, "max_new_tokens": 4, "pad_token_id": 0, **settings}
    with pytest.raises(AcceptorError, match=rf"^.*{said}.*\Z"):
        model.generate(custom_generate=generate, **settings)


def test_prompts_without_padding_may_have_several_continuations(model: PreTrainedModel) -> None:
    settings = {"do_sample": True, "max_new_tokens": 3, "num_return_sequences": 3}
    output = model.generate(IDS + 2, custom_generate=generate, eos_token_id=None, **settings)
    assert output.shape == (6, 8)
    assert len({tuple(row) for row in output.tolist()}) == 6


def test_unfit_settings_are_refused_at_once() -> None:
    with pytest.raises(AcceptorError, match="seed"):
        Speculation(seed=-1)


def test_a_network_that_cannot_be_driven_is_refused(model: PreTrainedModel) -> None:
    def refused(network: PreTrainedModel, said: str, **settings: Any) -> None:
        with pytest.raises(CheckpointError, match=said):
            network.generate(IDS, custom_generate=Speculation(**settings), max_new_tokens=2)

    try:
        refused(model.train(), "LlamaForCausalLM: mode: expected evaluation, got training")
    finally:
        model.eval()
    implementation = model.config._attn_implementation
    try:
        model.config._attn_implementation = "flex_attention"
        refused(model, "attn_implementation: expected sdpa or eager, got flex_attention")
    finally:
        model.config._attn_implementation = implementation
    drafts = (
        (MambaConfig(vocab_size=61, hidden_size=8, num_hidden_layers=1), "layer_types"),
        (T5Config(vocab_size=61, d_model=8, d_ff=8, num_layers=1), "architecture: .* a decoder"),
    )
    for config, said in drafts:
        kind = MambaForCausalLM if isinstance(config, MambaConfig) else T5ForConditionalGeneration
        refused(model, said, draft=kind(config).eval())


def warpers() -> dict[str, Any]:
    return {
        "temperature": TemperatureLogitsWarper(0.7),
        "top_k": TopKLogitsWarper(9),
        "top_p": TopPLogitsWarper(0.8),
        "min_p": MinPLogitsWarper(0.05),
        "typical": TypicalLogitsWarper(0.8),
        "two kept": TopPLogitsWarper(1e-3, min_tokens_to_keep=2),
        "repetition": RepetitionPenaltyLogitsProcessor(
            1.4, prompt_ignore_length=torch.tensor(PADDING)
        ),
        "all repetition": RepetitionPenaltyLogitsProcessor(1.4),
    }


@pytest.mark.parametrize(
    ("names", "num_mapped"),
    [
        (("repetition", "temperature", "top_k", "top_p"), 4),
        (("temperature", "top_k", "top_p", "min_p"), 1),
        (("all repetition", "temperature"), 1),
        (("top_p", "temperature", "top_k"), 2),
        (("temperature", "top_p", "typical"), 0),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_the_law_is_the_librarys(names: tuple[str, ...], num_mapped: int) -> None:
    processors = LogitsProcessorList([warpers()[name] for name in names])
    recipe = support.LogitsRecipe.of(processors, PADDING, do_sample=True)
    assert (len(recipe.mapped), len(recipe.processors)) == (num_mapped, len(names) - num_mapped)
    logits = 3 * torch.randn(2, VOCAB_SIZE, generator=torch.Generator().manual_seed(0))
    expected = processors(IDS, logits.clone()).log_softmax(1)
    torch.testing.assert_close(law(recipe, logits), expected, atol=2e-5, rtol=0)


def law(recipe: support.LogitsRecipe, logits: Tensor) -> Tensor:
    """[2, vocab_size] log probabilities of what the sampler draws."""
    params = evolve(
        recipe.params, seed=0, logprobs=VOCAB_SIZE, logprobs_mode=LogprobsMode.PROCESSED
    )
    counts = TokenCounts.empty(2, VOCAB_SIZE)
    for row, padding in enumerate(PADDING):
        counts.start(row, IDS[row, padding:].tolist())
    changed, positions = recipe.processors(IDS, logits.clone()), torch.tensor([3, 5])
    batch = SampleBatch(logits=changed, positions=positions, token_counts=counts)
    drawn = load_sampler("reference").sample(batch, SamplingTensors.stack([params] * 2))
    assert drawn.logprobs is not None
    return torch.zeros(2, VOCAB_SIZE).scatter(
        1, drawn.logprobs.top_token_ids[:, 0], drawn.logprobs.top[:, 0]
    )


def test_drafts_follow_the_recipe_that_processors_hide() -> None:
    processors = [warpers()[name] for name in ("temperature", "top_k", "typical")]
    hidden = support.LogitsRecipe.of(processors, PADDING, do_sample=True)
    assert hidden.params.temperature == 1
    assert hidden.params.draft == Recipe(temperature=0.7, top_k=9)
    greedy = support.LogitsRecipe.of([warpers()["temperature"]], PADDING, do_sample=False)
    assert greedy.params.temperature == 0
    assert greedy.params.draft is None
