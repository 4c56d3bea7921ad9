"""What decodes, before the number of requests is known."""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from ...core.errors import InvalidInputError
from ...core.policies import Policy
from ...core.ports import LanguageModel, Sampler
from ..decode import DecodeStep, Memory
from ..drafter import Drafter
from ..request_state import Detokenizer
from .cuda_graphs import new_runner
from .runner import Runner


def refuse_text(text: str) -> Sequence[int]:
    """Encodes text where there is no tokenizer.

    Raises:
        InvalidInputError: always.
    """
    raise InvalidInputError(f"prompt: expected token ids without a tokenizer, got {text!r}")


@frozen(eq=False, kw_only=True)
class Parts:
    """A target model, what drafts for it, and what decides between them.

    Attributes:
        target: whose law the output follows.
        drafter: proposes draft tokens; `NoDrafter` for plain decoding.
        sampler: the backend.
        policy: decides which draft tokens survive.
        eos_token_ids: tokens that end an output.
        new_detokenizer: makes what turns one output's tokens into text.
        encode: turns a text into token ids.
        new_runner: makes what runs the steps.
    """

    target: LanguageModel[Any]
    drafter: Drafter[Any]
    sampler: Sampler
    policy: Policy
    eos_token_ids: frozenset[int]
    new_detokenizer: Callable[[], Detokenizer]
    encode: Callable[[str], Sequence[int]] = refuse_text
    new_runner: Callable[[DecodeStep], Runner] = new_runner

    def step(self, num_slots: int, max_len: int) -> DecodeStep:
        """Allocate the memory for so many requests of so many tokens, and what works on it."""
        return DecodeStep(
            target=self.target,
            drafter=self.drafter,
            sampler=self.sampler,
            policy=self.policy,
            memory=Memory(
                num_slots=num_slots,
                max_len=max_len,
                target_cache=self.target.new_cache(num_slots + 1, max_len),
                draft_memory=self.drafter.new_memory(num_slots + 1, max_len),
            ),
        )
