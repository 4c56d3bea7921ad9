"""The draw rule: its law, its ties, its blocks."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from acceptor.core.race import BLOCK_SIZE, race, race_of_shards
from acceptor.core.randomness import Level, Stream, random_words
from kit.chi_square import assert_follows

Words = Callable[[Level, Tensor], Tensor]


def words_of(num_rows: int, seed: int = 0) -> Words:
    """Real words: rows are positions of one seed."""
    positions = torch.arange(num_rows)
    seeds = torch.full((num_rows,), seed)

    def words(level: Level, candidates: Tensor) -> Tensor:
        return random_words(
            seeds, positions, torch.zeros(num_rows), Stream.TARGET, level, candidates
        )

    return words


@pytest.mark.parametrize("vocab_size", [511, 513, 1300])
def test_real_words_give_the_law_across_blocks(vocab_size: int) -> None:
    num_rows = 8_000
    weights = torch.linspace(1, 3, vocab_size, dtype=torch.float64).roll(100)
    drawn = race(weights.log().expand(num_rows, -1), words_of(num_rows, seed=vocab_size))
    # Parts that ignore the blocks' borders, and the last id alone, which may be a block of its own.
    part = (torch.arange(vocab_size) * 5 // vocab_size).long()
    masses = torch.zeros(5, dtype=torch.float64).index_add_(0, part, weights)
    assert_follows(torch.bincount(part[drawn], minlength=5), masses, detects=0.05)
    last = [weights[:-1].sum(), weights[-1]]
    is_last = drawn == vocab_size - 1
    assert_follows([(~is_last).sum(), is_last.sum()], last, detects=0.05)


def test_a_tie_goes_to_the_lowest_block_and_in_it_to_the_lowest_id() -> None:
    def same(_: Level, candidates: Tensor) -> Tensor:
        return torch.full_like(candidates, 2**31)

    weights = torch.zeros(2, 4 * BLOCK_SIZE, dtype=torch.float64)
    weights[:, :BLOCK_SIZE] = -5.0
    # In the second row only block 2 is complete.
    weights[1, BLOCK_SIZE] = weights[1, -1] = -torch.inf
    assert race(weights, same).tolist() == [BLOCK_SIZE, 2 * BLOCK_SIZE]
    assert race(torch.zeros(1, 2, dtype=torch.float64), same).tolist() == [0]


@pytest.mark.parametrize("ends", [(1,), (511,), (3, 512, 700), (512, 1024), (640, 641, 1299)])
def test_unaligned_shards_of_a_row_draw_what_the_whole_row_does(ends: tuple[int, ...]) -> None:
    noise = torch.Generator().manual_seed(5)
    rows = 3 * torch.randn(300, 1300, dtype=torch.float64, generator=noise)
    rows[:100, 200:800] = -torch.inf
    shards = rows.tensor_split(ends, dim=1)
    assert torch.equal(race_of_shards(shards, words_of(300)), race(rows, words_of(300)))
    # A block in two shards is one block: with only their own masses, halves would lose.
    other = race_of_shards(shards[::-1], words_of(300))
    assert not torch.equal(other, race(rows, words_of(300)))
