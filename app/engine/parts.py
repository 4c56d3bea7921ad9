"""What an engine is made of: the parts that decode, and the limits of their memory."""

from collections.abc import Callable, Sequence

from attrs import frozen

from ...core.policies.parameters import integer
from ..decode import DecodeStep, Models
from ..request_state import Detokenizer
from .cuda_graphs import new_runner
from .runner import Runner

MAX_SLOTS = 2**16
"""Far beyond what a step can hold: a typing error must not fill the memory."""


@frozen(eq=False, kw_only=True)
class Parts(Models):
    """Models, and functions that turn their tokens into text and back.

    Attributes:
        new_detokenizer: makes the detokenizer of one output.
        encode: turns a text into token ids; None without a tokenizer.
    """

    eos_token_ids: frozenset[int]
    new_detokenizer: Callable[[], Detokenizer]
    encode: Callable[[str], Sequence[int]] | None = None
    new_runner: Callable[[DecodeStep], Runner] = new_runner


@frozen(kw_only=True)
class Limits:
    """The limits of memory, and of prompts between two decode steps.

    Attributes:
        num_slots: how many requests run at once; others wait.
        max_len: how many tokens a request may have, prompt and output together; None for the
            target's context.
        prefill_tokens: prompt tokens that are entered between two decode steps, rounded up to a
            request's chunk; running requests wait that long for their next token.

    Raises:
        InvalidInputError: a number is out of its range.
    """

    num_slots: int = integer(16, 1, MAX_SLOTS)
    max_len: int | None = integer(None, 1)
    prefill_tokens: int = integer(2048, 1)
