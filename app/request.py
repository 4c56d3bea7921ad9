"""Requests and their results, as callers see them."""

from collections.abc import Callable, Iterable
from enum import StrEnum, unique
from operator import index
from time import perf_counter
from typing import Any, SupportsIndex

from attrs import field, frozen

from ..adapters.error_text import unfit
from ..core import AcceptanceStatistics, InvalidInputError, LanguageModel, SamplingParams, Status
from ..core.checks import check_integer, check_integers
from ..core.policies.parameters import flag, integer
from .token_masks import NewTokenMasks

DEFAULT_MAX_TOKENS = 128


@unique
class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    """An end-of-sequence token, another stop token or a stop string was emitted."""
    LENGTH = "length"
    """`max_tokens` were emitted, or the context is full."""
    ERROR = "error"
    """The request does not fit the model, or its logits are invalid: see `GenerationResult.error`
    and `GenerationResult.status`."""
    CANCELLED = "cancelled"
    """The caller cancelled it."""


@unique
class TokenKind(StrEnum):
    """The origin of an emitted token."""

    ACCEPTED = "accepted"
    """The draft proposed it and it survived."""
    RECOVERED = "recovered"
    """It replaces the draft's first rejected token."""
    BONUS = "bonus"
    """It follows a draft that was accepted completely."""
    PLAIN = "plain"
    """There was no draft."""


def _as_prompt(token_ids: Iterable[SupportsIndex]) -> tuple[int, ...]:
    return _as_ids("prompt_token_ids", token_ids)


def _as_stop_ids(token_ids: Iterable[SupportsIndex]) -> tuple[int, ...]:
    return _as_ids("stop_token_ids", token_ids)


def _as_ids(name: str, token_ids: Iterable[SupportsIndex]) -> tuple[int, ...]:
    given = _as_tuple(name, token_ids)
    # The next check reports values that are not integers.
    try:
        ids = tuple(map(index, given))
    except TypeError:
        return given
    return given if any(map(_is_not_integer, given)) else ids


def _is_not_integer(value: Any) -> bool:
    """Whether a value with `__index__` is no integer: a bool, or a tensor with dimensions."""
    kind = str(getattr(value, "dtype", type(value).__name__))
    return "bool" in kind or getattr(value, "ndim", 0) > 0


def _as_strings(strings: Iterable[str]) -> tuple[str, ...]:
    # A lone string would otherwise become one stop string per character.
    return (strings,) if isinstance(strings, str) else _as_tuple("stop", strings)


def _as_tuple(name: str, values: Iterable[Any]) -> tuple[Any, ...]:
    try:
        return tuple(values)
    except TypeError:
        raise InvalidInputError(f"{name}: expected several values, got {values!r}") from None


@frozen(kw_only=True)
class GenerationRequest:
    """One prompt and how to continue it.

    Attributes:
        prompt_token_ids: at least one token; integers of any kind, NumPy's and torch's, too.
        params: recipe, penalties, seed and logprobs; without a seed the request gets a random one.
        max_tokens: the most tokens that may be emitted.
        stop: strings that end the text; they and what follows are not part of it.
        stop_token_ids: tokens that end the output, in addition to the model's end-of-sequence
            tokens. Like those they are part of the token ids, but not of the text.
        ignore_eos: go on after an end-of-sequence token.
        num_spec_tokens: tokens per draft for this request; None, and more than the drafter's own
            number, mean the drafter's.
        new_masks: makes the `TokenMasks` of the output, such as a grammar's; None allows all.

    Raises:
        InvalidInputError: a value is out of its range.
    """

    prompt_token_ids: tuple[int, ...] = field(converter=_as_prompt)
    params: SamplingParams = SamplingParams()
    max_tokens: int = integer(DEFAULT_MAX_TOKENS, 1)
    stop: tuple[str, ...] = field(default=(), converter=_as_strings)
    stop_token_ids: tuple[int, ...] = field(default=(), converter=_as_stop_ids)
    ignore_eos: bool = flag(False)
    num_spec_tokens: int | None = integer(None, 0)
    new_masks: NewTokenMasks | None = None

    def __attrs_post_init__(self) -> None:
        if not self.prompt_token_ids:
            raise InvalidInputError("prompt_token_ids: expected at least one token, got none")
        check_integers("prompt_token_ids", self.prompt_token_ids, 0)
        check_integers("stop_token_ids", self.stop_token_ids, 0)
        if not isinstance(self.params, SamplingParams):
            raise InvalidInputError(f"params: expected SamplingParams, got {self.params!r}")
        if self.new_masks is not None and not callable(self.new_masks):
            raise InvalidInputError(f"new_masks: expected a function, got {self.new_masks!r}")
        for text in self.stop:
            if not isinstance(text, str) or not text:
                raise InvalidInputError(f"stop: expected strings with content, got {text!r}")


@frozen
class TokenLogprobs:
    """How likely an emitted token was, in nats.

    Attributes:
        emitted: the token's own.
        top: (token id, logprob) of the most likely tokens, as many as requested.
    """

    emitted: float
    top: tuple[tuple[int, float], ...]


