"""The CUDA functions that make a filtered row's law, on the CPU, against the reference.

Rows that need counting are also counted by several CTAs' shares, which must agree bit for bit.
"""

import ctypes
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from acceptor.core.race import BLOCK_SIZE
from acceptor.tests.kit.cuda_on_host import GXX
from acceptor.tests.kit.host_laws import (
    Build,
    Recipe,
    build_laws,
    check_bounds,
    check_row,
    find_law,
    host_law,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GXX is None, reason="builds the kernels with g++"),
]
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return build_laws(tmp_path_factory.mktemp("laws"))


@pytest.fixture
def bf16(build: Build) -> ctypes.CDLL:
    return build(BF16)


def random_rows(seed: int, count: int) -> Iterator[Tensor]:
    """Peaked and flat rows, rounded ones with many ties, and some with impossible tokens."""
    noise = torch.Generator().manual_seed(seed)
    sizes = (1, 2, 31, 511, 512, 513, 700, 1301, 5000)
    for index in range(count):
        size = sizes[index % len(sizes)]
        row = torch.randn(size, generator=noise) * (2.0, 0.01, 1.0, 5.0, 0.0)[index % 5]
        if index % 3 == 0:
            peaks = torch.randint(size, (8,), generator=noise)
            row[peaks] += 6 + 14 * torch.rand(8, generator=noise)
        if index % 7 == 0:
            row = row.round()
        if index % 4 == 0:
            row[torch.rand(size, generator=noise) < 0.5] = -torch.inf
            row[index % size] = 1.0
        yield row


def recipes(seed: int, count: int) -> Iterator[Recipe]:
    noise = torch.Generator().manual_seed(seed)
    for index in range(count):
        chance = [float(x) for x in torch.rand(4, generator=noise)]
        temperature = (0.8, 0.3 + 2 * chance[0])[index % 2]
        min_p = (0.0, 0.0, chance[1] ** 4)[index % 3]
        top_k = (0, 1, 5, 50, 300, 2000, 10_000)[int(7 * chance[2])]
        top_p = (1.0, 0.9, 0.95, chance[3], 1e-6, 0.999)[(index + 1) % 6]
        yield temperature, min_p, top_k or int(top_p == 1.0 and min_p == 0.0), top_p


@pytest.mark.parametrize("part", range(20))
def test_random_rows_of_bf16(bf16: ctypes.CDLL, part: int) -> None:
    for row, recipe in zip(random_rows(part, 60), recipes(part, 60), strict=True):
        check_row(bf16, row.to(BF16), recipe)


@pytest.mark.parametrize("dtype", [FP16, FP32], ids=str)
def test_random_rows_of_other_dtypes(build: Build, dtype: torch.dtype) -> None:
    for row, recipe in zip(random_rows(9, 40), recipes(9, 40), strict=True):
        check_row(build(dtype), row.to(dtype), recipe)


REAL_RECIPES: tuple[Recipe, ...] = (
    (0.8, 0.0, 50, 0.9),
    (0.8, 0.0, 0, 0.9),
    (0.8, 0.0, 50, 1.0),
    (0.8, 0.05, 0, 1.0),
    (0.8, 0.01, 200, 0.95),
    (1.3, 0.0, 0, 0.99),
)


@pytest.mark.parametrize("recipe", REAL_RECIPES, ids=str)
@pytest.mark.parametrize("peaked", [True, False], ids=["peaked", "flat"])
@pytest.mark.parametrize("vocab_size", [70_000, 151_936, 300_001])
def test_real_vocabularies(
    bf16: ctypes.CDLL, vocab_size: int, peaked: bool, recipe: Recipe
) -> None:
    noise = torch.Generator().manual_seed(vocab_size)
    row = torch.randn(vocab_size, generator=noise) * 2
    if peaked:
        peaks = torch.randint(vocab_size, (8,), generator=noise)
        row[peaks] += 6 + 14 * torch.rand(8, generator=noise)
    check_row(bf16, row.to(BF16), recipe)


def test_rows_that_are_not_aligned(bf16: ctypes.CDLL) -> None:
    noise = torch.Generator().manual_seed(3)
    rows = (4 * torch.randn(2, 5001, generator=noise)).to(BF16)
    for row in rows:
        for recipe in REAL_RECIPES:
            check_row(bf16, row, recipe)
    assert any(row.data_ptr() % 16 for row in rows)


def test_ties_at_the_threshold_stay_together(bf16: ctypes.CDLL) -> None:
    row = torch.full((2000,), -3.0)
    row[::100] = 2.0
    for recipe in ((1.0, 0.0, 3, 1.0), (1.0, 0.0, 0, 0.1), (1.0, 0.0, 5, 0.5)):
        kept = host_law(bf16, row.to(BF16), recipe).kept
        assert torch.equal(kept, row == 2.0)


def test_zeros_of_both_signs_are_one_logit(bf16: ctypes.CDLL) -> None:
    row = torch.zeros(2000)
    row[::2] = -0.0
    row[::20] = 1.0
    row[::7] = -1.0
    for recipe in ((1.0, 0.0, 150, 1.0), (1.0, 0.0, 0, 0.5), (0.5, 0.3, 400, 0.7)):
        check_row(bf16, row.to(BF16), recipe)


