"""The parts of an engine's step: admit and retire requests, enter prompts, decode, notify.

A slot is never shared: a request waits until one is free.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from time import perf_counter

import torch
from attrs import define, field

from ...adapters.error_text import ends_program, with_kind
from ...core import Status
from ...core.policies.parameters import derived
from ..decode import DecodeStep
from ..frontier import Running
from ..request import OnProgress, Progress, ignore
from ..request_state import RequestState
from ..verdicts import Verdict
from .out_of_memory import is_out_of_memory, out_of_memory
from .runner import Runner

_logger = logging.getLogger(__name__)


@define(eq=False, kw_only=True)
class Loop:
    """The requests of an engine, and the parts of its step.

    Attributes:
        prefill_tokens: how many tokens of prompts are entered between two decode steps.
        arrivals, cancelled_ids: requests added and cancelled since the last step.
        states: all requests that have not ended, by id, in the order of their arrival.
        events: progress that has not been reported, and its listener.
        has_begun: whether the device is one step ahead of the host.
    """

    decode_step: DecodeStep
    runner: Runner
    prefill_tokens: int
    device: torch.device = derived(lambda self: self.decode_step.target.device)
    arrivals: deque[RequestState] = field(factory=deque, init=False)
    cancelled_ids: deque[int] = field(factory=deque, init=False)
    states: dict[int, RequestState] = field(factory=dict, init=False)
    events: deque[tuple[OnProgress, Progress]] = field(factory=deque, init=False)
    clock: Callable[[], float] = field(default=perf_counter, init=False)
    prefill_seconds: float = field(default=0.0, init=False)
    decode_seconds: float = field(default=0.0, init=False)
    has_begun: bool = field(default=False, init=False)
    _running: Running = derived(lambda self: Running(states=[], device=self.device))
    _free_slots: list[int] = derived(lambda self: list(range(self.decode_step.num_slots)))
    _used_slots: set[int] = field(factory=set, init=False)

    def has_unfinished(self) -> bool:
        """Whether there is work to do or progress to report."""
        return bool(self.arrivals or self.states or self.events)

    def admit_and_retire(self) -> None:
        """Queue arrivals, end cancelled requests, and give free slots to waiting ones."""
        # Cancellations are counted first: requests cancelled by now have already arrived.
        num_cancelled = len(self.cancelled_ids)
        while self.arrivals:
            state = self.arrivals.popleft()
            self.states[state.index] = state
        for _ in range(num_cancelled):
            cancelled = self.states.get(self.cancelled_ids.popleft())
            if cancelled is not None:
                self._note(cancelled, cancelled.cancel())
        self._admit()

    def _admit(self) -> None:
        waiting = [state for state in self.states.values() if state.slot_id < 0]
        admitted = waiting[: len(self._free_slots)]
        for state in admitted:
            state.slot_id = heappop(self._free_slots)
        slot_ids, step = {state.slot_id for state in admitted}, self.decode_step
        if used := sorted(slot_ids & self._used_slots):
            # The slot's last sequence may have left NaN after its end or in a rejected draft.
            # Attention multiplies masked positions by zero, so NaN there would spread.
            step.target.clear(step.target_cache, used)
            step.drafter.clear(step.draft_memory, used)
        self._used_slots |= slot_ids
        for state in admitted:
            try:
                step.count(state)
            except RuntimeError as error:
                self._give_up([state], error)

    def enter_prompts(self) -> None:
        """Write the next chunks of prompts, oldest request first."""
        waiting = [state for state in self._admitted() if state.num_to_enter]
        if not waiting:
            return
        began, left = self.clock(), self.prefill_tokens
        for state in waiting:
            try:
                while state.num_to_enter and left > 0:
                    slot_id, start = state.slot_id, state.num_entered
                    state.num_entered = self.decode_step.enter(slot_id, state.token_ids, start)
                    left -= state.num_entered - start
            except RuntimeError as error:
                self._give_up([state], error)
        if self.device.type == "cuda":
            # So that this time does not count as decoding.
            torch.cuda.synchronize(self.device)
        self.prefill_seconds += self.clock() - began

    def decode(self) -> None:
        """Run one step for every request whose prompt is entered.

        If the batch stays the same, the device begins the next step before the host has read this
        one. A request that arrives then joins one step later.
        """
        began = self.clock()
        try:
            running = self._gather()
            if running.states:
                self._step(running)
        except BaseException as error:  # noqa: BLE001, all kinds but one are raised again
            dispensable = self._dispensable()
            # A step that has begun would continue from the lost one.
            self._drop()
            if not is_out_of_memory(error):
                # The lost step may have counted tokens that it emitted.
                for state in self._admitted():
                    self.decode_step.count(state)
            self._give_up(dispensable, error)
        self.decode_seconds += self.clock() - began

    def _dispensable(self) -> list[RequestState]:
        """The requests of a batch that must end when memory is too small, so that others go on."""
        batch = self._batch()
        if self.has_begun:
            batch = [one for one in batch if one in self._running.states]
        newest = max((state.index for state in batch), default=-1)
        # The step may have counted tokens for penalties; a retry would count them twice.
        return [one for one in batch if one.index == newest or one.request.params.has_penalties]

    def _give_up(self, states: Sequence[RequestState], error: BaseException) -> None:
        """End these requests if memory is too small; raise any other error again."""
        if not states or not is_out_of_memory(error):
            raise error
        remedy = "lower num_slots or max_len, or ask for less at once"
        said = out_of_memory(error, "request", self.device, remedy)
        for state in states:
            self._note(state, state.fail(str(said)))
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _step(self, running: Running) -> None:
        draft_limits = self._draft_limits([0] * len(running.states))
        repeats = self._will_repeat(running, draft_limits)
        is_ahead = repeats and self.runner.begin(running, draft_limits)
        verdicts = self.runner.run(running, draft_limits)
        self.has_begun = is_ahead
        if not self._act_on(verdicts, perf_counter()) and is_ahead:
            self._drop()

    def _act_on(self, verdicts: Sequence[Verdict], now: float) -> bool:
        """Act on a step; True if some request goes on and none failed, as a step ahead assumes."""
        is_useful = True
        self.decode_step.drafter.notice(verdicts)
        for state, verdict in zip(self._running.states, verdicts, strict=True):
            if state.finish_reason is None:
                self._note(state, state.advance(verdict, now))
                is_useful &= verdict.status is Status.OK
        return is_useful and any(state.finish_reason is None for state in self._running.states)

    def _will_repeat(self, running: Running, draft_limits: list[int]) -> bool:
        """Whether the next step has the same batch and limits, as far as can be known now.

        A request may still end with a token that this step emits; its tokens of the next step are
        then dropped.
        """
        joined = len(self._admitted()) > len(running.states)
        if running.token_counts is not None or joined or self.arrivals or self.cancelled_ids:
            return False
        most = [limit + 1 for limit in draft_limits]
        go_on = all(map(RequestState.goes_on_after, running.states, most))
        return go_on and self._draft_limits(most) == draft_limits

    def _drop(self) -> None:
        self.runner.drop()
        self.has_begun = False

    def _draft_limits(self, nums_more: Sequence[int]) -> list[int]:
        drafter = self.decode_step.drafter
        return [
            state.draft_limit(drafter.num_spec_tokens, drafter.max_model_len, num_more)
            for state, num_more in zip(self._running.states, nums_more, strict=True)
        ]

    def notify(self) -> list[Progress]:
        """Report each request's progress since the last call to its listener, and return it all.

        A listener that raises cancels its own request only.
        """
        reported = list[Progress]()
        while self.events:
            on_progress, progress = self.events.popleft()
            reported.append(progress)
            try:
                on_progress(progress)
            except BaseException as error:
                if ends_program(error):
                    # Progress that this call does not return, the next one does.
                    self.events.extendleft((ignore, each) for each in reversed(reported))
                    raise
                number, said = progress.request_index, with_kind(error)
                _logger.warning("request %d is cancelled: on_progress raised %s", number, said)
                self.cancelled_ids.append(number)
        return reported

    def _admitted(self) -> list[RequestState]:
        """The requests that have a slot."""
        return [state for state in self.states.values() if state.slot_id >= 0]

    def _batch(self) -> list[RequestState]:
        """The requests whose prompts are entered, in the order of slots: a CPU then copies none."""
        entered = (state for state in self._admitted() if not state.num_to_enter)
        return sorted(entered, key=lambda state: state.slot_id)

    def _gather(self) -> Running:
        batch = self._batch()
        if not self.has_begun and batch != self._running.states:
            has_penalties = any(state.request.params.has_penalties for state in batch)
            self._running = Running(
                states=batch,
                device=self.device,
                token_counts=self.decode_step.token_counts if has_penalties else None,
            )
        return self._running

    def _note(self, state: RequestState, progress: Progress) -> None:
        self.events.append((state.on_progress, progress))
        if progress.result is not None:
            del self.states[state.index]
            if state.slot_id >= 0:
                heappush(self._free_slots, state.slot_id)
