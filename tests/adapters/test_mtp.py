"""GLM-4.7-Flash's layer for multi-token prediction, against the library's without a cache."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve, frozen
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Glm4MoeLiteForCausalLM
from transformers.generation.candidate_generator import MTPCandidateGenerator

from acceptor.adapters.draft_heads.head_config import MtpSwitches
from acceptor.adapters.draft_heads.loader import load_head
from acceptor.adapters.loader import load_any_model
from acceptor.app.decode import DecodeStep
from acceptor.app.engine import cuda_graphs
from acceptor.app.engine.cuda_graphs import GraphRunner
from acceptor.app.engine.runner import Runner
from acceptor.backends import load_sampler
from acceptor.core import CheckpointError, Probabilistic, UnavailableError
from kit.checkpoints import edit_json, edit_tensors
from kit.head_decoding import PROMPTS, Noting, decode, decoder_of, distance
from kit.small_families import FAMILIES
from kit.toy_pair import record
from kit.toy_requests import ask

NUM_LAYERS, SIZE = 3, 32
PREFIX = f"model.layers.{NUM_LAYERS}."


@frozen
class Glm:
    """A target of three layers, and a model whose fourth is the layer that drafts."""

    directory: Path
    deeper: Any
    extra: Mapping[str, Tensor]

    @property
    def body(self) -> Any:
        """The deeper model's body."""
        return self.deeper.model

    def hidden(self, text: Sequence[int]) -> Tensor:
        """The input of the target's LM head, [num_tokens, hidden_size]."""
        with torch.inference_mode():
            states = self.deeper(torch.tensor([text]), output_hidden_states=True).hidden_states
            normalised: Tensor = self.body.norm(states[NUM_LAYERS][0])
        return normalised

    def norm(self, name: str, hidden: Tensor) -> Tensor:
        scale: Tensor = (hidden.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        return hidden * scale * self.extra[name + ".weight"]

    @torch.inference_mode()
    def draft_logits(
        self, hidden: Tensor, known: Sequence[int], drafts: Sequence[int], switches: MtpSwitches
    ) -> Tensor:
        """Logits of every draft token, given those before it; all rows are computed anew."""
        features, token_ids, logits = hidden[: len(known) - 1], list(known[1:]), []
        for token_id in drafts:
            latest = torch.zeros(1, SIZE)
            if token_ids:
                latest = self._rows(features, token_ids, switches)[-1:]
            handed_on = self.norm("shared_head.norm", latest)
            logits.append(self.deeper.lm_head(handed_on))
            features = torch.cat((features, handed_on if switches.normalise_features else latest))
            token_ids.append(token_id)
        return torch.cat(logits)

    def _rows(self, features: Tensor, token_ids: Sequence[int], switches: MtpSwitches) -> Tensor:
        embedded = self.body.embed_tokens.weight[list(token_ids)].clone()
        if switches.zero_first_embedding:
            embedded[0] = 0
        both = torch.cat((self.norm("enorm", embedded), self.norm("hnorm", features)), -1)
        merged = (both @ self.extra["eh_proj.weight"].T)[None]
        num_rows = len(token_ids)
        mask = torch.full((1, 1, num_rows, num_rows), -torch.inf).triu(1)
        places = torch.arange(num_rows)[None]
        turned = self.body.rotary_emb(merged, places)
        rows: Tensor = self.body.layers[NUM_LAYERS](
            merged, attention_mask=mask, position_ids=places, position_embeddings=turned
        )
        return rows[0]


@pytest.fixture(scope="module")
def glm(save: Callable[..., Any]) -> Glm:
    config = FAMILIES["glm4-moe-lite"].to_dict()
    config = type(FAMILIES["glm4-moe-lite"])(**config | {"rms_norm_eps": 1e-5})
    saved = save(config)
    generator = torch.Generator().manual_seed(4)
    extra = {
        f"{name}.weight": 1 + 0.3 * torch.randn(SIZE, generator=generator)
        for name in ("enorm", "hnorm", "shared_head.norm")
    }
    extra["eh_proj.weight"] = torch.randn(SIZE, 2 * SIZE, generator=generator) / 8
    layer = {f"{PREFIX}{name}": one for name, one in extra.items()}
    layer[f"{PREFIX}embed_tokens.weight"] = torch.zeros(61, SIZE)
    edit_tensors(saved.directory, lambda tensors: tensors.update(layer))
    numbers = {"num_hidden_layers": NUM_LAYERS, "num_nextn_predict_layers": 1}
    types = config.mlp_layer_types[:NUM_LAYERS]
    edit_json(saved.directory / "config.json", mlp_layer_types=types, **numbers)
    return Glm(saved.directory, saved.reference, extra)


@pytest.mark.parametrize(
    ("num_spec_tokens", "switches"),
    [
        (1, MtpSwitches()),
        (3, MtpSwitches()),
        (3, MtpSwitches(normalise_features=False)),
        (2, MtpSwitches(zero_first_embedding=True)),
    ],
)
def test_logits_equal_the_library_s(glm: Glm, num_spec_tokens: int, switches: MtpSwitches) -> None:
    target: Any = load_any_model(glm.directory)
    head = load_head(glm.directory, "mtp", target, switches)
    drafts, texts = decode(target, head, num_spec_tokens)
    hidden = [glm.hidden(text) for text in texts]

    def distance_as(read_as: MtpSwitches) -> float:
        return distance(partial(glm.draft_logits, switches=read_as), drafts, texts, hidden)

    assert distance_as(switches) <= 1e-5
    if num_spec_tokens > 1:
        wrong = not switches.normalise_features
        assert distance_as(evolve(switches, normalise_features=wrong)) > 1e-2
    wrong = not switches.zero_first_embedding
    assert distance_as(evolve(switches, zero_first_embedding=wrong)) > 1e-3


def test_graphs_for_powers_of_two_draft_the_same(glm: Glm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graphs, "_LEAST_BOUND", 4)
    target: Any = load_any_model(glm.directory)
    head, runners = load_head(glm.directory, "mtp", target), list[GraphRunner]()

    def runner(step: DecodeStep) -> Runner:
        runners.append(GraphRunner(step, record, is_bounded=True))
        return runners[-1]

    _, eager = decode(target, head, 3)
    assert decode(target, head, 3, runner)[1] == eager
    lengths = {captured.frontier.max_length for captured in runners[0].captured.values()}
    assert lengths == {16, 32}


def test_a_missing_layer_is_refused(glm: Glm, tmp_path: Path, save: Callable[..., Any]) -> None:
    target: Any = load_any_model(glm.directory)
    tensors = load_file(glm.directory / "model.safetensors")
    shutil.copy(glm.directory / "config.json", tmp_path)
    for name, shape, said in (
        ("enorm.weight", None, "enorm.weight: expected shape"),
        ("mlp.experts.1.up_proj.weight", None, "up_proj.weight: expected shape"),
        ("mlp.experts.1.up_proj.weight", (2, 2), r"expected shape \[16, 32\], got \[2, 2\]"),
        ("more.weight", (2, 2), "more.weight: expected no such tensor"),
    ):
        changed = {key: one for key, one in tensors.items() if key != PREFIX + name}
        changed |= {} if shape is None else {PREFIX + name: torch.ones(shape)}
        save_file(changed, tmp_path / "model.safetensors")
        with pytest.raises(CheckpointError, match=said):
            load_head(tmp_path, "mtp", target)
    edit_json(tmp_path / "config.json", num_nextn_predict_layers=0)
    with pytest.raises(CheckpointError, match="num_nextn_predict_layers: expected"):
        load_head(tmp_path, "mtp", target)
    llama = save(FAMILIES["llama"]).directory
    with pytest.raises(CheckpointError, match="model_type: expected glm4_moe_lite"):
        load_head(llama, "mtp", load_any_model(llama, adapter="transformers"))
    with pytest.raises(UnavailableError, match="expected the model adapter transformers"):
        load_head(llama, "mtp", load_any_model(llama))


def test_first_drafts_are_those_of_the_librarys_own_generation(
    glm: Glm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It drafts one token a step with this layer; both emit the target's greedy text."""
    # The library expects the layer at the published model's index.
    layer = [rf"model\.layers\.{NUM_LAYERS}.*"]
    monkeypatch.setattr(Glm4MoeLiteForCausalLM, "_keys_to_ignore_on_load_unexpected", layer)
    reference = Glm4MoeLiteForCausalLM.from_pretrained(glm.directory, dtype=torch.float32)
    reference.config.num_mtp_layers, reference.config.mtp_mlp_layer_types = 1, ["sparse"]
    theirs: dict[int, Tensor] = {}
    propose = MTPCandidateGenerator.get_candidates

    def noting(generator: Any, input_ids: Tensor, *args: Any, **kwargs: Any) -> Any:
        candidates, logits = propose(generator, input_ids, *args, **kwargs)
        if logits is not None:
            theirs[input_ids.shape[1]] = logits[0, 0]
        return candidates, logits

    monkeypatch.setattr(MTPCandidateGenerator, "get_candidates", noting)
    prompt = PROMPTS[1]
    text = reference.generate(
        torch.tensor([prompt]), use_mtp=True, do_sample=False, max_new_tokens=20, eos_token_id=None
    )[0].tolist()
    target: Any = load_any_model(glm.directory)
    drafting = decoder_of(target, load_head(glm.directory, "mtp", target), Probabilistic(), 1)
    ours = Noting(load_sampler("reference"))
    request = ask(*prompt, temperature=0, max_tokens=20)
    (result,) = evolve(drafting, sampler=ours).generate([request])
    assert [*prompt, *result.token_ids] == text
    both = [draft for draft in ours.drafts if draft.length in theirs]
    assert len(both) > 10
    for draft in both:
        torch.testing.assert_close(draft.logits[0], theirs[draft.length], atol=1e-5, rtol=0)
