"""A recorded step: the tensors that it reads and writes, and its answer on the host."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from attrs import define, field
from torch import Tensor

from ...core import VerifyOutput
from ...core.allowed_tokens import WORD_BITS
from ...core.tensor_fields import leaves, named_tensors
from ..frontier import Frontier, Running
from ..token_masks import StepMasks, fill_masks
from ..verdicts import Draft, Verdict, pack, read_verdicts

Answer = Callable[[], list[Verdict]]
"""Returns a step's verdicts, one for each row; calling it waits."""


def sent(tensor: Tensor) -> Callable[[], Tensor]:
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
        loaded: a weak reference to the batch whose parameters are in the frontier.
    """

    frontier: Frontier
    drafts: Tensor
    masks: StepMasks | None
    draft: Draft = field(init=False)
    packed: Tensor = field(init=False)
    output: VerifyOutput = field(init=False)
    replays: Sequence[Callable[[], None]] = field(init=False)
    loaded: Callable[[], Running | None] = field(default=lambda: None, init=False)
    draft_limits: list[int] = field(factory=list, init=False)

    def finish(self, output: VerifyOutput) -> None:
        """End a step: pack its answer for the host, and advance the frontier."""
        self.output, self.packed = output, pack(self.draft, output)
        self.frontier.advance(output.token_ids, output.num_accepted)

    def launch(self) -> Answer:
        """Run it; waits for the drafts if they have masks."""
        if self.masks is None:
            (replay,) = self.replays
            replay()
        else:
            draft, score, verify = self.replays
            draft()
            drafted = sent(self.draft.token_ids)
            score()
            # Masks are filled while the target computes.
            self.masks.load(self._filled(drafted()))
            verify()
        packed, output = sent(self.packed), self.output
        return lambda: read_verdicts(packed(), output)

    def _filled(self, drafted: Tensor) -> StepMasks:
        running = self.loaded()
        assert running is not None
        assert self.masks is not None
        requests = [state.masks for state in running.states]
        num_bits = WORD_BITS * self.masks.allowed_tokens.shape[1]
        return fill_masks(requests, drafted.tolist()[: len(requests)], num_bits)

    def leaves_all_for(self, draft_limits: Sequence[int]) -> bool:
        """Whether it can run again with these limits before the host has read its whole output."""
        reads_more = self.output.logprobs is not None or self.output.total_variation is not None
        return self.draft_limits == list(draft_limits) and not reads_more


def kind_of(params: Any) -> Hashable:
    """A key, equal for parameters that one graph can serve: shapes, and all values on the host."""
    # Values that are not in tensors choose the kernels.
    held = (one for _, one in leaves(params))
    return tuple((one.shape, one.dtype) if isinstance(one, Tensor) else one for one in held)


def copy_params(to: Any, params: Any) -> None:
    """Overwrite parameters with others of the same kind, without waiting for the device."""
    for (_, goal), (_, one) in zip(named_tensors(to), named_tensors(params), strict=True):
        goal.copy_(one, non_blocking=True)
