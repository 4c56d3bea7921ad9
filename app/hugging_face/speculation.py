"""`Speculation`, the value to pass as `custom_generate`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from attrs import frozen, has
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel, StoppingCriteriaList
from transformers.generation import EosTokenCriteria, GenerateDecoderOnlyOutput, MaxLengthCriteria

from ...adapters.error_text import unfit
from ...adapters.library_model.loader import adapt_network
from ...adapters.library_model.model import LibraryModel
from ...backends import load_sampler
from ...core import AcceptanceStatistics, InvalidInputError, Policy, Strict
from ...core.call_memory import check_policy
from ...core.checks import MAX_INT64, check_integer, check_tensor
from ...core.policies.parameters import derived, integer
from ...core.sampling_params import MAX_SEED
from ..decode import DecodeStep, Models
from ..drafter import Drafter, NgramDrafter
from ..model_drafter import DraftVocabulary, ModelDrafter
from ..wiring import with_settings
from .loop import Loop
from .support import LogitsRecipe, check_call, check_config
from .texts import Texts


@dataclass
class SpeculativeOutput(GenerateDecoderOnlyOutput):  # type: ignore[misc]  # is not typed
    """The output of transformers, with the statistics of each row's drafts.

    `scores` and `logits` are 0 where a row has ended.
    """

    statistics: tuple[AcceptanceStatistics, ...] | None = None


@frozen(eq=False, kw_only=True)
class Speculation:
    """A `custom_generate` for `PreTrainedModel.generate`.

    Attributes:
        draft: a causal language model of transformers that reads the target's token ids, or a
            `Drafter`, which gets the settings below; None looks drafts up in each row's own text.
        num_spec_tokens: tokens per draft; 0 for plain decoding.
        policy: decides which draft tokens survive.
        backend: verifies them; a name from `acceptor.backends.BACKENDS`.
        seed: row r draws with seed + r. None takes seeds from torch's global generator, which
            `torch.manual_seed` sets.
        streamer: gets prompts and tokens as `generate` sends them to its own.

    Raises:
        InvalidInputError: num_spec_tokens or seed is out of its range, or draft is not a drafter,
            or policy not a policy.
        UnavailableError: the backend is not available.
    """

    draft: PreTrainedModel | Drafter[Any] | None = None
    num_spec_tokens: int = integer(4, 0)
    policy: Policy = Strict()
    backend: str = "reference"
    seed: int | None = integer(None, 0, MAX_SEED)
    streamer: Any = None
    _sampler: Any = derived(lambda self: load_sampler(self.backend))

    def __attrs_post_init__(self) -> None:
        check_policy(self.policy)
        kind = type(self.draft)
        if not (self.draft is None or isinstance(self.draft, PreTrainedModel) or has(kind)):
            expected = "a model of transformers or a drafter"
            raise unfit("draft", expected, kind.__name__, InvalidInputError)

    def __call__(
        self,
        model: PreTrainedModel,
        input_ids: Tensor,
        logits_processor: Sequence[Any],
        stopping_criteria: Sequence[Any],
        generation_config: GenerationConfig,
        **model_kwargs: Any,
    ) -> Tensor | SpeculativeOutput:
        """Continue a batch of prompts; `generate` calls this with its prepared arguments.

        Returns:
            [num_rows, width] int64, prompts and output, padded on the right; or a
            `SpeculativeOutput` if `return_dict_in_generate` is set.

        Raises:
            UnavailableError: a field, a processor or an input is not supported.
            InvalidInputError: an id is negative, padding is not on the left, the context is too
                short, the draft is on another device, or a row's logits are invalid.
            CheckpointError: the model or the draft is not a causal language model in evaluation
                mode.
        """
        check_config(generation_config)
        check_call(logits_processor, model_kwargs)
        target = adapt_network(model)
        check_tensor("input_ids", input_ids, (None, None), (torch.int64,), target.device)
        lengths = [one.max_length for one in stopping_criteria if type(one) is MaxLengthCriteria]
        max_length = min(lengths, default=generation_config.max_length)
        pad = generation_config._pad_token_tensor  # noqa: SLF001, made by `generate` for its methods
        drafter = self._drafter(target)
        texts = Texts.of(
            input_ids,
            model_kwargs.get("attention_mask"),
            room=max_length + drafter.num_spec_tokens + 1,
            pad_token_id=0 if pad is None else int(pad),
        )
        texts.check_positions(model_kwargs.get("position_ids"))
        loop = Loop(
            step=self._step(target, drafter, texts, max_length),
            texts=texts,
            recipe=LogitsRecipe.of(
                logits_processor,
                [row.num_padding for row in texts.rows],
                do_sample=bool(generation_config.do_sample),
            ),
            seeds=_seeds(self.seed, len(texts.rows)),
            max_length=max_length,
            **_ends(stopping_criteria),
            streamer=self.streamer,
            keeps=_keeps(generation_config),
        )
        with torch.accelerator.device_index(target.device.index):
            loop.run()
        return _result(texts, loop.keeps, as_dict=bool(generation_config.return_dict_in_generate))

    def _drafter(self, target: LibraryModel) -> Drafter[Any]:
        drafter: Any = NgramDrafter() if self.draft is None else self.draft
        if isinstance(drafter, PreTrainedModel):
            model = adapt_network(drafter)
            drafter = ModelDrafter(model=model, vocabulary=_vocabulary(target, model))
        return with_settings(drafter, self._sampler, self.policy, self.num_spec_tokens)

    def _step(
        self, target: LibraryModel, drafter: Drafter[Any], texts: Texts, max_length: int
    ) -> DecodeStep:
        num_rows, padding = len(texts.rows), min(row.num_padding for row in texts.rows)
        max_len = max_length - padding
        check_integer("max_length less padding", max_len, 1, target.max_model_len)
        models = Models(target=target, drafter=drafter, sampler=self._sampler, policy=self.policy)
        return DecodeStep.allocate(models, num_rows, max_len, num_spare=0)


def _vocabulary(target: LibraryModel, draft: LibraryModel) -> DraftVocabulary | None:
    """Map the draft's ids: models of one family differ in how many unused ids they have."""
    if draft.device != target.device:
        raise InvalidInputError(f"draft: expected device {target.device}, got {draft.device}")
    if draft.vocab_size == target.vocab_size:
        return None
    ids = {shared: shared for shared in range(min(draft.vocab_size, target.vocab_size))}
    return DraftVocabulary.of(ids, target.vocab_size, device=draft.device)


