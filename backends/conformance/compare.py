"""Where two outputs answer requests differently: of two backends, or of one in two batches."""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ...core.output import Output, VerifyOutput
from ...core.tensor_fields import named_tensors
from .calls import Watched
from .findings import Difference

NUMBERS, NUMBERS_TOLERANCE = ("logprobs.emitted", "total_variation"), 1e-4
"""Logprobs and total variations, whose sums may run in another order."""


def between(first: Watched, second: Watched) -> Iterator[Difference]:
    """Every request that got two answers in some call; excused if near-ties alone explain it.

    What excuses is the oracle's judgement of both: neither backend is an excuse for the other.

    Args:
        first, second: with what the two answered, in the same order, and what the oracle says.
    """
    judged = (*first.findings.differences, *second.findings.differences)
    if len(first.outputs) != len(second.outputs):
        expected, got = (f"{len(watched.outputs)} calls" for watched in (first, second))
        yield Difference(-1, -1, "answers", expected, got)
    for mine, theirs in zip(first.outputs, second.outputs, strict=False):
        for request, (one, other) in enumerate(zip(_answers(mine), _answers(theirs), strict=True)):
            if one != other:
                # What is of no request is of all.
                causes = [cause for cause in judged if cause.request in (-1, request)]
                yield Difference(
                    request,
                    min((cause.row for cause in causes), default=-1),
                    causes[0].decision if causes else "answer",
                    str(one),
                    str(other),
                    max((cause.margin for cause in causes), default=math.inf),
                    excused=bool(causes) and all(cause.excused for cause in causes),
                )


def in_another_batch(
    output: Output, again: Output, origins: Sequence[int | None], name: str
) -> Iterator[Difference]:
    """Every request that got another answer; there are no near-ties between runs of one backend.

    Args:
        output: of the first batch.
        again: of the other one.
        origins: which request of the first batch each of the other is; None for a stranger.
        name: what the other batch is.
    """
    before, after = _answers(output), _answers(again)
    also = _numbers(again)
    numbers = [(one, also[name]) for name, one in _numbers(output).items() if name in also]
    for place, request in enumerate(origins):
        if request is None:
            continue
        shown = [before[request], after[place]]
        for one, other in numbers:
            width = min(one.shape[1], other.shape[1])
            rows = one[request, :width], other[place, :width]
            if not torch.allclose(*rows, rtol=0, atol=NUMBERS_TOLERANCE):
                shown = [(*told, row.tolist()) for told, row in zip(shown, rows, strict=True)]
        if shown[0] != shown[1]:
            yield Difference(request, -1, f"answer, {name}", str(shown[0]), str(shown[1]))


def _answers(output: Output) -> list[tuple[object, ...]]:
    """Request by request: tokens, status, how many were accepted.

    Tokens that are equally likely have no order, and the oracle judges each list by itself.
    """
    columns = [[*map(_without_padding, output.token_ids)], output.status.tolist()]
    if isinstance(output, VerifyOutput):
        columns.append(output.num_accepted.tolist())
    return [*zip(*columns, strict=True)]


def _without_padding(token_ids: Tensor) -> list[int]:
    """Up to the last token, or a draw's only number."""
    numbers: list[int] = token_ids.reshape(-1).tolist()
    while len(numbers) > 1 and numbers[-1] == -1:
        numbers.pop()
    return numbers


def _numbers(output: Output) -> dict[str, Tensor]:
    """What has a tolerance: [num_reqs, any] each."""
    tensors = dict(named_tensors(output))
    return {name: tensors[name] for name in NUMBERS if name in tensors}
