"""From a config to everything that decodes: the only file that names concrete parts.

It refuses parts that do not belong together, above all a draft with another vocabulary.
"""

import filecmp
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from ..adapters.hub import find_directory
from ..adapters.language_model import TransformerModel
from ..adapters.loader import load_model
from ..adapters.tokenizer import TOKENIZER_FILE, Tokenizer
from ..backends import load_sampler
from ..core.errors import CheckpointError, ConfigError
from .bundled import bundled_pair
from .config import DEFAULT_NUM_SPEC_TOKENS, Config, ModelsConfig
from .decoder import Decoder
from .drafter import Drafter, NoDrafter
from .engine.cuda_graphs import new_runner
from .engine.engine import Engine
from .engine.runner import EagerRunner
from .model_drafter import ModelDrafter
from .ngram_drafter import NgramDrafter
from .policies import make_policy


@frozen(eq=False)
class Wired:
    """What runs a config.

    Attributes:
        decoder: decodes token ids.
        tokenizer: the target's.
        directory: the target's.
    """

    decoder: Decoder
    tokenizer: Tokenizer
    directory: Path


def wire_engine(config: Config) -> Engine:
    """Load and connect everything, and allocate the memory that requests will share.

    Raises:
        AcceptorError: a part is unknown, missing or damaged, or does not fit the others.
    """
    return Engine.of(wire(config).decoder, config.engine.limits)


def wire(config: Config) -> Wired:
    """Load and connect everything.

    Raises:
        AcceptorError: a part is unknown, missing or damaged, or does not fit the others.
    """
    directory, draft_directory = _directories(config.models)
    name = _drafter_name(config, has_draft=draft_directory is not None)
    num_spec_tokens = _num_spec_tokens(config, has_drafter=name is not None)
    policy = make_policy(config.policy, num_spec_tokens)
    sampler = load_sampler(config.backend)
    target = _load(directory, config.models, config.models.max_model_len)
    tokenizer = Tokenizer.load(directory)
    tokenizer.check_fits(target.vocab_size)
    drafter: Drafter[Any] = NoDrafter()
    if num_spec_tokens and name == "ngram":
        drafter = NgramDrafter(
            num_spec_tokens=num_spec_tokens,
            max_ngram=config.drafter.max_ngram,
            min_ngram=config.drafter.min_ngram,
        )
    elif num_spec_tokens:
        draft = _draft_model(config, target, directory, draft_directory)
        drafter = ModelDrafter(
            model=draft, sampler=sampler, policy=policy, num_spec_tokens=num_spec_tokens
        )
    decoder = Decoder(
        target=target,
        drafter=drafter,
        sampler=sampler,
        policy=policy,
        eos_token_ids=frozenset(target.config.eos_token_ids + tokenizer.eos_token_ids),
        new_detokenizer=tokenizer.stream,
        encode=tokenizer.encode,
        new_runner=new_runner if config.engine.cuda_graphs else EagerRunner,
    )
    return Wired(decoder, tokenizer, directory)


def _draft_model(
    config: Config, target: TransformerModel, directory: Path, draft_directory: Path | None
) -> TransformerModel:
    if draft_directory is None or config.drafter.name == "early-exit":
        num_layers = config.drafter.num_layers
        return target.first_layers(
            max(target.config.num_layers // 4, 1) if num_layers is None else num_layers
        )
    draft = _load(draft_directory, config.models)
    _check_same_vocabulary((directory, target), (draft_directory, draft))
    return draft


def _directories(models: ModelsConfig) -> tuple[Path, Path | None]:
    if models.target is not None:
        draft = None if models.draft is None else find_directory(models.draft)
        return find_directory(models.target), draft
    if models.draft is not None:
        raise ConfigError(f"draft: expected a target beside it, got only {models.draft}")
    return bundled_pair()


def _drafter_name(config: Config, *, has_draft: bool) -> str | None:
    name = config.drafter.name
    if name == "model" and not has_draft:
        raise ConfigError("drafter: expected ngram or early-exit without a draft model, got model")
    return "model" if name is None and has_draft else name


def _num_spec_tokens(config: Config, *, has_drafter: bool) -> int:
    wanted = config.decoding.num_spec_tokens
    if wanted and not has_drafter:
        raise ConfigError(f"num_spec_tokens: expected 0 without a draft model, got {wanted}")
    if wanted is None:
        return DEFAULT_NUM_SPEC_TOKENS if has_drafter else 0
    return wanted


def _load(
    directory: Path, models: ModelsConfig, max_model_len: int | None = None
) -> TransformerModel:
    dtype = None if models.dtype is None else getattr(torch, models.dtype)
    return load_model(directory, dtype=dtype, device=models.device, max_model_len=max_model_len)


def _check_same_vocabulary(
    target: tuple[Path, TransformerModel], draft: tuple[Path, TransformerModel]
) -> None:
    (target_directory, target_model), (draft_directory, draft_model) = target, draft
    if draft_model.vocab_size != target_model.vocab_size:
        raise CheckpointError(
            f"{draft_directory}: expected a vocabulary of {target_model.vocab_size} tokens, as "
            f"{target_directory} has, got {draft_model.vocab_size}"
        )
    theirs = draft_directory / TOKENIZER_FILE
    if not theirs.exists() or filecmp.cmp(target_directory / TOKENIZER_FILE, theirs, shallow=False):
        return
    wanted, got = (
        Tokenizer.load(d).backend.get_vocab() for d in (target_directory, draft_directory)
    )
    different = sorted({token for token, _ in wanted.items() ^ got.items()})
    if different:
        raise CheckpointError(
            f"{theirs}: expected the token ids of {target_directory}, got "
            f"{got.get(different[0])} for {different[0]!r} instead of {wanted.get(different[0])}"
        )
