"""The state of one request: its tokens, its text, and when it ends.

A stop among accepted tokens ends the output there: no token after it is emitted or counted.
"""

from collections import deque
from collections.abc import Iterable
from statistics import fmean
from time import perf_counter
from typing import Protocol

from attrs import define, evolve, field

from ..core import AcceptanceStatistics, Status
from ..core.policies.parameters import derived
from .request import (
    FinishReason,
    Fragment,
    GenerationRequest,
    GenerationResult,
    OnProgress,
    Progress,
    RequestRecord,
    TokenKind,
    TokenLogprobs,
    ignore,
)
from .token_masks import GuardedMasks
from .verdicts import FATAL, Verdict


class Detokenizer(Protocol):
    """Turns the tokens of one output into text as they come; by default into none."""

    def push(self, token_ids: Iterable[int]) -> str:  # noqa: ARG002, see the class
        """The text that these tokens settle; empty while a character is unfinished."""
        return ""

    def finish(self) -> str:
        """The remaining text, when no token follows."""
        return ""


@define(eq=False)
class OutputText:
    """Text that grows token by token and is released as soon as it is certain.

    Attributes:
        stop: strings that end the text where the first of them begins.
        text: all text so far, including text that is held back.
    """

    stop: tuple[str, ...] = ()
    text: str = ""
    _num_released: int = 0
    _token_ends: deque[tuple[int, TokenKind]] = field(factory=deque)

    def append(self, text: str, kind: TokenKind) -> bool:
        """Add a token's text. True if a stop string is complete: the text now ends before it."""
        if not text:
            return False
        longest_beginning = max((len(stop) - 1 for stop in self.stop), default=0)
        unsearched = max(0, len(self.text) - longest_beginning)
        self.text += text
        self._token_ends.append((len(self.text), kind))
        found = [at for stop in self.stop if (at := self.text.find(stop, unsearched)) >= 0]
        # The text that is cut off was held back, so none of it has been released.
        self.text = self.text[: min(found, default=len(self.text))]
        return bool(found)

    def release(self, *, ended: bool) -> tuple[Fragment, ...]:
        """The text that became certain since the last call; once it has ended, all the rest."""
        num_held = 0 if ended else max(map(self._num_begun, self.stop), default=0)
        certain = len(self.text) - num_held
        released = []
        while self._num_released < certain:
            token_end, kind = self._token_ends[0]
            end = min(token_end, certain)
            released.append(Fragment(self.text[self._num_released : end], kind))
            self._num_released = end
            if end == token_end:
                self._token_ends.popleft()
        return tuple(released)

    def _num_begun(self, stop: str) -> int:
        """How many characters at the end may begin a stop string; looks for its first one only."""
        at = self.text.find(stop[0], max(0, len(self.text) - len(stop) + 1))
        while at >= 0 and not stop.startswith(self.text[at:]):
            at = self.text.find(stop[0], at + 1)
        return 0 if at < 0 else len(self.text) - at


