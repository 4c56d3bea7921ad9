"""Turns a config into everything that decodes: the only file that names concrete parts."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from attrs import evolve, fields_dict, frozen

from ..adapters.checkpoint import Checkpoint, find_directory
from ..adapters.draft_heads.loader import HEADS, find_head, load_head
from ..adapters.error_text import unfit
from ..adapters.grammar import Grammars
from ..adapters.language_model import TransformerModel
from ..adapters.loader import AnyModel, load_any_model
from ..adapters.tokenizer import TOKENIZER_FILE, Tokenizer
from ..adapters.weights import DRAFT_TO_TARGET, read_draft_ids
from ..backends import load_sampler
from ..core import LanguageModel, Policy, SampleBatch, Sampler, SamplingTensors
from ..core.checks import check_device
from ..core.errors import ConfigError, InvalidInputError, UnavailableError
from .bundled import bundled_head, bundled_pair
from .config import DEFAULT_NUM_SPEC_TOKENS, Config, DrafterConfig, ModelsConfig
from .decode import DecodeStep
from .decoder import Decoder
from .drafter import Drafter, NgramDrafter, NoDrafter
from .engine.capture import can_be_captured
from .engine.cuda_graphs import new_runner
from .engine.engine import Engine
from .engine.out_of_memory import typed_out_of_memory
from .engine.runner import EagerRunner, Runner
from .head_drafter import HeadDrafter
from .model_drafter import DraftVocabulary, ModelDrafter, shared_target_ids
from .policies import make_policy


@frozen(eq=False)
class Wired:
    """The parts that run a config.

    Attributes:
        decoder: decodes token ids.
        tokenizer: the target's.
        directory: the target's.
    """

    decoder: Decoder
    tokenizer: Tokenizer
    directory: Path

    def grammars(self, stop_token_ids: Iterable[int] = ()) -> Grammars:
        """A maker of `GenerationRequest.new_masks`; outputs may end with these tokens, too.

        Raises:
            InvalidInputError: no token ends an output.
            UnavailableError: xgrammar is missing.
        """
        end = self.decoder.eos_token_ids.union(stop_token_ids)
        return Grammars.of(self.tokenizer, self.decoder.target.vocab_size, end)


def wire_engine(config: Config) -> Engine:
    """Load and connect everything, and allocate the memory that requests will share.

    Raises:
        AcceptorError: a part is unknown, missing or damaged, or does not fit the others.
    """
    return Engine.of(wire(config).decoder, config.engine)


def load_weights(
    directory: Path, models: ModelsConfig, max_model_len: int | None = None
) -> AnyModel:
    """A directory's model, on the device and with the precision that a config names."""
    dtype = None if models.dtype is None else getattr(torch, models.dtype)
    with _typed_for_weights(directory, models.device):
        return load_any_model(
            directory,
            adapter=models.adapter,
            dtype=dtype,
            device=models.device,
            max_model_len=max_model_len,
            forward=models.forward,
        )


def wire(config: Config, load: Callable[..., Any] = load_weights) -> Wired:
    """Load and connect everything; `load` may be a cached `load_weights`, to share models.

    Raises:
        AcceptorError: a part is unknown, missing or damaged, or does not fit the others.
    """
    directory, draft_directory = _directories(config.models, config.drafter.name)
    name = _drafter_name(config, draft_directory)
    num_spec_tokens = _num_spec_tokens(config, has_drafter=name is not None)
    policy = make_policy(config.policy, num_spec_tokens)
    sampler = sampler_on(check_device(config.models.device), config.backend)
    target = load(directory, config.models, config.models.max_model_len)
    tokenizer = Tokenizer.load(directory)
    tokenizer.check_fits(target.vocab_size)
    drafter: Drafter[Any] = NoDrafter()
    draft, vocabulary = None, None
    if num_spec_tokens:
        if name == "model" and draft_directory is not None:
            draft = load(draft_directory, config.models)
            vocabulary = _draft_vocabulary(target, tokenizer, draft, draft_directory)
        if name in HEADS:
            # The layer that mtp drafts with is in the target's files.
            drafter = _head_drafter(config, name, draft_directory or directory, target)
        else:
            drafter = new_drafter(config.drafter, target, draft, vocabulary)
        drafter = with_settings(drafter, sampler, policy, num_spec_tokens)
    decoder = Decoder(
        target=target,
        drafter=drafter,
        sampler=sampler,
        policy=policy,
        eos_token_ids=frozenset(target.eos_token_ids + tokenizer.eos_token_ids),
        # Without their marks, the names of channels would run into the text.
        new_detokenizer=partial(tokenizer.stream, skip_special_tokens=not tokenizer.has_channels),
        encode=tokenizer.encode,
        new_runner=runner_for(target, draft) if config.engine.cuda_graphs else EagerRunner,
    )
    return Wired(decoder, tokenizer, directory)


def sampler_on(device: torch.device, backend: str) -> Sampler:
    """A backend's sampler; on a CPU it draws for no requests, so one that needs a GPU says so.

    Raises:
        UnavailableError: the backend lacks something, such as a GPU.
    """
    sampler = load_sampler(backend)
    if device.type == "cpu":
        nothing = torch.empty(0, dtype=torch.int64)
        batch = SampleBatch(logits=torch.empty(0, 1), positions=nothing)
        try:
            sampler.sample(batch, SamplingTensors.stack([]))
        except InvalidInputError as error:
            why = str(error).removeprefix("logits: ")
            raise UnavailableError(f"backend {backend}: {why}") from None
    return sampler


