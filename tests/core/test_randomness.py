"""Random words against published vectors and the contract, and the race that draws with them."""

from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from acceptor.backends.conformance.oracle.race import philox
from acceptor.core.race import BLOCK_SIZE, race, race_of_shards
from acceptor.core.randomness import (
    Level,
    Stream,
    acceptance_uniform,
    exponential,
    philox4x32,
    random_words,
)
from kit.chi_square import assert_follows

# Published by Random123 for philox4x32-10: counter, key, result.
KNOWN_ANSWERS = """\
00000000 00000000 00000000 00000000 00000000 00000000 6627e8d5 e169c58d bc57ac4c 9b00dbd8
ffffffff ffffffff ffffffff ffffffff ffffffff ffffffff 408f276d 41c83b0e a20bc7c6 6d5451fd
243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0 d16cfe09 94fdcceb 5001e420 24126ea1
"""

words32 = st.one_of(
    st.sampled_from([0, 1, 2**16, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1]),
    st.integers(0, 2**32 - 1),
)


def both(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[list[int], list[int]]:
    """The numbers of the core and of the oracle, which share no code."""
    ours = philox4x32(torch.tensor(counter), torch.tensor(key)).tolist()
    first, second, third, fourth = np.array(counter, dtype=np.uint64)
    theirs = philox((first, second, third, fourth), key[0] + (key[1] << 32))
    return ours, [int(word) for word in theirs]


@pytest.mark.parametrize("line", KNOWN_ANSWERS.splitlines())
def test_philox_gives_the_published_answers(line: str) -> None:
    a, b, c, d, key_0, key_1, *answer = (int(word, 16) for word in line.split())
    assert both((a, b, c, d), (key_0, key_1)) == (answer, answer)


@given(st.tuples(words32, words32, words32, words32), st.tuples(words32, words32))
def test_philox_never_loses_a_carry(counter: tuple[int, ...], key: tuple[int, int]) -> None:
    ours, theirs = both(counter, key)
    assert ours == theirs


def test_the_numbers_of_the_contract_never_change() -> None:
    """Written out, so that a seed replays the same text in every version and every backend."""
    streams = {stream.name: stream.value for stream in Stream}
    assert streams == {"TARGET": 0, "DRAFT": 1, "ACCEPT": 2, "RECOVER": 3}
    assert {level.name: level.value for level in Level} == {"BLOCK": 0, "TOKEN": 1}
    words = random_words(
        torch.tensor([0x0123456789ABCDEF]),
        torch.tensor([1000]),
        torch.tensor([3]),
        Stream.RECOVER,
        Level.TOKEN,
        torch.arange(512, 518)[None],
    )
    written = " ".join(f"{value:08x}" for value in words.flatten().tolist())
    assert written == "4764f0d3 20b47f93 bfcf47f4 01b15a28 c532cfcc 126dcb17"


def test_a_position_is_a_32_bit_word() -> None:
    """What no sequence has still gives words, the same in every backend."""
    seed, index, candidates = torch.tensor([1]), torch.tensor([1]), torch.arange(4)[None]
    below, largest, beyond, zero = (
        random_words(seed, torch.tensor([p]), index, Stream.DRAFT, Level.TOKEN, candidates)
        for p in (-1, 2**32 - 1, 2**32, 0)
    )
    assert torch.equal(below, largest)
    assert torch.equal(beyond, zero)
    assert bool(((below >= 0) & (below < 2**32)).all())


def exact_exponential(random_word: int) -> float:
    with localcontext(prec=60):
        u = (Decimal(random_word) + Decimal("0.5")) / 2**32
        return float(-(1 - u).ln())


@given(words32)
def test_exponentials_are_exact_to_the_last_bits(random_word: int) -> None:
    computed = exponential(torch.tensor([random_word])).item()
    assert computed == pytest.approx(exact_exponential(random_word), rel=4e-16, abs=0)


@given(words32)
def test_acceptance_uniforms_are_exact_in_float32(random_word: int) -> None:
    uniform = acceptance_uniform(torch.tensor([random_word]))
    assert uniform.float().double().item() == uniform.item()
    assert uniform.item() == (random_word // 512 + 0.5) / 2**23


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
    # A block in two shards is one block: with only their own masses, its halves would lose.
    other = race_of_shards(shards[::-1], words_of(300))
    assert not torch.equal(other, race(rows, words_of(300)))