@frozen(kw_only=True)
class GenerationResult:
    """The result of one request.

    Attributes:
        token_ids: the emitted tokens, including a token that stopped the output.
        kinds: where each of them comes from.
        text: their text, without special tokens and without a stop string.
        finish_reason: why the output ended.
        status: what went wrong, bits of `Status`.
        seed: the same request with this seed repeats the result.
        statistics: `num_accepted_tokens` counts emitted tokens only, as `kinds` does.
        logprobs: one entry per token; None unless asked for.
        total_variation: how far a lossy policy moved the law of an emitted token from the target's,
            averaged over the tokens; None under policies that do not report it.
        error: why it could not be decoded to its end, in one sentence; else empty.
    """

    finish_reason: FinishReason
    seed: int
    token_ids: tuple[int, ...] = ()
    kinds: tuple[TokenKind, ...] = ()
    text: str = ""
    status: Status = Status.OK
    statistics: AcceptanceStatistics = field(factory=AcceptanceStatistics)
    logprobs: tuple[TokenLogprobs, ...] | None = None
    total_variation: float | None = None
    error: str = ""


@frozen(kw_only=True)
class RequestRecord:
    """The times and counts of a request that has ended, however it ended.

    All times are seconds of `time.perf_counter`.

    Attributes:
        request_id: as `Engine.add_request` returned it.
        arrival_time: when it was added.
        finish_time: when it ended.
        token_times: for each step that emitted tokens, when the host had them and how many there
            were.
        prompt_len: tokens of the prompt.
        status: how it ended.
        error: what was wrong, in one sentence; empty unless `status` is `FinishReason.ERROR`.
        acceptance: for each decode step of the request (num_draft_tokens, num_accepted), without
            the final token; (0, 0) for a step without drafts. Accepted tokens after a stop are not
            emitted, so they do not count.
    """

    request_id: int
    arrival_time: float
    finish_time: float
    prompt_len: int
    status: FinishReason
    token_times: tuple[tuple[float, int], ...] = ()
    error: str = ""
    acceptance: tuple[tuple[int, int], ...] = ()

    @property
    def first_token_time(self) -> float | None:
        """When the host had its first token; None if there was none."""
        return self.token_times[0][0] if self.token_times else None

    @property
    def output_len(self) -> int:
        """How many tokens were emitted."""
        return sum(num_tokens for _, num_tokens in self.token_times)


@frozen
class Fragment:
    """Text that became certain, and the kind of its token."""

    text: str
    kind: TokenKind


@frozen(kw_only=True)
class Progress:
    """The progress of one request in one step.

    Attributes:
        request_index: its id, or its place in the list of requests.
        token_ids: the tokens emitted in this step.
        kinds: where each of them comes from.
        fragments: the text released in this step. It can lag behind the tokens: text that may be
            the beginning of a stop string, or an unfinished character, is held back.
        result: set once, when the request has ended.
        record: its times and counts; set with the result.
    """

    request_index: int
    token_ids: tuple[int, ...] = ()
    kinds: tuple[TokenKind, ...] = ()
    fragments: tuple[Fragment, ...] = ()
    result: GenerationResult | None = None
    record: RequestRecord | None = None


def refused(
    request_id: int, error: str, request: GenerationRequest | None, params: object
) -> Progress:
    """The end of a request that cannot be decoded, or could not even be made with these params."""
    now, status = perf_counter(), FinishReason.ERROR
    asked = params if request is None else request.params
    seed = asked.seed if isinstance(asked, SamplingParams) else None
    return Progress(
        request_index=request_id,
        result=GenerationResult(finish_reason=status, seed=seed or 0, error=error),
        record=RequestRecord(
            request_id=request_id,
            arrival_time=now,
            finish_time=now,
            prompt_len=0 if request is None else len(request.prompt_token_ids),
            status=status,
            error=error,
        ),
    )


OnProgress = Callable[[Progress], None]
"""Called in the thread of `Engine.step`; it should return at once. If it raises, its request is
cancelled."""


def ignore(progress: Progress) -> None:
    """A listener that does nothing."""


def check_text(text: str) -> None:
    """Check that a tokenizer can read a prompt.

    Raises:
        InvalidInputError: it holds half of a surrogate pair, as from truncated UTF-16.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        got = f"{text[error.start]!r} at place {error.start}"
        raise unfit("prompt", "text that UTF-8 can hold", got, InvalidInputError) from None


def check_request(request: GenerationRequest, target: LanguageModel[Any], max_len: int) -> None:
    """Raise `InvalidInputError` unless the target can continue the prompt within max_len tokens."""
    length = len(request.prompt_token_ids)
    if length >= max_len:
        expected = f"fewer than the {max_len} tokens that a request may have"
        raise unfit("prompt", expected, length, InvalidInputError)
    check_integers("prompt_token_ids", request.prompt_token_ids, 0, target.vocab_size - 1)
    for token_id, _ in request.params.logit_bias:
        check_integer("params.logit_bias: token id", token_id, 0, target.vocab_size - 1)
    # The batch reports as many as the request that asks for most, so all would fail with it.
    check_integer("params.logprobs", request.params.logprobs or 0, 0, target.vocab_size)