def test_peaks_that_share_a_block_leave_a_row_open(bf16: ctypes.CDLL) -> None:
    noise = torch.Generator().manual_seed(4)
    row = torch.randn(20_000, generator=noise)
    row[[700, 710, 5000]] = torch.tensor([18.0, 17.5, 17.0])
    for recipe in ((0.8, 0.0, 50, 0.9), (0.8, 0.0, 0, 0.9), (0.8, 0.2, 0, 1.0)):
        check_row(bf16, row.to(BF16), recipe)
        assert host_law(bf16, row.to(BF16), recipe).is_open
        assert int(host_law(bf16, row.to(BF16), recipe).kept.sum()) == 3
        assert check_known_token(bf16, row.to(BF16), recipe, 710)
        assert not check_known_token(bf16, row.to(BF16), recipe, 700)


def check_known_token(library: ctypes.CDLL, row: Tensor, recipe: Recipe, token: int) -> bool:
    """What statistics tell with a token's logit is what is so; whether they tell the law."""
    law = host_law(library, row, recipe)
    flags, found, _ = find_law(library, row, recipe, -1, token)
    if flags & 1:
        check_bounds(found, law.raw, row)
        return False
    if torch.isfinite(found).all():
        assert torch.equal(found[:4], law.raw[:4]), (recipe, token)
    if flags & 4:
        counts = torch.bincount(torch.arange(len(row))[law.kept] // BLOCK_SIZE)
        assert len(counts) == 0 or counts.max() == 1
    return True


@pytest.mark.parametrize("part", range(2))
def test_a_known_token_hides_no_longer(bf16: ctypes.CDLL, part: int) -> None:
    noise = torch.Generator().manual_seed(part)
    for index, recipe in enumerate(recipes(100 + part, 40)):
        row = torch.randn((3000, 9000, 513)[index % 3], generator=noise)
        heavy = torch.randint(min(len(row), 1500), (6,), generator=noise)
        row[heavy] += 4 + 10 * torch.rand(6, generator=noise)
        if index % 4 == 0:
            row = row.round()
        for token in (int(heavy[0]), int(heavy[1]), index, int(row.argmax())):
            check_known_token(bf16, row.to(BF16), recipe, token)


def test_of_more_peaks_than_lanes_the_largest_tell(bf16: ctypes.CDLL) -> None:
    row = torch.full((60 * BLOCK_SIZE,), -20.0)
    row[::BLOCK_SIZE] = 30 - 0.5 * torch.arange(60)
    for recipe in ((0.8, 0.0, 50, 0.9), (0.8, 0.0, 0, 0.9), (0.8, 0.1, 0, 1.0)):
        check_row(bf16, row.to(BF16), recipe)
        assert not host_law(bf16, row.to(BF16), recipe).is_open
    row[::BLOCK_SIZE] = 30.0
    check_row(bf16, row.to(BF16), (0.8, 0.0, 0, 0.9))
    assert host_law(bf16, row.to(BF16), (0.8, 0.0, 0, 0.9)).is_open


def test_what_k_blocks_weigh_bounds_the_mass_that_top_k_leaves(bf16: ctypes.CDLL) -> None:
    blocks = torch.ones(256, BLOCK_SIZE)
    blocks[:60] = -30.0
    blocks[:60, 3] = 2.0
    blocks[[7, 20, 33], 3] = torch.tensor([13.8125, 13.5, 11.0])
    row, recipe = blocks.flatten().to(BF16), (1.0, 0.0, 50, 0.9)
    check_row(bf16, row, recipe)
    law = host_law(bf16, row, recipe)
    assert int(law.kept.sum()) == 2
    assert not law.is_open
    assert host_law(bf16, row, (1.0, 0.0, 0, 0.9)).is_open


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_rows_that_are_not_usable_say_so(bf16: ctypes.CDLL, bad: float) -> None:
    row = torch.zeros(1500)
    row[700 if bad != -torch.inf else slice(None)] = bad
    largest = host_law(bf16, row.to(BF16), (1.0, 0.0, 5, 0.9)).raw[0]
    assert not largest.isfinite()


@pytest.mark.parametrize("top_k", [40, 50, 64, 200])
def test_hardly_more_blocks_than_top_k_reach_the_bound_of_an_open_row(
    bf16: ctypes.CDLL, top_k: int
) -> None:
    noise = torch.Generator().manual_seed(top_k)
    for _ in range(4):
        row = (2 * torch.randn(151_936, generator=noise)).to(BF16)
        flags, law, _ = find_law(bf16, row, (0.8, 0.0, top_k, 0.9), -1)
        blocks = torch.nn.functional.pad(row, (0, -len(row) % BLOCK_SIZE), value=-torch.inf)
        num_reached = int((blocks.view(-1, BLOCK_SIZE).amax(-1) >= law[5]).sum())
        assert flags & 1
        assert top_k <= num_reached <= top_k + 16 + top_k // 8
