"""Thresholds of rows that keep more logits than have counters, on the CPU against the reference."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from acceptor.tests.kit.cuda_on_host import GXX
from acceptor.tests.kit.host_laws import Build, Recipe, build_laws, check_row, find_law, host_law

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GXX is None, reason="builds the kernels with g++"),
]
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
VOCAB_SIZE = 20_000
RECIPES: tuple[Recipe, ...] = (
    (1.5, 0.0, 0, 0.95),
    (1.0, 0.0, 0, 0.5),
    (1.0, 0.0, 0, 0.999),
    (1.2, 0.0, 5000, 0.9),
    (1.0, 0.0, 9000, 1.0),
    (0.9, 0.001, 0, 0.97),
)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return build_laws(tmp_path_factory.mktemp("searches"))


def flat_rows() -> Iterator[tuple[str, Tensor]]:
    noise = torch.Generator().manual_seed(1)
    row = torch.randn(VOCAB_SIZE, generator=noise)
    yield "about 0", row
    yield "far from 0", 2 * row - 30
    yield "next to 0", 0.001 * row
    yield "broad", 6 * row
    yield "uniform", torch.rand(VOCAB_SIZE, generator=noise) * 4 - 2
    yield "many ties", torch.where(row < 0.3, -0.125, row)
    yield "zeros of both signs", torch.where(row.abs() < 0.5, -0.0 * row.sign(), row)
    yield "nothing above 0", -row.abs()
    yield "half impossible", torch.where(row < 0, row, -torch.inf)
    yield "one block lower", row - 40 * (torch.arange(VOCAB_SIZE) // 512 == 7)
    yield "one outlier", torch.where(torch.arange(VOCAB_SIZE) == 777, 9.0, row)
    yield "two clusters", torch.where(row < 0.7, 1e-6 * row - 1, 1e-6 * row)


ROWS = dict(flat_rows())


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_flat_rows_have_the_reference_s_law(build: Build, dtype: torch.dtype, name: str) -> None:
    for recipe in RECIPES:
        check_row(build(dtype), ROWS[name].to(dtype), recipe)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_flat_rows_have_more_logits_than_counters(build: Build, dtype: torch.dtype) -> None:
    for name in ("about 0", "uniform", "many ties"):
        flags, _, _ = find_law(build(dtype), ROWS[name].to(dtype), RECIPES[0], 3)
        assert flags & 1
        assert not flags & 2


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_that_are_read_one_logit_at_a_time(build: Build, dtype: torch.dtype) -> None:
    for name in ("about 0", "broad", "half impossible"):
        for recipe in RECIPES:
            check_row(build(dtype), ROWS[name].to(dtype)[1:], recipe)


@pytest.mark.parametrize("scale", [1e-4, 0.01, 1.0])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_threshold_next_to_0(build: Build, dtype: torch.dtype, scale: float) -> None:
    """Of bfloat16 some of these logits have counters and some have not."""
    row = torch.randn(VOCAB_SIZE, generator=torch.Generator().manual_seed(2))
    row[100:10_000] *= scale
    for top_k in (6000, 9000, 9990, 10_000, 10_010, 14_000):
        check_row(build(dtype), row.to(dtype), (1.0, 0.0, top_k, 1.0))
    for top_p in (0.5, 0.7, 0.72, 0.75, 0.8, 0.9):
        check_row(build(dtype), row.to(dtype), (1.0, 0.0, 0, top_p))


def test_keys_beyond_counters_on_one_side_of_0(build: Build) -> None:
    noise = torch.Generator().manual_seed(3)
    row = torch.randn(VOCAB_SIZE, generator=noise).abs() + 1e-6
    row[torch.rand(VOCAB_SIZE, generator=noise) < 0.3] *= 1e-4
    for sign in (1, -1):
        for recipe in (*RECIPES, (1.0, 0.0, 19_000, 1.0)):
            check_row(build(torch.bfloat16), (sign * row).to(torch.bfloat16), recipe)


@pytest.mark.parametrize("top_k", [30, 500, 5000])
def test_rows_below_0_are_read_as_often_as_others(build: Build, top_k: int) -> None:
    """Once for their blocks' statistics, once for the law and once for what it keeps."""
    row, recipe = 2 * ROWS["about 0"], (1.5, 0.0, top_k, 0.95)
    often = readings(build, row, recipe)
    assert often < 3
    assert readings(build, row - 30, recipe) == pytest.approx(often, abs=0.2)
    assert readings(build, row.log_softmax(0), recipe) == pytest.approx(often, abs=0.2)
    confident = torch.where(torch.arange(VOCAB_SIZE) == 777, 16.0, row).log_softmax(0)
    assert confident.max() > -0.1
    assert readings(build, confident, recipe) < 3


def test_nothing_is_counted_in_vain_down_from_0(build: Build) -> None:
    """Twice for bins of the law."""
    row = 2 * ROWS["about 0"]
    assert readings(build, row - row.max(), (1.5, 0.0, 5000, 0.95)) < 5


def readings(build: Build, row: Tensor, recipe: Recipe) -> float:
    """How often each logit is read, by whole vectors."""
    library = build(torch.bfloat16)
    library.take_num_vectors()
    assert host_law(library, row.to(torch.bfloat16), recipe).is_open
    return float(library.take_num_vectors() / (VOCAB_SIZE / 8))


def test_what_is_kept_is_what_integers_say(build: Build) -> None:
    """Of the row's mass in units of 2^-40: the lowest logit with less than top-p of it above it."""
    for name, row in ROWS.items():
        law = host_law(build(torch.float32), row, (1.5, 0.0, 0, 0.9))
        weights = torch.exp((row.double() - row.max()) / 1.5)
        lowest = row[law.kept].min()
        whole = weights.sum()
        assert weights[row > lowest].sum() < 0.9 * whole * (1 + 2e-6), name
        assert weights[law.kept].sum() > 0.9 * whole * (1 - 2e-6), name