def runner_for(*models: LanguageModel[Any] | None) -> Callable[[DecodeStep], Runner]:
    """A maker of the runner for these models' steps.

    A network of transformers may wait for the device, and reads as much of a slot as requested.
    """
    libraries = [model for model in models if not isinstance(model, TransformerModel | None)]
    if not all(map(can_be_captured, libraries)):
        return EagerRunner
    return partial(new_runner, is_bounded=bool(libraries))


def new_drafter(
    settings: DrafterConfig,
    target: LanguageModel[Any],
    draft: LanguageModel[Any] | None,
    vocabulary: DraftVocabulary | None = None,
) -> Drafter[Any]:
    """A drafter of one token at a time, until `with_settings` changes it.

    The target's first layers draft for an early exit, and the draft model unless another drafter is
    named; `vocabulary` is that model's, if its ids are not the target's.

    Raises:
        ConfigError: early exit is set for a target that transformers computes.
        InvalidInputError: the target has fewer layers than early exit is set to.
    """
    if settings.name == "ngram":
        return NgramDrafter(max_ngram=settings.max_ngram, min_ngram=settings.min_ngram)
    if settings.name == "early-exit":
        if not isinstance(target, TransformerModel):
            expected = "the model adapter own with early-exit"
            raise unfit("drafter", expected, "transformers", ConfigError)
        draft = target.first_layers(settings.exit_layer(target.config.num_layers))
    return NoDrafter() if draft is None else ModelDrafter(model=draft, vocabulary=vocabulary)


def _head_drafter(config: Config, kind: str, directory: Path, target: AnyModel) -> HeadDrafter:
    with _typed_for_weights(directory, config.models.device):
        head = load_head(directory, kind, target, config.drafter)
    return HeadDrafter(head=head, target_vocab_size=target.vocab_size)


def with_settings(
    drafter: Any, sampler: Sampler, policy: Policy, num_spec_tokens: int
) -> Drafter[Any]:
    """The same drafter with other settings, as far as it has them.

    Raises:
        ConfigError: drafts are wanted, but there is no drafter.
    """
    if not num_spec_tokens:
        return NoDrafter()
    if isinstance(drafter, NoDrafter):
        expected = "0, or --draft, --draft-random-weights or --drafter beside it"
        raise unfit("num_spec_tokens", expected, num_spec_tokens, ConfigError)
    given = {"sampler": sampler, "policy": policy, "num_spec_tokens": num_spec_tokens}
    known = fields_dict(type(drafter)).keys() & given.keys()
    changed: Drafter[Any] = evolve(drafter, **{name: given[name] for name in known})
    return changed


def _draft_vocabulary(
    target: LanguageModel[Any], tokenizer: Tokenizer, draft: LanguageModel[Any], directory: Path
) -> DraftVocabulary | None:
    """The draft model's vocabulary; None if its ids are the target's."""
    checkpoint, is_as_large = Checkpoint.open(directory), draft.vocab_size == target.vocab_size
    if DRAFT_TO_TARGET in checkpoint.entries:
        stated = read_draft_ids(checkpoint, draft.vocab_size, target.vocab_size).tolist()
        return DraftVocabulary.of(dict(enumerate(stated)), target.vocab_size, device=draft.device)
    if not (directory / TOKENIZER_FILE).exists():
        if is_as_large:
            return None
        other = f"or a vocabulary of {target.vocab_size} tokens as the target has"
        raise unfit(directory, f"{TOKENIZER_FILE}, {other}", draft.vocab_size)
    own = Tokenizer.load(directory)
    own.check_fits(draft.vocab_size)
    if is_as_large and own.vocabulary == tokenizer.vocabulary:
        return None
    shared = shared_target_ids(own.vocabulary, tokenizer.vocabulary)
    if not shared:
        raise unfit(own.file, f"tokens that {tokenizer.file} has", "none")
    size, device = target.vocab_size, draft.device
    return DraftVocabulary.of(shared, size, unknown_id=own.unknown_id, device=device)


def _directories(models: ModelsConfig, drafter: str | None) -> tuple[Path, Path | None]:
    if models.target is not None:
        draft = None if models.draft is None else find_directory(models.draft, of_draft=True)
        return find_directory(models.target), draft
    if models.draft is not None:
        raise ConfigError(f"draft: expected a target beside it, got only {models.draft}")
    target, draft = bundled_pair()
    return target, bundled_head() if drafter in ("eagle", "eagle3") else draft


def _drafter_name(config: Config, draft_directory: Path | None) -> str | None:
    name = config.drafter.name
    if draft_directory is None:
        if name in ("model", "eagle", "eagle3"):
            raise unfit("drafter", "ngram or early-exit, or --draft beside it", name, ConfigError)
        return name
    found = find_head(draft_directory)
    if found is not None and name in ("model", *HEADS) and name != found:
        raise ConfigError(f"drafter: expected {found}, as {draft_directory} says, got {name}")
    return found or "model" if name is None else name


def _num_spec_tokens(config: Config, *, has_drafter: bool) -> int:
    wanted = config.decoding.num_spec_tokens
    if wanted and not has_drafter:
        raise unfit("num_spec_tokens", "0, or --draft or --drafter beside it", wanted, ConfigError)
    usual = DEFAULT_NUM_SPEC_TOKENS if has_drafter else 0
    return usual if wanted is None else wanted


def _typed_for_weights(directory: Path, device: str) -> AbstractContextManager[None]:
    """Say what did not fit a device."""
    remedy = "choose a smaller model or dtype, or free the device"
    return typed_out_of_memory(f"weights of {directory}", check_device(device), remedy)
