"""The parts that decode, before the number of requests is known."""

from collections.abc import Callable, Sequence

from attrs import frozen

from ..decode import DecodeStep, Models
from ..request_state import Detokenizer
from .cuda_graphs import new_runner
from .runner import Runner


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
