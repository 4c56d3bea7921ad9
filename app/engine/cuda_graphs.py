"""The decode step as a CUDA graph: drafting, scoring and verifying are one launch.

A graph has a fixed number of rows; unused rows decode in a spare slot. If the host fills masks
between drafting and verifying, drafting, scoring and verifying are a graph each.
"""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from weakref import WeakKeyDictionary

import torch
from attrs import define, field
from torch import Tensor

from ...core import PADDING_TOKEN_ID, SamplingTensors, Scores, TokenCounts, VerifyOutput
from ...core.allowed_tokens import WORD_BITS
from ...core.tensor_fields import leaves, mapped, named_tensors
from ..decode import DecodeStep
from ..drafter import Drawn
from ..frontier import Frontier, Running, rows_of
from ..token_masks import StepMasks, fill_masks
from ..verdicts import Draft, Verdict, pack, read_verdicts
from .capture import CudaRecorder, Record
from .runner import EagerRunner, Runner

MAX_GRAPHS = 128
"""Each keeps some megabytes; the oldest is dropped when more kinds of batches come."""

_POWERS_UP_TO = 8
_LEAST_BOUND = 256

Params = tuple[SamplingTensors, Hashable]
"""Parameters for all rows of a graph, and a key of those that it can serve."""
Answer = Callable[[], list[Verdict]]
"""Returns a step's verdicts, one for each row; calling it waits."""


def _sent(tensor: Tensor) -> Callable[[], Tensor]:
    """Copy a tensor to the host; the returned function waits for the copy and returns it.

    The copy holds the values after all work launched so far; later work may overwrite the tensor.
    """
    if not tensor.is_cuda:
        copied = tensor.clone()
        return lambda: copied
    on_host, arrived = tensor.to("cpu", non_blocking=True), torch.cuda.Event()
    arrived.record()

    def wait() -> Tensor:
        arrived.synchronize()
        return on_host

    return wait


@define(eq=False)
class CapturedStep:
    """A recorded step, and the tensors that it reads and writes.

    Attributes:
        frontier: the requests, which the step reads, and advances for the next one. A graph knows
            only a bound of the lengths of its sequences.
        drafts: [num_spec_tokens, num_rows] int64, the place for drafts that are made on the host.
        masks: the place for masks; None if the step has none.
        packed: see `acceptor.app.verdicts.pack`.
        output: what was packed.
        replays: the graphs: one for the whole step, or with masks drafting, scoring and the rest.
        loaded: the parameters that were copied into the frontier last.
    """

    frontier: Frontier
    drafts: Tensor
    masks: StepMasks | None
    draft: Draft = field(init=False)
    packed: Tensor = field(init=False)
    output: VerifyOutput = field(init=False)
    replays: Sequence[Callable[[], None]] = field(init=False)
    loaded: SamplingTensors | None = field(default=None, init=False)
    draft_limits: list[int] = field(factory=list, init=False)

    def launch(self, running: Running) -> Answer:
        """Run it; waits for the drafts if they have masks."""
        if self.masks is None:
            (replay,) = self.replays
            replay()
        else:
            draft, score, verify = self.replays
            draft()
            drafted = _sent(self.draft.token_ids)
            score()
            # Masks are filled while the target computes.
            requests = [state.masks for state in running.states]
            num_bits = WORD_BITS * self.masks.allowed_tokens.shape[1]
            drafts = drafted().tolist()[: len(requests)]
            self.masks.load(fill_masks(requests, drafts, num_bits))
            verify()
        packed, output = _sent(self.packed), self.output
        return lambda: read_verdicts(packed(), output)


