"""Where two backends answer the same calls of a case differently, and whether that is excused.

What excuses is the oracle's judgement of both: neither backend is an excuse for the other.
"""

import math
from collections.abc import Iterator

from ...core.output import VerifyOutput
from .calls import Output, Watched
from .findings import LOGPROB_ORDER, Difference

Answer = tuple[object, ...]


def between(first: Watched, second: Watched) -> Iterator[Difference]:
    """Every request that got two answers in some call; excused if near-ties alone explain it.

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
                if one[:-1] == other[:-1]:
                    causes = [cause for cause in causes if cause.decision == LOGPROB_ORDER]
                yield Difference(
                    request,
                    min((cause.row for cause in causes), default=-1),
                    causes[0].decision if causes else "answer",
                    str(one),
                    str(other),
                    max((cause.margin for cause in causes), default=math.inf),
                    excused=bool(causes) and all(cause.excused for cause in causes),
                )


def _answers(output: Output) -> list[Answer]:
    """Request by request: tokens, how many were accepted, status, and the most likely tokens."""
    columns = [output.token_ids.tolist(), output.status.tolist()]
    if isinstance(output, VerifyOutput):
        columns.append(output.num_accepted.tolist())
    most_likely = None if output.logprobs is None else output.logprobs.top_token_ids.tolist()
    columns.append([None] * len(columns[0]) if most_likely is None else most_likely)
    return [*zip(*columns, strict=True)]
