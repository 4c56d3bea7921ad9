"""Where two backends answer the same question differently, and whether the oracle says: near-tie.

It refuses to excuse one backend by the other: what excuses is float64, asked about both.
"""

import math
from collections.abc import Iterator, Sequence

from acceptor.backends.conformance import Difference, Findings
from acceptor.backends.conformance.moved import on_host
from acceptor.backends.conformance.oracle.logprobs import RowLogprobs
from acceptor.core import Logprobs
from kit.equivalence.questions import Answer, Asked, Heard, answers

LOGPROB_ORDER = "logprob order"


def compare(first: Heard, second: Heard) -> tuple[Difference, ...]:
    """Every answer, in the order of the questions."""
    found: list[Difference] = []
    if [*first.asked] != [*second.asked]:
        found.append(_unlike("answers", str([*first.asked]), str([*second.asked])))
    for question in first.asked:
        if question in second.asked:
            found += differences(first.asked[question], second.asked[question])
    return tuple(found)


def differences(first: Asked, second: Asked) -> Iterator[Difference]:
    """Of two answers to one question: tokens, how many were accepted, status, logprobs' order."""
    outputs = on_host((first.output, second.output))
    pairs = [*zip(*map(answers, outputs), strict=True)]
    turned = {request: pair for request, pair in enumerate(pairs) if pair[0] != pair[1]}
    if turned:
        judged = first.judge(), second.judge()
        for request, pair in turned.items():
            yield _turned(request, pair, judged)
    logprobs = outputs[0].logprobs, outputs[1].logprobs
    alike = [request for request in range(len(pairs)) if request not in turned]
    yield from _orders(first, logprobs, alike)


def _turned(
    request: int, pair: tuple[Answer, Answer], judged: tuple[Findings, Findings]
) -> Difference:
    """A near-tie if one is what parts each answer from the oracle's, if anything does."""
    mine, theirs = (
        # What is malformed is of no request, and so of all.
        [d for d in of.differences if d.request in (-1, request) and d.decision != LOGPROB_ORDER]
        for of in judged
    )
    causes = [d for d in mine if d not in theirs] + [d for d in theirs if d not in mine]
    if not causes:
        return _unlike("answer", str(pair[0]), str(pair[1]), request)
    return Difference(
        request,
        causes[0].row,
        causes[0].decision,
        str(pair[0]),
        str(pair[1]),
        max(cause.margin for cause in causes),
        excused=all(cause.excused for cause in causes),
        race=causes[0].race,
    )


def _orders(
    asked: Asked, logprobs: tuple[Logprobs | None, Logprobs | None], requests: Sequence[int]
) -> Iterator[Difference]:
    """Of the most likely tokens, where the tokens themselves are alike."""
    mine, theirs = logprobs
    if mine is None or theirs is None:
        if mine is not theirs:
            yield _unlike("logprobs", str(mine), str(theirs))
        return
    ids, others = mine.top_token_ids.tolist(), theirs.top_token_ids.tolist()
    for request in requests:
        for place, (row, other) in enumerate(zip(ids[request], others[request], strict=True)):
            if row != other:
                yield _order(asked.row_logprobs(request, place), (request, place), row, other)


def _order(
    oracle: RowLogprobs, where: tuple[int, int], mine: list[int], theirs: list[int]
) -> Difference:
    """A near-tie if at every rank the oracle can hardly tell the two tokens apart.

    Whoever keeps a token that a filter keeps or cuts by a hair has all later ones a rank behind.
    """
    certain = [[each for each in row if not _is_doubted(oracle, each)] for row in (mine, theirs)]
    ranks = [pair for pair in zip(*certain, strict=False) if pair[0] != pair[1]]
    gap = max((_gap(oracle, *pair) for pair in ranks), default=math.inf)
    excused = all(_are_close(oracle, *pair) for pair in ranks)
    return Difference(*where, LOGPROB_ORDER, str(mine), str(theirs), gap, excused=excused)


def _are_close(oracle: RowLogprobs, token_id: int, other: int) -> bool:
    gap = _gap(oracle, token_id, other)
    return 0 < gap < math.inf and gap <= min(map(oracle.tolerance, (token_id, other)))


def _gap(oracle: RowLogprobs, token_id: int, other: int) -> float:
    """In nats; infinite where one of them is no token."""
    are_tokens = all(0 <= each < len(oracle.values) for each in (token_id, other))
    return oracle.gap(token_id, other) if are_tokens else math.inf


def _is_doubted(oracle: RowLogprobs, token_id: int) -> bool:
    return 0 <= token_id < len(oracle.values) and bool(oracle.doubted[token_id])


def _unlike(what: str, mine: str, theirs: str, request: int = -1) -> Difference:
    return Difference(request, -1, what, mine, theirs, math.inf)
