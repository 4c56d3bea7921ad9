"""Batches that chance would hardly ever make: extreme random words, extreme logits, no requests.

This module refuses to be random.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
from attrs import field, frozen
from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.policies import Block, Policy, Probabilistic, Strict, Synthetic
from ...core.ports import Sampler
from ...core.randomness import Level, Stream
from ...core.sampling_params import SamplingParams
from .case import Case
from .check import check_verify
from .findings import Findings
from .rare_words import (
    POSITION,
    SEED_OF_HIGHEST_UNIFORM,
    SEED_OF_LOWEST_UNIFORM,
    WORDS_0,
    WORDS_MAX,
)
from .sampling import draw

HARDLY = -60.0
"""The logit of a draft token that is sure to be rejected and yet not impossible."""


@frozen
class Corner:
    """One fixed check.

    Attributes:
        name: what it is about.
        check: runs it.
    """

    name: str
    check: Callable[[Sampler, torch.device], Findings] = field(eq=False)


def corners() -> Iterator[Corner]:
    """All of them."""
    yield from _races("a race that only candidate {} can win, by word 2**32 - 1", WORDS_MAX, alone)
    yield from _races("a race that candidate {} cannot win, with word 0", WORDS_0, banned)
    yield from _acceptance_tests()
    yield from _extreme_logits()
    yield from _empty_batches()


def alone(vocab_size: int, first: int, count: int) -> Tensor:
    """Logits that only some tokens have."""
    logits = torch.full((vocab_size,), -torch.inf)
    logits[first : first + count] = torch.arange(float(count))
    return logits


def banned(vocab_size: int, first: int, count: int) -> Tensor:
    """Logits that all but some tokens have."""
    logits = torch.arange(float(vocab_size)) % 7
    logits[first : first + count] = -torch.inf
    return logits


def _races(
    name: str,
    words: Mapping[tuple[Stream, Level], tuple[int, int]],
    row_of: Callable[[int, int, int], Tensor],
) -> Iterator[Corner]:
    for (stream, level), (seed, candidate) in words.items():
        if level is Level.BLOCK:
            row = row_of(2100, 512 * candidate, 512)
        else:
            row = row_of(5, candidate, 1)
        title = f"{stream.name}, {level.name}: {name.format(candidate)}"
        yield Corner(title, partial(_draw_from, row, stream, SamplingParams(seed=seed)))


def _draw_from(
    row: Tensor, stream: Stream, wishes: SamplingParams, sampler: Sampler, device: torch.device
) -> Findings:
    case = Case(num_draft_tokens=(0,), vocab_size=len(row), twist="repeat")
    if stream is Stream.RECOVER:
        return _verify(Probabilistic(), wishes, *_rejected(row), sampler, device)
    plain = SampleBatch(
        logits=row[None].to(device),
        positions=torch.tensor([POSITION], device=device),
        draft_index=None if stream is Stream.TARGET else 1,
    )
    found = draw(case, plain, [wishes], sampler).findings
    if stream is Stream.TARGET:
        found += _verify(Strict(), wishes, row[None], [], sampler, device)
    return found


def _rejected(row: Tensor) -> tuple[Tensor, list[int]]:
    """Two rows and a draft token whose rejection leaves just the row."""
    rows = torch.stack((row, row))
    drafted = int(row.argmin())
    rows[0, drafted] = HARDLY
    return rows, [drafted]


def _verify(
    policy: Policy,
    wishes: SamplingParams,
    rows: Tensor,
    drafts: Sequence[int],
    sampler: Sampler,
    device: torch.device,
) -> Findings:
    """One request with a one-hot draft."""
    batch = VerifyBatch(
        target_logits=rows.to(device),
        cu_num_logits=torch.tensor([0, len(rows)], device=device),
        draft_token_ids=torch.tensor([drafts], dtype=torch.int64, device=device),
        positions=torch.tensor([POSITION], device=device),
    )
    return check_verify(Case(policy=policy, twist="repeat"), batch, [wishes], sampler)


def _acceptance_tests() -> Iterator[Corner]:
    lowest = SamplingParams(seed=SEED_OF_LOWEST_UNIFORM)
    highest = SamplingParams(seed=SEED_OF_HIGHEST_UNIFORM)
    impossible, certain = banned(5, 2, 1).expand(2, 5), alone(5, 2, 1).expand(2, 5)
    tests: Sequence[tuple[Policy, Policy]] = (
        (Probabilistic(), Probabilistic()),
        (Block(), Block()),
        (Synthetic(rates=(0.0,)), Synthetic(rates=(1.0,))),
    )
    for never, always in tests:
        name = f"{never.name}: "
        yield Corner(
            name + "an impossible token and the lowest uniform",
            partial(_verify, never, lowest, impossible, [2]),
        )
        yield Corner(
            name + "a certain token and the highest uniform",
            partial(_verify, always, highest, certain, [2]),
        )


def _extreme_logits() -> Iterator[Corner]:
    greedy, sampled = SamplingParams(seed=1, temperature=0), SamplingParams(seed=1)
    first_only = SamplingParams(seed=1, top_k=1)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        low, high = torch.finfo(dtype).min, torch.finfo(dtype).max
        rows = {
            "only the lowest floats": [low] * 5,
            "the lowest floats as a mask": [low, low, 1.0, 2.0, low],
            "the highest and the lowest floats": [low, high, 0.0, high, low],
            "zeros of both signs": [-0.0, 0.0, -1.0, 0.0, -0.0],
        }
        for name, row in rows.items():
            for wishes in (greedy, sampled, first_only):
                title = f"{dtype}: {name}, temperature {wishes.temperature}, top-k {wishes.top_k}"
                logits = torch.tensor([row, row], dtype=dtype)
                yield Corner(title, partial(_verify, Probabilistic(), wishes, logits, [1]))


def _empty_batches() -> Iterator[Corner]:
    for num_spec_tokens in (0, 3):
        name = f"no requests, room for {num_spec_tokens} draft tokens"
        yield Corner(name, partial(_verify_nothing, num_spec_tokens))
    one_token = torch.zeros(3, 1)
    for policy in (Strict(), Probabilistic(), Block()):
        name = f"{policy.name}: a vocabulary of one token"
        yield Corner(name, partial(_verify, policy, SamplingParams(seed=1), one_token, [0, 0]))


def _verify_nothing(num_spec_tokens: int, sampler: Sampler, device: torch.device) -> Findings:
    ids = partial(torch.zeros, dtype=torch.int64, device=device)
    batch = VerifyBatch(
        target_logits=torch.zeros(0, 9, device=device),
        cu_num_logits=ids(1),
        draft_token_ids=ids(0, num_spec_tokens),
        positions=ids(0),
    )
    plain = SampleBatch(logits=torch.zeros(0, 9, device=device), positions=ids(0))
    case = Case(policy=Probabilistic(), num_draft_tokens=(), twist="repeat")
    verified = check_verify(case, batch, [], sampler)
    return verified + draw(case, plain, [], sampler).findings
