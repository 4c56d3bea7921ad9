"""The draw rule: its law, its ties, its blocks."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from acceptor.core.race import BLOCK_SIZE, race, race_of_shards
from acceptor.core.randomness import Level, Stream, random_words
from kit.chi_square import assert_follows

MAX_WORD = 2**32 - 1
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


def same_words(value: int = 2**31) -> Words:
    return lambda _, candidates: torch.full_like(candidates, value)


def logs(*weights: float) -> Tensor:
    return torch.tensor([weights], dtype=torch.float64).log()


def grid(num_points: int) -> Tensor:
    """Words at the midpoints of equal parts of [0, 1): an integration rule."""
    return ((torch.arange(num_points) + 0.5) / num_points * 2.0**32).long()


@pytest.mark.parametrize("ratio", [1e-3, 0.25, 1.0, 7.0, 40.0])
def test_two_tokens_win_in_proportion_by_numeric_integration(ratio: float) -> None:
    points = grid(400)
    pairs = torch.cartesian_prod(points, points)
    weights = logs(ratio, 1.0).expand(len(pairs), 2)
    winners = race(
        weights, lambda level, ids: pairs if level is Level.TOKEN else torch.zeros_like(ids)
    )
    assert (winners == 0).double().mean().item() == pytest.approx(ratio / (ratio + 1), abs=3e-3)


@pytest.mark.parametrize("ratio", [0.25, 7.0])
def test_two_blocks_win_in_proportion_to_their_mass(ratio: float) -> None:
    points = grid(100)
    pairs = torch.cartesian_prod(points, points)
    weights = torch.full((1, BLOCK_SIZE + 3), ratio / BLOCK_SIZE, dtype=torch.float64)
    weights[0, BLOCK_SIZE:] = torch.tensor([0.5, 0.2, 0.3])
    winners = race(
        weights.log().expand(len(pairs), -1),
        lambda level, ids: pairs if level is Level.BLOCK else torch.full_like(ids, 2**31),
    )
    in_first = (winners < BLOCK_SIZE).double().mean().item()
    assert in_first == pytest.approx(ratio / (ratio + 1), abs=1e-2)


LAWS = {
    "one token": [1.0],
    "two": [0.3, 0.7],
    "peaked": [0.97, 0.01, 0.01, 0.005, 0.005],
    "flat": [1.0] * 8,
    "with zeros": [0.0, 0.5, 0.0, 0.25, 0.25, 0.0],
    "not normalised": [1e-200, 3e-200, 6e-200],
}


@pytest.mark.parametrize("weights", LAWS.values(), ids=LAWS)
def test_real_words_give_the_law(weights: list[float]) -> None:
    num_rows = 200_000
    drawn = race(logs(*weights).expand(num_rows, -1), words_of(num_rows))
    assert_follows(torch.bincount(drawn, minlength=len(weights)), weights, detects=0.011)


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


@given(
    seed=st.integers(0, 2**32),
    vocab_size=st.sampled_from([1, 2, 5, 511, 512, 513, 1025]),
    data=st.data(),
)
def test_a_token_of_weight_zero_is_never_drawn(
    seed: int, vocab_size: int, data: st.DataObject
) -> None:
    weights = torch.randn(
        1, vocab_size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    survivor = data.draw(st.integers(0, vocab_size - 1))
    kept = torch.rand(vocab_size, generator=torch.Generator().manual_seed(seed + 1)) < 0.1
    kept[survivor] = True
    (drawn,) = race(weights.masked_fill(~kept, -torch.inf), words_of(1, seed)).tolist()
    assert kept[drawn]


def test_a_token_of_weight_zero_loses_with_the_best_word_against_the_worst() -> None:
    weights = torch.full((1, 3 * BLOCK_SIZE), -torch.inf, dtype=torch.float64)
    weights[0, 700] = -1e300

    def unfair(level: Level, candidates: Tensor) -> Tensor:
        last = 1 if level is Level.BLOCK else 700
        return torch.where(candidates == last, MAX_WORD, 0)

    assert race(weights, unfair).tolist() == [700]


@pytest.mark.parametrize("vocab_size", [1, 2, 512, 513, 2048])
def test_a_tie_goes_to_the_lowest_id(vocab_size: int) -> None:
    flat = torch.zeros(2, vocab_size, dtype=torch.float64)
    assert race(flat, same_words()).tolist() == [0, 0]


def test_a_tie_among_blocks_goes_to_the_lowest_block() -> None:
    weights = torch.zeros(1, 4 * BLOCK_SIZE, dtype=torch.float64)
    weights[0, :BLOCK_SIZE] = -5.0
    weights[0, BLOCK_SIZE : BLOCK_SIZE + 2] = -torch.inf
    weights[0, -1] = -torch.inf
    # Blocks 1, 2 and 3 lack tokens; only block 2 is complete. With two missing it is block 2's.
    assert race(weights, same_words()).tolist() == [2 * BLOCK_SIZE]
    weights[0, BLOCK_SIZE : BLOCK_SIZE + 2] = 0.0
    assert race(weights, same_words()).tolist() == [BLOCK_SIZE]


@pytest.mark.parametrize("vocab_size", [1, 6, 512, 513, 1300])
def test_noise_belongs_to_block_and_token_ids(vocab_size: int) -> None:
    asked: list[tuple[Level, list[int]]] = []

    def words(level: Level, candidates: Tensor) -> Tensor:
        asked.append((level, candidates[0].tolist()))
        # The last block wins.
        return torch.where(candidates == candidates.amax(), 0, MAX_WORD)

    race(torch.zeros(1, vocab_size, dtype=torch.float64), words)
    (block_level, block_ids), (token_level, token_ids) = asked
    num_blocks = -(-vocab_size // BLOCK_SIZE)
    first = BLOCK_SIZE * (num_blocks - 1)
    assert (block_level, token_level) == (Level.BLOCK, Level.TOKEN)
    assert block_ids == list(range(num_blocks))
    in_vocab = [token_id for token_id in token_ids if token_id < vocab_size]
    assert in_vocab == list(range(first, vocab_size))
    assert token_ids == list(range(first, first + len(token_ids)))


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=7), st.floats(-200, 200))
def test_weights_need_no_normaliser(weights: list[float], shift: float) -> None:
    row = torch.tensor([weights], dtype=torch.float64)
    assert torch.equal(race(row, words_of(1)), race(row + shift, words_of(1)))


def test_no_rows_draw_nothing() -> None:
    assert race(torch.zeros(0, 7, dtype=torch.float64), words_of(0)).shape == (0,)
    assert race(torch.zeros(0, 600, dtype=torch.float64), words_of(0)).shape == (0,)


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
