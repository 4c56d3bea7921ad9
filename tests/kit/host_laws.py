"""Laws of filtered rows by the CUDA functions, built by g++, against the reference's."""

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from attrs import frozen
from torch import Tensor

from acceptor.backends.cupy_backend.variant import KernelPolicy, Variant
from acceptor.backends.reference.thresholds import log_probs
from acceptor.core import SamplingParams, SamplingTensors
from acceptor.core.race import BLOCK_SIZE

from .cuda_on_host import build_on_host

LN_2 = 0.6931471805599453

Recipe = tuple[float, float, int, float]
"""Temperature, min-p, top-k, top-p."""
Build = Callable[[torch.dtype], ctypes.CDLL]


class Filters(ctypes.Structure):
    """As cuda/filters.cuh declares them."""

    _fields_ = (
        ("temperature", ctypes.c_float),
        ("min_p", ctypes.c_float),
        ("top_k", ctypes.c_int),
        ("top_p", ctypes.c_float),
    )


@frozen(eq=False)
class HostLaw:
    """What the kernels find of a row: kept ids, log2 of their mass, log-masses of blocks.

    `is_open`: statistics alone did not tell.
    """

    kept: Tensor
    log2_sum: float
    masses: Tensor
    raw: Tensor
    is_open: bool


def build_laws(folder: Path) -> Build:
    """Compiles the functions for a dtype when they are first asked for."""

    @cache
    def built(dtype: torch.dtype) -> ctypes.CDLL:
        variant = Variant(KernelPolicy.STRICT, dtype, filtered=True)
        return build_on_host("law_on_host", variant, folder)

    return built


def find_law(
    library: ctypes.CDLL, row: Tensor, recipe: Recipe, num_shares: int, token: int = -1
) -> tuple[int, Tensor, Tensor]:
    """What law_on_host.cpp finds: its flags, the law and what is kept of blocks."""
    stats = torch.empty(-(-len(row) // BLOCK_SIZE), 2)
    law = torch.full((6,), torch.nan)
    library.find_law.argtypes = [
        ctypes.c_void_p, ctypes.c_longlong, Filters, ctypes.c_int, ctypes.c_int, ctypes.c_void_p,
        ctypes.c_void_p,
    ]  # fmt: skip
    at = (row.data_ptr(), len(row), Filters(*recipe), num_shares, token)
    flags = library.find_law(*at, stats.data_ptr(), law.data_ptr())
    return flags, law, stats


def host_law(library: ctypes.CDLL, row: Tensor, recipe: Recipe) -> HostLaw:
    """A row's law by one CTA."""
    flags, law, stats = find_law(library, row, recipe, 0)
    largest, threshold, scale, log2_sum = (float(x) for x in law[:4])
    masses = (stats[:, 0].double() - largest) * scale * LN_2 + stats[:, 1].double().log()
    kept = (row.float() >= threshold) & (row > -torch.inf)
    return HostLaw(kept, log2_sum, masses - log2_sum * LN_2, law, bool(flags & 1))


def reference_law(row: Tensor, recipe: Recipe) -> Tensor:
    """Logarithms of probabilities, float64."""
    temperature, min_p, top_k, top_p = recipe
    params = SamplingTensors.stack(
        [SamplingParams(seed=0, temperature=temperature, min_p=min_p, top_k=top_k, top_p=top_p)]
    )
    return log_probs(row.double()[None], params.target, torch.tensor([0]))[0]


def near_tie(row: Tensor, recipe: Recipe, kept: Tensor) -> Tensor:
    """The law that a hardly different top-p makes: sums of floats may decide so."""
    for nearby in (recipe[3] * (1 - 2e-6), recipe[3] * (1 + 2e-6)):
        law = reference_law(row, (*recipe[:3], min(nearby, 1.0)))
        if recipe[3] < 1 and torch.equal(kept, law > -torch.inf):
            return law
    raise AssertionError((recipe, kept.sum()))


def check_bounds(bounds: Tensor, law: Tensor, row: Tensor) -> None:
    """What is known of an open row: what is kept, what may be, and how much that may weigh."""
    threshold, log2_sum, spread, lowest = bounds[[1, 3, 4, 5]]
    kept, surely, maybe = (row.float() >= level for level in (law[1], threshold, lowest))
    assert not (surely & ~kept).any()
    assert not (kept & ~maybe & (row > -torch.inf)).any()
    assert log2_sum - spread - 1e-4 <= law[3] <= log2_sum + 1e-4


def check_row(library: ctypes.CDLL, row: Tensor, recipe: Recipe) -> None:
    """The law is the reference's, and the same by three CTAs' shares."""
    expected = reference_law(row, recipe)
    got = host_law(library, row, recipe)
    if got.is_open:
        flags, shared, _ = find_law(library, row, recipe, 3)
        assert flags & 2 == 0 or torch.equal(shared, got.raw), recipe
        check_bounds(find_law(library, row, recipe, -1)[1], got.raw, row)
    if not torch.equal(got.kept, expected > -torch.inf):
        expected = near_tie(row, recipe, got.kept)
    largest = expected.amax()
    assert got.log2_sum == pytest.approx(float(-largest) / LN_2, abs=1e-5), recipe
    padded = torch.full((len(got.masses) * BLOCK_SIZE,), -torch.inf, dtype=torch.float64)
    padded[: len(row)] = expected
    masses = padded.view(-1, BLOCK_SIZE).logsumexp(dim=1)
    torch.testing.assert_close(got.masses, masses, rtol=0, atol=3e-5)
