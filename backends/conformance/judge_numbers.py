"""Logprobs and total variation held against the oracle, within what float32 can tell.

It refuses to compare them where the tokens already differ without an excuse.
"""

from collections.abc import Iterator

import numpy as np

from ...core.output import Logprobs
from .findings import Difference
from .oracle import RequestOracle
from .oracle.logprobs import RowLogprobs

TOTAL_VARIATION_TOLERANCE = 1e-4


def judge_row_logprobs(
    want: RowLogprobs | None, token_id: int, got: Logprobs, place: tuple[int, int]
) -> Iterator[Difference]:
    """One place of an output; `want` is None where nothing was emitted."""
    emitted = float(got.emitted[place])
    ids, values = got.top_token_ids[place].tolist(), got.top[place].tolist()
    if want is None:
        if emitted != -np.inf or set(ids) - {-1} or set(values) - {-np.inf}:
            yield _difference(place, "logprobs", "-inf and -1", f"{emitted}, {ids}, {values}")
        return
    if not _close(emitted, want, token_id):
        yield _difference(place, "logprob", str(want.values[token_id]), str(emitted))
    order = want.most_likely[: len(ids)]
    if not _are_distinct_tokens(ids, len(want.values)):
        yield _difference(place, "top token ids", str(order), str(ids))
    else:
        yield from _judge_order(want, order, ids, values, place)


def _are_distinct_tokens(ids: list[int], vocab_size: int) -> bool:
    return len(set(ids)) == len(ids) and all(0 <= token_id < vocab_size for token_id in ids)


def _judge_order(
    want: RowLogprobs, order: list[int], ids: list[int], values: list[float], place: tuple[int, int]
) -> Iterator[Difference]:
    for rank, token_id in enumerate(order):
        got, value = ids[rank], values[rank]
        expected = f"{token_id} with {want.values[token_id]}"
        if not _close(value, want, got):
            yield _difference(place, "top logprob", expected, f"{got} with {value}")
            return
        if got != token_id:
            gap = want.gap(got, token_id)
            excused = 0 < gap <= want.tolerance(token_id)
            yield Difference(
                *place, "logprob order", expected, f"{got} with {value}", gap, excused=excused
            )
            return


def judge_total_variation(
    oracle: RequestOracle, request: int, num_tokens: int, got: list[float]
) -> Iterator[Difference]:
    """One request's row of `VerifyOutput.total_variation`."""
    for row, value in enumerate(got):
        expected = 0.0 if row >= num_tokens else oracle.total_variation(row)
        error = abs(value - expected)
        if error <= TOTAL_VARIATION_TOLERANCE:
            continue
        width = 0.0 if row >= num_tokens else oracle.total_variation_width(row)
        if not error <= TOTAL_VARIATION_TOLERANCE + width:
            yield _difference((request, row), "total variation", str(expected), str(value))
            return


def _close(value: float, want: RowLogprobs, token_id: int) -> bool:
    expected = float(want.values[token_id])
    return value == expected or abs(value - expected) <= want.tolerance(token_id)


def _difference(place: tuple[int, int], what: str, expected: str, got: str) -> Difference:
    return Difference(*place, what, expected, got, float("inf"))
