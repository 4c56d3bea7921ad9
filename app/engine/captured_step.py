"""A recorded step: where it reads and writes, and how its tokens get to the host."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import torch
from attrs import define, evolve, field, fields, frozen, has
from torch import Tensor

from ...core.output import VerifyOutput
from ..drafter import Draft
from ..frontier import Frontier, Running
from ..request_state import Verdict
from ..verdicts import pack, read_verdicts


@frozen(eq=False)
class Answer:
    """What a step decides, on its way to the host.

    Attributes:
        packed: see `acceptor.app.verdicts.pack`; there, once it has arrived.
        output: see `read_verdicts`.
        arrived: when; None where nothing has to be waited for.
    """

    packed: Tensor
    output: VerifyOutput
    arrived: torch.cuda.Event | None

    @classmethod
    def of(cls, packed: Tensor, output: VerifyOutput) -> "Answer":
        """Of a step that has been launched; a later one may write over it."""
        if not packed.is_cuda:
            return cls(packed.clone(), output, None)
        on_host, arrived = packed.to("cpu", non_blocking=True), torch.cuda.Event()
        arrived.record()
        return cls(on_host, output, arrived)

    def verdicts(self) -> list[Verdict]:
        """One for each row; waits."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return read_verdicts(self.packed, self.output)


@define(eq=False)
class CapturedStep:
    """A recorded step, and where it reads and writes.

    Attributes:
        frontier: the requests, as the step finds them; it leaves them as the next one needs them. A
            graph knows no more of the lengths of its sequences than a bound.
        drafts: [num_spec_tokens, num_rows] int64, where drafts go that are made on the host.
        packed: see `acceptor.app.verdicts.pack`.
        output: what was packed.
        replay: runs it.
        loaded: tells the batch whose parameters are in the frontier, and does not hold it.
        draft_limits: as they are in the frontier.
    """

    frontier: Frontier
    drafts: Tensor
    packed: Tensor = field(init=False)
    output: VerifyOutput = field(init=False)
    replay: Callable[[], None] = field(init=False)
    loaded: Callable[[], Running | None] = field(default=lambda: None, init=False)
    draft_limits: list[int] = field(factory=list, init=False)

    def finish(self, draft: Draft, output: VerifyOutput) -> None:
        """The last of a step: leave its answer for the host, and the frontier of the next step."""
        self.output, self.packed = output, pack(draft, output)
        self.frontier.advance(output.token_ids, output.num_accepted)

    def launch(self) -> Answer:
        """Run it."""
        self.replay()
        return Answer.of(self.packed, self.output)

    def leaves_all_for(self, draft_limits: Sequence[int]) -> bool:
        """Whether it can run again with these limits before the host has read more than answers."""
        reads_more = self.output.logprobs is not None or self.output.total_variation is not None
        return self.draft_limits == list(draft_limits) and not reads_more


def _leaves(params: Any) -> Iterator[Any]:
    if has(type(params)):
        for field in fields(type(params)):
            yield from _leaves(getattr(params, field.name))
    else:
        yield params


def kind_of(params: Any) -> Hashable:
    """What must be equal for one graph to serve both: shapes, and all that is on the host."""
    # What is not in a tensor chose the kernels.
    return tuple(
        (one.shape, one.dtype) if isinstance(one, Tensor) else one for one in _leaves(params)
    )


def fixed_copy(params: Any) -> Any:
    """The same in tensors of its own."""
    if isinstance(params, Tensor):
        return params.clone()
    if not has(type(params)):
        return params
    copies = {field.name: fixed_copy(getattr(params, field.name)) for field in fields(type(params))}
    return evolve(params, **copies)


def copy_params(to: Any, params: Any) -> None:
    """Write parameters of the same kind over others; does not wait for the device."""
    for goal, one in zip(_leaves(to), _leaves(params), strict=True):
        if isinstance(one, Tensor):
            goal.copy_(one, non_blocking=True)
