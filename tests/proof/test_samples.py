"""Draws with the real noise follow the law, by chi-square tests of known power."""

from pathlib import Path

import numpy as np
import pytest
import torch
from attrs import evolve
from torch import Tensor

from acceptor.backends import load_sampler
from acceptor.core import Policy, Probabilistic, SampleBatch, Strict
from kit.chi_square import ALPHA, POWER, assert_follows, effect_detectable, goodness
from lab.proof import record
from lab.proof.__main__ import main
from lab.proof.cases import POLICIES
from lab.proof.grouped import grouped_step
from lab.proof.large import near_uniform_draws
from lab.proof.runs import (
    compare,
    counts,
    decode,
    drafted,
    params_of,
    random_chain,
    spread_seeds,
    step_of,
)

CPU = torch.device("cpu")
SAMPLER = load_sampler("reference")
by_policy = pytest.mark.parametrize("policy", POLICIES)
LOSSLESS_AND_ONE = [policy for policy in POLICIES if policy.lossless or policy.name == "typical"]
SMALL = random_chain(3, seed=4)
LIMIT = 1e-6
NUM_DRAWS = 100_000


@by_policy
def test_grouped_steps_are_the_sampler_s(policy: Policy) -> None:
    seeds = spread_seeds(150)
    grouped, single = (
        decode(SMALL, policy, seeds, step) for step in (grouped_step, step_of(SAMPLER))
    )
    assert torch.equal(grouped.token_ids, single.token_ids)
    assert torch.equal(grouped.again, single.again)


@pytest.mark.parametrize("policy", LOSSLESS_AND_ONE)
def test_a_hundred_thousand_runs(policy: Policy) -> None:
    tests = compare(SMALL, policy, grouped_step, NUM_DRAWS, CPU)
    assert tests is not None
    assert (min(test.p_value for test in tests.values()) > LIMIT) == policy.lossless
    assert tests["first"].detectable < 0.011
    assert tests["joint"].detectable < 0.016
    assert tests["conditional"].detectable < 0.025


def test_a_sample_cut_short_is_tested_with_what_was_drawn() -> None:
    late = 0.0
    tests = compare(SMALL, Probabilistic(), grouped_step, 9_000, CPU, 3_000, late)
    assert tests is not None
    assert tests["joint"].num_draws == 3_000
    drawn = near_uniform_draws(SAMPLER, CPU, 9, 2, late)
    assert [(test.num_draws, test.p_value > 0) for *_, test in drawn] == [(2, True)] * 9


START = SMALL.vocab_size
P, Q = (logits[START].double().softmax(-1) for logits in (SMALL.target, SMALL.draft))


def draw(seeds: Tensor, position: int, place: int | None) -> Tensor:
    logits, positions = SMALL.target[START].expand(len(seeds), -1), torch.full_like(seeds, position)
    batch = SampleBatch(logits=logits, positions=positions, draft_index=place)
    return SAMPLER.sample(batch, params_of(seeds, SMALL.params)).token_ids


def test_draws_of_neighbouring_seeds_positions_and_places_are_independent() -> None:
    seeds = spread_seeds(NUM_DRAWS)
    wheres = [(5, None), (6, None), (5, 1), (5, 2)]
    columns = [draw(seeds, position, place) for position, place in wheres]
    neighbours = draw(torch.arange(2 * NUM_DRAWS), 0, None)
    pairs = [(neighbours[::2], neighbours[1::2])]
    pairs += [(first, second) for place, first in enumerate(columns) for second in columns[:place]]
    for pair in pairs:
        assert_follows(counts(3, *pair), torch.outer(P, P).flatten(), detects=0.016)


def test_shared_noise_makes_strict_accept_more() -> None:
    seeds = spread_seeds(NUM_DRAWS)
    first = (seeds, torch.zeros_like(seeds), torch.full_like(seeds, START))
    one, own = evolve(SMALL, num_spec_tokens=1), draw(seeds, 0, None)
    equal = [
        int((drafted(SAMPLER, one, policy, *first)[:, 1] == own).sum())
        for policy in (Strict(), Strict(coupled=True))
    ]
    chance, shared = float((P * Q).sum()), float(torch.minimum(P, Q).sum())
    assert_follows([equal[0], NUM_DRAWS - equal[0]], [chance, 1 - chance], detects=0.014)
    # At least (1 - TV) / (1 + TV), at most 1 - TV.
    assert shared / (2 - shared) < equal[1] / NUM_DRAWS <= shared + 0.01


def test_the_stated_power_is_the_real_power() -> None:
    """Draws from a law that is off by just the detectable effect are noticed."""
    law = np.full(8, 1 / 8)
    num_draws = 20_000
    shift = effect_detectable(7, num_draws) / 8
    off = law + shift * np.array([1, -1] * 4)
    drawn = np.random.default_rng(1).multinomial(num_draws, off, size=300)
    noticed = np.mean([goodness(counts, law).p_chi_square < ALPHA for counts in drawn])
    assert noticed == pytest.approx(POWER, abs=0.02)


def test_what_cannot_happen_must_not_happen_and_thin_cells_are_merged() -> None:
    assert goodness([500, 499, 1], [0.5, 0.5, 0.0]).p_value == 0.0
    tested = goodness(np.ones(200), np.ones(200))
    assert (tested.num_draws, tested.num_cells, tested.freedom) == (200, 20, 19)


def test_a_short_proof_replaces_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "proof.json"
    about = {"part": "samples", "backend": "kit.only_strict:OnlyStrict", "policy": "block"}
    elsewhere = about | {"device": "cuda, a GPU"}
    for where in (elsewhere, about | {"device": "cpu, another"}):
        record.keep(path, [where])
    command = ["--backend", "kit.only_strict:OnlyStrict", "--part", "samples"]
    assert main([*command, "--runs", "3", "--json", str(path)]) == 0
    rows = record.read(path)
    assert elsewhere in rows
    # Policies that the backend lacks are left out.
    here = {row["policy"] for row in rows if row != elsewhere}
    assert here == {"strict", "strict-coupled"}
    assert "holds: samples, 6 rows of" in capsys.readouterr().out
