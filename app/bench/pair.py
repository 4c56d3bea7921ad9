"""The models of a benchmark, loaded once for all of its runs.

They are those of `acceptor.app.wiring`, or have nothing of a real model but its shape. This module
refuses to measure.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from ...adapters.language_model import TransformerModel
from ...adapters.random_weights import random_model
from ...backends import load_sampler
from ...core.errors import CheckpointError, ConfigError
from ...core.ports import LanguageModel
from ..config import Config, ModelsConfig
from ..drafter import Drafter, NoDrafter
from ..engine.parts import Parts
from ..model_drafter import ModelDrafter
from ..policies import PolicySettings, make_policy
from ..request_state import Detokenizer
from ..threads import use_threads
from ..wiring import wire
from .requests import Reader
from .sweep import Setting

_SEEDS = {"target": 0, "draft": 1}
_SMALL_BYTES = 64 * 2**20
"""An LM head below this is worth one thread, see `acceptor.app.threads`."""


class NoText:
    """Stands for a tokenizer where there is none: tokens say nothing."""

    def push(self, token_ids: Iterable[int]) -> str:  # noqa: ARG002, as its port
        """Nothing."""
        return ""

    def finish(self) -> str:
        """Nothing."""
        return ""


@frozen(eq=False, kw_only=True)
class Pair:
    """A target, perhaps a draft, and what reads and writes their tokens.

    Attributes:
        target: whose law the output follows.
        draft: proposes; None for plain decoding only.
        encode: from a text to token ids; None without a tokenizer.
        new_detokenizer: makes what turns one output's tokens into text.
        eos_token_ids: tokens that end an output.
        names: of both models, for the record; no paths.
    """

    target: LanguageModel[Any]
    draft: LanguageModel[Any] | None
    encode: Callable[[str], Sequence[int]] | None
    new_detokenizer: Callable[[], Detokenizer]
    eos_token_ids: frozenset[int]
    names: dict[str, str]

    @property
    def reader(self) -> Reader:
        """What prompts must fit."""
        return Reader(
            encode=self.encode,
            vocab_size=self.target.vocab_size,
            max_model_len=self.target.max_model_len,
        )

    def parts(self, setting: Setting, policy_settings: PolicySettings) -> Parts:
        """What decodes under a setting.

        Raises:
            ConfigError: drafts are wanted, and there is no draft.
            AcceptorError: the backend or the policy is unfit.
        """
        num_spec_tokens = setting.num_spec_tokens
        policy = make_policy(policy_settings, num_spec_tokens)
        sampler = load_sampler(setting.backend)
        drafter: Drafter[Any] = NoDrafter()
        if num_spec_tokens:
            if self.draft is None:
                raise ConfigError(
                    f"num_spec_tokens: expected 0 without a draft model, got {num_spec_tokens}"
                )
            drafter = ModelDrafter(
                model=self.draft, sampler=sampler, policy=policy, num_spec_tokens=num_spec_tokens
            )
        return Parts(
            target=self.target,
            drafter=drafter,
            sampler=sampler,
            policy=policy,
            eos_token_ids=self.eos_token_ids,
            new_detokenizer=self.new_detokenizer,
        )


def load_pair(models: ModelsConfig) -> Pair:
    """The models that a config names.

    Raises:
        AcceptorError: one of them is missing, damaged or does not fit the other.
    """
    wired = wire(Config(models=models))
    use_threads(models.num_threads, wired.directory)
    drafter = wired.decoder.drafter
    draft = drafter.model if isinstance(drafter, ModelDrafter) else None
    names = {"target": _name(models.target, "bundled target")}
    if draft is not None:
        names["draft"] = _name(models.draft, "bundled draft")
    return Pair(
        target=wired.decoder.target,
        draft=draft,
        encode=wired.tokenizer.encode,
        new_detokenizer=wired.tokenizer.stream,
        eos_token_ids=wired.decoder.eos_token_ids,
        names=names,
    )


def _name(given: str | None, bundled: str) -> str:
    return bundled if given is None else Path(given).name


def random_pair(target_file: Path, draft_file: Path | None, models: ModelsConfig) -> Pair:
    """Models of the shapes that config files tell, with random weights.

    Raises:
        CheckpointError: a file is unfit, or both have other vocabularies.
        InvalidInputError: the context is unfit.
    """
    target = _random("target", target_file, models, models.max_model_len)
    names = {"target": f"{target_file.stem}, random weights"}
    draft = None
    if draft_file is not None:
        draft = _random("draft", draft_file, models, None)
        names["draft"] = f"{draft_file.stem}, random weights"
        if draft.vocab_size != target.vocab_size:
            raise CheckpointError(
                f"{draft_file}: vocab_size: expected {target.vocab_size}, as the target has, got "
                f"{draft.vocab_size}"
            )
    _use_threads(models, target)
    return Pair(
        target=target,
        draft=draft,
        encode=None,
        new_detokenizer=NoText,
        eos_token_ids=frozenset(),
        names=names,
    )


def _random(
    role: str, file: Path, models: ModelsConfig, max_model_len: int | None
) -> TransformerModel:
    return random_model(
        file,
        dtype=None if models.dtype is None else getattr(torch, models.dtype),
        device=models.device,
        max_model_len=max_model_len,
        seed=_SEEDS[role],
    )


def _use_threads(models: ModelsConfig, target: TransformerModel) -> None:
    if models.num_threads is not None:
        torch.set_num_threads(models.num_threads)
    elif target.decoder.lm_head.weight.nbytes < _SMALL_BYTES:
        torch.set_num_threads(1)