@define(eq=False, kw_only=True)
class RequestState:
    """A request that waits or is being decoded.

    Attributes:
        request: the request; it gets a seed.
        max_len: how many tokens prompt and output may have together.
        slot_id: its slot in the models' memory; -1 while it waits.
        num_entered: how many tokens of the prompt the models' caches hold.
        masks: the tokens that may come next; None for all.
        token_times, acceptance: see `RequestRecord`.
    """

    index: int
    request: GenerationRequest
    eos_token_ids: frozenset[int]
    max_len: int
    detokenizer: Detokenizer
    arrival_time: float = field(factory=perf_counter)
    on_progress: OnProgress = ignore
    slot_id: int = -1
    num_entered: int = 0
    end_token_ids: frozenset[int] = field(init=False)
    masks: GuardedMasks | None = field(init=False)
    token_ids: list[int] = derived(lambda self: list(self.request.prompt_token_ids))
    output: OutputText = derived(lambda self: OutputText(self.request.stop))
    kinds: list[TokenKind] = field(factory=list, init=False)
    logprobs: list[TokenLogprobs] = field(factory=list, init=False)
    total_variation: list[float] = field(factory=list, init=False)
    token_times: list[tuple[float, int]] = field(factory=list, init=False)
    acceptance: list[tuple[int, int]] = field(factory=list, init=False)
    status: Status = field(default=Status.OK, init=False)
    finish_reason: FinishReason | None = field(default=None, init=False)
    error: str = field(default="", init=False)

    def __attrs_post_init__(self) -> None:
        if self.request.params.seed is None:
            self.request = evolve(self.request, params=self.request.params.with_seed())
        request = self.request
        eos = frozenset() if request.ignore_eos else self.eos_token_ids
        self.end_token_ids = eos.union(request.stop_token_ids)
        self.max_len = min(len(request.prompt_token_ids) + request.max_tokens, self.max_len)
        self.masks = None if request.new_masks is None else GuardedMasks(request.new_masks)

    @property
    def num_to_enter(self) -> int:
        """How many more tokens of the prompt the caches need; the last one is scored instead."""
        return len(self.request.prompt_token_ids) - 1 - self.num_entered

    def draft_limit(self, num_spec_tokens: int, draft_context: int, num_more: int) -> int:
        """How many draft tokens are useful: one more token follows, and the drafter has limits.

        num_more: tokens that will have been emitted by then.
        """
        length, wanted = len(self.token_ids) + num_more, self.request.num_spec_tokens
        limit = max(0, min(self.max_len - 1, draft_context) - length)
        return min(limit, num_spec_tokens if wanted is None else min(wanted, num_spec_tokens))

    def goes_on_after(self, num_more: int) -> bool:
        """Whether it is still shorter than its limit with this many more tokens."""
        return self.finish_reason is None and len(self.token_ids) + num_more < self.max_len

    def cancel(self) -> Progress:
        """End it at its present length."""
        self.finish_reason = FinishReason.CANCELLED
        return self._progress(0)

    def fail(self, error: str) -> Progress:
        """End it at its present length, with an error."""
        self.error, self.finish_reason = error, FinishReason.ERROR
        return self._progress(0)

    def advance(self, verdict: Verdict, now: float) -> Progress:
        """Emit a step's tokens, up to the first stop; the host got them just now."""
        num_before = len(self.kinds)
        for place, token_id in enumerate(verdict.token_ids):
            self._emit(token_id, verdict.kind(place))
            if self.finish_reason is not None:
                break
        else:
            if verdict.status is not Status.OK:
                self._note(verdict.status)
        num_emitted = len(self.kinds) - num_before
        self.logprobs.extend(verdict.logprobs[:num_emitted])
        self.total_variation.extend(verdict.total_variation[:num_emitted])
        self.acceptance.append((verdict.num_draft_tokens, min(verdict.num_accepted, num_emitted)))
        if num_emitted:
            self.token_times.append((now, num_emitted))
        return self._progress(num_emitted)

    def _emit(self, token_id: int, kind: TokenKind) -> None:
        self.token_ids.append(token_id)
        self.kinds.append(kind)
        if self.masks is not None:
            self.masks.accept(token_id)
        if token_id in self.end_token_ids:
            self._end(FinishReason.STOP)
        elif self.output.append(self.detokenizer.push([token_id]), kind):
            self.finish_reason = FinishReason.STOP
        elif len(self.token_ids) >= self.max_len:
            self._end(FinishReason.LENGTH)

    def _note(self, status: Status) -> None:
        self.status |= status
        if status & FATAL:
            self.error = self.masks.error if self.masks is not None else ""
            self._end(FinishReason.ERROR)

    def _end(self, reason: FinishReason) -> None:
        # Text that waited for the rest of a character may complete a stop string.
        rest = self.detokenizer.finish()
        stopped = rest and self.output.append(rest, self.kinds[-1])
        self.finish_reason = FinishReason.STOP if stopped else reason

    def _progress(self, num_emitted: int) -> Progress:
        reason = self.finish_reason
        return Progress(
            request_index=self.index,
            token_ids=tuple(self.token_ids[len(self.token_ids) - num_emitted :]),
            kinds=tuple(self.kinds[len(self.kinds) - num_emitted :]),
            fragments=self.output.release(ended=reason is not None),
            result=None if reason is None else self._result(reason),
            record=None if reason is None else self._record(reason),
        )

    def _record(self, reason: FinishReason) -> RequestRecord:
        return RequestRecord(
            request_id=self.index,
            arrival_time=self.arrival_time,
            finish_time=perf_counter(),
            token_times=tuple(self.token_times),
            prompt_len=len(self.request.prompt_token_ids),
            status=reason,
            error=self.error,
            acceptance=tuple(self.acceptance),
        )

    def _result(self, reason: FinishReason) -> GenerationResult:
        params, statistics = self.request.params, AcceptanceStatistics()
        for num_draft_tokens, num_accepted in self.acceptance:
            statistics.observe(num_draft_tokens, num_accepted)
        assert params.seed is not None
        return GenerationResult(
            token_ids=tuple(self.token_ids[len(self.request.prompt_token_ids) :]),
            kinds=tuple(self.kinds),
            text=self.output.text,
            finish_reason=reason,
            status=self.status,
            seed=params.seed,
            statistics=statistics,
            logprobs=None
            if params.logprobs is None
            # The batch reports as many as the request that asks for most.
            else tuple(evolve(entry, top=entry.top[: params.logprobs]) for entry in self.logprobs),
            total_variation=fmean(self.total_variation) if self.total_variation else None,
            error=self.error,
        )
