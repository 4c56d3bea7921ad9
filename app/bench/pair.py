"""Loads a benchmark's models, or makes them with random weights, once for all of its runs."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from attrs import evolve, frozen

from ...adapters.draft_heads.loader import HEADS, random_head
from ...adapters.error_text import unfit
from ...adapters.json_object import read_json
from ...adapters.loader import random_any_model
from ...adapters.model_config import ModelConfig
from ...adapters.random_weights import random_model
from ...backends import load_sampler
from ...core import ConfigError, LanguageModel, Probabilistic
from ...core.policies.parameters import derived
from ..config import Config, DrafterConfig, ModelsConfig
from ..drafter import Drafter, NoDrafter
from ..engine.parts import Parts, num_bytes
from ..engine.runner import EagerRunner
from ..head_drafter import HeadDrafter
from ..policies import PolicySettings, make_policy
from ..request_state import Detokenizer
from ..threads import use_threads
from ..wiring import load_weights, new_drafter, runner_for, sampler_on, wire, with_settings
from .requests import Reader
from .sweep import Setting

ADDED_BEHIND_EXIT = 0.1
"""About the share of layers after an early exit in what all layers of a random target add."""
OWN_DRAFTS: Mapping[str | None, str] = {"ngram": "n-gram", "mtp": "a layer of the target"}

Loader = Callable[..., Any]
"""Loads or makes a model. A cached one lets pairs share it."""


class NoText(Detokenizer):
    """Replaces a missing tokenizer: tokens have no text."""


@frozen(eq=False, kw_only=True)
class Pair:
    """A target, its drafter, and their tokenizer.

    Attributes:
        parts: those of some setting; without a tokenizer they encode no text.
        names: the names of both models for the record, without paths.
    """

    parts: Parts
    names: dict[str, str]
    target: LanguageModel[Any] = derived(lambda self: self.parts.target)

    @property
    def reader(self) -> Reader:
        """The limits that prompts must fit."""
        return Reader(self.parts.encode, self.target.vocab_size, self.target.max_model_len)

    def parts_of(self, setting: Setting, policy_settings: PolicySettings) -> Parts:
        """The parts for a setting; raises `AcceptorError` if its backend or policy does not fit."""
        policy = make_policy(policy_settings, setting.num_spec_tokens)
        sampler = sampler_on(self.target.device, setting.backend)
        return evolve(
            self.parts,
            drafter=with_settings(self.parts.drafter, sampler, policy, setting.num_spec_tokens),
            sampler=sampler,
            policy=policy,
            # The reference reads its input on the host, which a graph cannot.
            new_runner=EagerRunner if setting.backend == "reference" else self.parts.new_runner,
        )


def load_pair(models: ModelsConfig, drafter: DrafterConfig, load: Loader = load_weights) -> Pair:
    """Load the models that a config names, and the drafter; see `wire`.

    Raises:
        AcceptorError: one of them is missing, damaged or does not fit the other.
    """
    config = Config(models=models, drafter=drafter)
    bundled = "bundled EAGLE-3 head" if drafter.name == "eagle3" else "bundled draft"
    target = "bundled target" if models.target is None else Path(models.target).name
    draft = bundled if models.draft is None else Path(models.draft).name
    return _pair(wire(config, load).decoder, config, target, draft)


def _pair(parts: Parts, config: Config, target: str, draft: str) -> Pair:
    """The pair under these names, unless the drafter's kind says more."""
    use_threads(config.models.num_threads, num_bytes(parts.target))
    made: Any = parts.drafter
    names = {"target": target}
    if config.drafter.name == "early-exit":
        draft = f"early exit after layer {made.model.config.num_layers}"
    if not isinstance(made, NoDrafter):
        names["draft"] = OWN_DRAFTS.get(config.drafter.name, draft)
    return Pair(parts=parts, names=names)


def random_pair(
    target_file: Path,
    draft_file: Path | None,
    models: ModelsConfig,
    drafter: DrafterConfig,
    layer_decay: float | None = None,
    num_layers: int | None = None,
    make: Loader = random_any_model,
) -> Pair:
    """Make models with random weights, of the shapes that config files describe.

    Args:
        target_file: the target's config.json.
        draft_file: that of the draft model or head.
        models: their device and precision.
        drafter: what drafts.
        layer_decay: the target's, see `RandomTensors`; None for 1, or, with an early exit, for one
            that leaves `ADDED_BEHIND_EXIT` to the layers after it.
        num_layers: a number of layers of the target below its file's.
        make: makes the target, see `random_any_model`.

    Raises:
        ConfigError: a draft's shape is missing, or not allowed.
        CheckpointError: a file is invalid, or the vocabularies differ.
        InvalidInputError: the context, the early exit or the decay is out of its range.
    """
    _check_shapes(drafter.name, draft_file)
    if layer_decay is None:
        layer_decay = _usual_decay(target_file, drafter)
    dtype, context = models.dtype and getattr(torch, models.dtype), models.max_model_len
    how: dict[str, Any] = {"dtype": dtype, "device": models.device, "forward": models.forward}
    target = make(
        target_file, max_model_len=context, num_layers=num_layers, layer_decay=layer_decay, **how
    )
    name = f"{target_file.stem}, random weights"
    if num_layers is not None:
        of_all = read_json(target_file).integer("num_hidden_layers", 1)
        name += f", {num_layers} of {of_all} layers"
    if layer_decay != 1:
        name += f" with decay {layer_decay:.3g}"
    parts = Parts(
        target=target,
        drafter=_random_drafter(drafter, target, target_file, draft_file, how),
        sampler=load_sampler("reference"),
        policy=Probabilistic(),
        eos_token_ids=frozenset(),
        new_detokenizer=NoText,
        new_runner=runner_for(target),
    )
    draft = f"{(draft_file or target_file).stem}, random weights"
    return _pair(parts, Config(models=models, drafter=drafter), name, draft)


def _random_drafter(
    drafter: DrafterConfig, target: Any, target_file: Path, file: Path | None, how: dict[str, Any]
) -> Drafter[Any]:
    if drafter.name in HEADS:
        head = random_head(file or target_file, drafter.name, target)
        return HeadDrafter(head=head, target_vocab_size=target.vocab_size, first_drafts=None)
    draft = None if file is None else random_model(file, seed=1, **how)
    if draft is not None and draft.vocab_size != target.vocab_size:
        expected = f"{target.vocab_size}, as the target has"
        raise unfit(f"{file}: vocab_size", expected, draft.vocab_size)
    return new_drafter(drafter, target, draft)


def _check_shapes(drafter: str | None, draft_file: Path | None) -> None:
    if drafter in ("model", "eagle", "eagle3") and draft_file is None:
        raise ConfigError(f"drafter: expected --draft-random-weights beside {drafter}, got none")
    if drafter in ("ngram", "early-exit", "mtp") and draft_file is not None:
        raise unfit("--draft-random-weights", f"none beside {drafter}", draft_file, ConfigError)


def _usual_decay(target_file: Path, drafter: DrafterConfig) -> float:
    if drafter.name != "early-exit":
        return 1.0
    exit_layer = drafter.exit_layer(ModelConfig.read(target_file).num_layers)
    # The decay at which the rest of the geometric series has this share.
    return float(ADDED_BEHIND_EXIT ** (1 / exit_layer))