@define(eq=False)
class GraphRunner:
    """A `Runner` that records a step for the first batch of a kind, and replays it for the others.

    It begins steps ahead unless drafts or masks are made on the host.

    Attributes:
        is_bounded: whether each graph reads sequences only up to a length that is a power of two.
        captured: the recorded steps by kind of batch.
    """

    step: DecodeStep
    record: Record
    is_bounded: bool = False
    is_captured: bool = field(default=True, init=False)
    captured: dict[Hashable, CapturedStep] = field(factory=dict, init=False)
    _params: WeakKeyDictionary[Running, Params] = field(factory=WeakKeyDictionary, init=False)
    _begun: deque[Answer] = field(factory=deque, init=False)
    _last: CapturedStep | None = field(default=None, init=False)

    def run(self, running: Running, draft_limits: Sequence[int]) -> list[Verdict]:
        """See `Runner.run`."""
        if not self._begun:
            self._launch(running, draft_limits)
        return self._begun.popleft()()[: len(running.states)]

    def begin(self, running: Running, draft_limits: Sequence[int]) -> bool:
        """See `Runner.begin`."""
        if running.is_masked or not self.step.drafter.on_device:
            return False
        if not self._begun:
            self._launch(running, draft_limits)
        captured = self._captured_for(running, max(draft_limits))
        is_same = captured is self._last and captured.draft_limits == list(draft_limits)
        # The next step overwrites all but this one's packed answer.
        output = captured.output
        if not is_same or output.logprobs is not None or output.total_variation is not None:
            return False
        self._begun.append(captured.launch(running))
        return True

    def drop(self) -> None:
        """See `Runner.drop`."""
        self._begun.clear()

    def _launch(self, running: Running, draft_limits: Sequence[int]) -> None:
        captured = self._captured_for(running, max(draft_limits))
        self._load(captured, running, draft_limits)
        self._begun.append(captured.launch(running))
        self._last = captured

    def _params_of(self, running: Running) -> Params:
        if running not in self._params:
            params = running.stack(padded(len(running.states)))
            # Values that are not in tensors choose the kernels.
            held = (one for _, one in leaves(params))
            kind = tuple((one.shape, one.dtype) if isinstance(one, Tensor) else one for one in held)
            self._params[running] = params, kind
        return self._params[running]

    def _captured_for(self, running: Running, num_spec_tokens: int) -> CapturedStep:
        bound = self._bound(running) if self.is_bounded else None
        _, params = self._params_of(running)
        kind = params, num_spec_tokens, running.token_counts is not None, bound, running.is_masked
        if kind not in self.captured:
            if len(self.captured) == MAX_GRAPHS:
                del self.captured[next(iter(self.captured))]
            self.captured[kind] = self._capture(running, num_spec_tokens, bound)
        return self.captured[kind]

    def _bound(self, running: Running) -> int:
        """An upper bound of all lengths when the step begins, even before the last one is read."""
        longest = max(map(len, running.known.values())) + self.step.drafter.num_spec_tokens + 1
        return max(_LEAST_BOUND, 1 << (longest - 1).bit_length())

    def _capture(self, running: Running, num_spec_tokens: int, bound: int | None) -> CapturedStep:
        params, _ = self._params_of(running)
        device, num_rows = running.device, params.num_reqs
        idle = rows_of({}, (), num_rows, self.step.num_slots)
        frontier = Frontier(
            rows=idle.to(device),
            num_spec_tokens=num_spec_tokens,
            params=mapped(params, torch.clone),
            max_length=bound,
        )
        masks = None
        if running.is_masked:
            num_logits, vocab_size = num_rows * (num_spec_tokens + 1), self.step.target.vocab_size
            masks = StepMasks.empty(num_logits, vocab_size, device)
        captured = CapturedStep(
            frontier=frontier,
            drafts=torch.full((num_spec_tokens, num_rows), PADDING_TOKEN_ID, device=device),
            masks=masks,
        )
        captured.replays = self._record(captured, running.token_counts)
        return captured

    def _record(
        self, captured: CapturedStep, token_counts: TokenCounts | None
    ) -> list[Callable[[], None]]:
        frontier, scored = captured.frontier, deque[Scores](maxlen=1)

        def draft() -> None:
            if self.step.drafter.on_device:
                captured.draft = self.step.draft(frontier)
            else:
                captured.draft = self.step.join(frontier, Drawn.on_host(captured.drafts))

        def score() -> Scores:
            return self.step.score(frontier, captured.draft)

        def verify(scores: Scores) -> None:
            drafted = captured.draft
            output = self.step.verify(frontier, drafted, scores, token_counts, captured.masks)
            self.step.follow(frontier, drafted, scores, output)
            captured.output, captured.packed = output, pack(drafted, output)
            frontier.advance(output.token_ids, output.num_accepted)

        def run() -> None:
            draft()
            verify(score())

        if captured.masks is None:
            return [self.record(run)]
        replays = list[Callable[[], None]]()
        for part in (draft, lambda: scored.append(score()), lambda: verify(scored[-1])):
            replays.append(self.record(part))
            # A capture computes nothing, but the next part reads this one's results.
            replays[-1]()
        return replays

    def _load(self, captured: CapturedStep, running: Running, draft_limits: Sequence[int]) -> None:
        frontier, idle_slot_id = captured.frontier, self.step.num_slots
        params, _ = self._params_of(running)
        if captured.loaded is not params:
            # This does not wait for the device.
            goals = named_tensors(frontier.params)
            for (_, goal), (_, one) in zip(goals, named_tensors(params), strict=True):
                goal.copy_(one, non_blocking=True)
            captured.loaded = params
        captured.draft_limits = list(draft_limits)
        self.step.catch_up(running.known, draft_limits)
        rows = rows_of(running.known, draft_limits, frontier.params.num_reqs, idle_slot_id)
        frontier.rows.copy_(rows, non_blocking=True)
        if len(captured.drafts) and not self.step.drafter.on_device:
            draft = self.step.draft(Frontier.of(running.known, draft_limits, frontier.params))
            captured.drafts.fill_(PADDING_TOKEN_ID)
            captured.drafts[: draft.token_ids.shape[1], : len(draft_limits)] = draft.token_ids.t()


def padded(num_reqs: int) -> int:
    """The number of rows of a graph for these requests: few sizes, and few unused rows."""
    if num_reqs <= _POWERS_UP_TO:
        return 1 << (num_reqs - 1).bit_length()
    return -(-num_reqs // _POWERS_UP_TO) * _POWERS_UP_TO


def new_runner(step: DecodeStep, *, is_bounded: bool = False) -> Runner:
    """The fastest runner on the target's device; see `GraphRunner`."""
    if step.target.device.type == "cuda":
        return GraphRunner(step, CudaRecorder(), is_bounded)
    return EagerRunner(step)
