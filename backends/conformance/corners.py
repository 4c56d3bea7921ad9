"""Batches that chance seldom makes: extreme random words, extreme logits, ties, no requests."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from attrs import evolve
from torch import Tensor

from ...core import Block, Level, Policy, Probabilistic, RelaxedTopN, Stream, Strict, Synthetic
from ...core.sampling_params import LogprobsMode, SamplingParams
from .case import Case
from .requests import Inputs, Request
from .run import BatchOf, Check, Trial, check_call

POSITION = 1
"""The position of all decisions below, at draft index 1."""

Word = tuple[int, int]
"""(seed, candidate) that have it at `POSITION` and draft index 1."""

WORDS: dict[tuple[Stream, Level], tuple[Word, Word]] = {
    (Stream.TARGET, Level.BLOCK): ((887881469, 0), (36842616, 0)),
    (Stream.TARGET, Level.TOKEN): ((1000577470, 1), (249934942, 0)),
    (Stream.DRAFT, Level.BLOCK): ((164370637, 0), (2030957378, 3)),
    (Stream.DRAFT, Level.TOKEN): ((3497259954, 1), (1866196512, 2)),
    (Stream.RECOVER, Level.BLOCK): ((457067047, 1), (1735343548, 3)),
    (Stream.RECOVER, Level.TOKEN): ((2559572328, 0), (585051937, 1)),
}
"""Which candidates get word 0, the smallest exponential, and 2**32 - 1, the largest."""

SEED_OF_LOWEST_UNIFORM = 4960468
"""Its first acceptance uniform at `POSITION` is 2**-24."""

SEED_OF_HIGHEST_UNIFORM = 1560275
"""Its first acceptance uniform at `POSITION` is 1 - 2**-24."""

HARDLY = -60.0
"""The logit of a draft token that is certainly rejected, but not impossible."""

EQUAL_MASSES: tuple[tuple[float, tuple[int, ...]], ...] = (
    *((top_p, (1,) * 8) for top_p in (0.25, 0.5, 0.75)),
    *((top_p, (2, 2, 4)) for top_p in (0.25, 0.5)),
    *((top_p, (1, 2, 5)) for top_p in (0.375, 0.5)),
    (0.5, (512, 512)),
    (0.5, (300, 212, 500, 12)),
    (0.75, (1000, 536, 512)),
)
"""A top-p, and how many tokens of equal weight tie at each logit, from the largest logit down."""

SAMPLED = SamplingParams(seed=1)
GREEDY = evolve(SAMPLED, temperature=0)
SHOWN = evolve(SAMPLED, logprobs=5, logprobs_mode=LogprobsMode.PROCESSED)
"""Parameters that ask for logprobs of the law that is drawn from."""

Corner = tuple[str, Trial]
"""A fixed check with its description."""


def corners() -> Iterator[Corner]:
    """All corners."""
    yield from _races("a race that only candidate {} can win, by word 2**32 - 1", 1, alone)
    yield from _races("a race that candidate {} cannot win, with word 0", 0, banned)
    yield from _races("rare candidate {} wins by word 0", 0, rare)
    yield from _races("rare candidate {} loses by word 2**32 - 1", 1, rare)
    yield from _acceptance_tests()
    yield from _extreme_logits()
    yield from _cold_logprobs()
    yield from _masses_of_one()
    yield from _long_searches()
    yield from _ranks()
    yield "no requests", Check(Case(num_draft_tokens=()))


def alone(vocab_size: int, first: int, count: int) -> Tensor:
    """Logits that give weight to `count` tokens only."""
    logits = torch.full((vocab_size,), -torch.inf)
    logits[first : first + count] = torch.arange(float(count))
    return logits


def banned(vocab_size: int, first: int, count: int) -> Tensor:
    """Logits that give weight to all tokens but `count`."""
    logits = torch.arange(float(vocab_size)) % 7
    logits[first : first + count] = -torch.inf
    return logits


def rare(vocab_size: int, first: int, count: int) -> Tensor:
    """Nearly equal logits; `count` tokens together have a share of 1e-8, the last one has none."""
    logits = torch.arange(float(vocab_size)) % 7 / 100
    logits[first : first + count] += math.log(1e-8 * (vocab_size - count) / count)
    logits[-1] = -torch.inf
    return logits


def _races(name: str, word: int, row_of: Callable[[int, int, int], Tensor]) -> Iterator[Corner]:
    for (stream, level), words in WORDS.items():
        seed, candidate = words[word]
        is_block = level is Level.BLOCK
        row = row_of(2100, 512 * candidate, 512) if is_block else row_of(5, candidate, 1)
        title = f"{stream.name}, {level.name}: {name.format(candidate)}"
        params = SamplingParams(seed=seed)
        if stream is Stream.RECOVER:
            # A draft token whose rejection leaves the row's law unchanged.
            drafted = int(row.argmin())
            row[drafted] = HARDLY
            yield _corner(title, Probabilistic(), params, row, [drafted])
        elif stream is Stream.DRAFT:
            yield _corner(title, Strict(), params, row, [0], partial(Inputs.draft_batch, place=1))
        else:
            yield _corner(title, Strict(), params, row, [])
            yield _corner(f"{title}, plainly", Strict(), params, row, [], Inputs.plain_batch)


def _corner(
    title: str,
    policy: Policy,
    params: SamplingParams,
    rows: Tensor,
    drafts: list[int],
    batch_of: BatchOf = Inputs.verify_batch,
) -> Corner:
    """One request with a one-hot draft; its rows differ or are one, [V]."""
    rows = rows.expand(len(drafts) + 1, -1).contiguous()
    dtype = str(rows.dtype).removeprefix("torch.")
    case = Case(
        policy=policy,
        vocab_size=rows.shape[1],
        dtype=dtype,
        draft_dtype=dtype,
        drafter="one-hot",
        variation="repeated",
    )
    request = Request(
        params=params,
        target_logits=rows,
        draft_logits=rows[:-1],
        draft_token_ids=tuple(drafts),
        position=POSITION,
    )
    return title, partial(check_call, Inputs(case, (request,)), batch_of)


def _acceptance_tests() -> Iterator[Corner]:
    lowest = SamplingParams(seed=SEED_OF_LOWEST_UNIFORM)
    highest = SamplingParams(seed=SEED_OF_HIGHEST_UNIFORM)
    impossible = banned(5, 2, 1)
    # The second draft token is uncertain, so that uniforms are drawn at all.
    certain = torch.stack((alone(5, 2, 1), *torch.zeros(2, 5)))
    tests: tuple[tuple[Policy, Policy], ...] = (
        (Probabilistic(), Probabilistic()),
        (Block(), Block()),
        (Synthetic(rates=(0.0,)), Synthetic(rates=(1.0, 0.5))),
    )
    for never, always in tests:
        name = f"{never.name}: an impossible token and the lowest uniform"
        yield _corner(name, never, lowest, impossible, [2])
        name = f"{always.name}: a certain token and the highest uniform"
        yield _corner(name, always, highest, certain, [2, 0])


def _extreme_logits() -> Iterator[Corner]:
    hot, shown_greedy = evolve(SHOWN, temperature=1e6), evolve(SHOWN, temperature=0)
    all_params = (GREEDY, SAMPLED, evolve(SAMPLED, top_k=1), hot, shown_greedy)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        low, high = torch.finfo(dtype).min, torch.finfo(dtype).max
        rows = {
            "only the lowest floats": [low] * 5,
            "the lowest floats as a mask": [low, low, 1.0, 2.0, low],
            "the highest and the lowest floats": [low, high, 0.0, high, low],
            "zeros of both signs": [-0.0, 0.0, -1.0, 0.0, -0.0],
            "further apart than floats reach": [-60000.4, -60000.1, high, low, low / 2],
        }
        for name, row in rows.items():
            for params in all_params:
                title = f"{dtype}: {name}, temperature {params.temperature}, top-k {params.top_k}"
                title += ", logprobs" * (params.logprobs is not None)
                yield _corner(title, Probabilistic(), params, torch.tensor(row, dtype=dtype), [1])


def _cold_logprobs() -> Iterator[Corner]:
    """Logits whose differences float32 can hold, but not after division by the temperature."""
    row = torch.tensor([-3.0, 0.0, -1.0, -2.0, -4.0])
    for temperature in (1.2e-38, 1e-30, 1e-6):
        params = evolve(SHOWN, temperature=temperature)
        for scale in (1.0, 1e36):
            title = f"logprobs of logits by {scale} at temperature {temperature}"
            yield _corner(title, Probabilistic(), params, row * scale, [1])


def _masses_of_one() -> Iterator[Corner]:
    """Logits so close that their weights are equal, which makes masses exact."""
    for dtype in (torch.float32, torch.bfloat16):
        for top_p, sizes in EQUAL_MASSES:
            levels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
            order = torch.randperm(len(levels), generator=torch.Generator().manual_seed(1))
            row = (-1e-30 * levels[order]).to(dtype)
            params = evolve(SHOWN, top_p=top_p, logprobs=8)
            title = f"{dtype}: equal masses of {sizes}, of which top-p {top_p} is reached exactly"
            yield _corner(title, Probabilistic(), params, row, [0])


def _long_searches() -> Iterator[Corner]:
    """A top-p that is nearly reached; unaligned rows of which top-k keeps a few; tiny logits."""
    row = torch.cat((torch.tensor([0.6, -1.1]), torch.linspace(-2.2, -6.0, 255)))
    title = "the largest logit has a share of 0.3048 of what top-k keeps, and top-p is 0.3051"
    params = evolve(SHOWN, top_k=50, top_p=0.3051)
    yield _corner(title, Probabilistic(), params, row, [0])
    params = evolve(SHOWN, top_k=6, logprobs=8)
    rows = torch.randn(3, 5003, generator=torch.Generator().manual_seed(1)).bfloat16()
    title = f"rows that are not aligned, top-k {params.top_k} in some of ten blocks"
    yield _corner(title, Probabilistic(), params, rows, [0, 0])
    row = torch.zeros(5000).index_fill(0, torch.arange(0, 5000, 500), 1e-27).bfloat16()
    title = "tiny logits in ten blocks, at a temperature at which the others have no mass"
    params = evolve(SHOWN, temperature=1.2e-38, top_p=0.25)
    yield _corner(title, Probabilistic(), params, row.expand(2, -1).contiguous(), [0])
    row = torch.full((20, 512), -3.0).index_fill(0, torch.tensor([13]), -0.2)
    row = row.index_fill(1, torch.tensor([0]), 0.0).bfloat16().view(1, -1)
    title = "top-k 50 keeps one logit of each of twenty blocks, and one block as a whole"
    yield _corner(title, Strict(), evolve(SHOWN, top_k=50), row.repeat(4, 1), [6700, 6701, 6702])


def _ranks() -> Iterator[Corner]:
    """Ties, and logits that differ where probabilities hardly do."""
    row = torch.zeros(1200).index_fill(0, torch.tensor([7, 600, 1199]), 1.0)
    for draft in ([7, 7], [600, 7]):
        title = f"ties at temperature 0 across blocks, drafts {draft}"
        yield _corner(title, Probabilistic(), GREEDY, row, draft)
    row, params = torch.arange(5.0) / 100, evolve(SAMPLED, temperature=1e6)
    for policy, drafts in ((RelaxedTopN(2, 0.5), [3, 2]), (RelaxedTopN(2, 0.0), [4, 3])):
        yield _corner(f"{policy} at temperature 1e6", policy, params, row, drafts)