def _ends(criteria: Sequence[Any]) -> dict[str, Any]:
    eos = [one.eos_token_id.flatten() for one in criteria if type(one) is EosTokenCriteria]
    others = [one for one in criteria if type(one) not in (MaxLengthCriteria, EosTokenCriteria)]
    end_token_ids = frozenset(token_id for ids in eos for token_id in ids.tolist())
    return {"end_token_ids": end_token_ids, "criteria": StoppingCriteriaList(others) or None}


def _seeds(seed: int | None, num_rows: int) -> list[int]:
    if seed is None:
        seeds: list[int] = torch.randint(MAX_INT64, (num_rows,)).tolist()
        return seeds
    return [(seed + index) % (MAX_SEED + 1) for index in range(num_rows)]


def _keeps(config: GenerationConfig) -> frozenset[str]:
    wanted = {"logits": config.output_logits, "scores": config.output_scores}
    return frozenset(name for name in wanted if config.return_dict_in_generate and wanted[name])


def _result(texts: Texts, keeps: frozenset[str], *, as_dict: bool) -> Tensor | SpeculativeOutput:
    sequences, num_steps = texts.prefix(texts.width), texts.width - texts.prompt_width
    if not as_dict:
        return sequences
    return SpeculativeOutput(
        sequences=sequences,
        statistics=tuple(row.statistics for row in texts.rows),
        **{name: tuple(texts.kept[name][:num_steps]) for name in keeps},
    )


generate = Speculation()
"""A `custom_generate` without settings: drafts from each row's own text, strict verification."""
