"""Samples through the real noise follow the law, with a stated power; grouping changes nothing."""

import time

import numpy as np
import pytest
import torch
from attrs import evolve
from scipy import stats

from acceptor.backends import load_sampler
from acceptor.core import Policy, Probabilistic
from kit.chi_square import ALPHA, POWER, effect_detectable, goodness
from kit.many_seeds import spread_seeds
from kit.only_strict import OnlyStrict
from kit.proof import large
from kit.proof.cases import POLICIES
from kit.proof.runs import CHAINS, compare, decode, grouped_step, parts, random_chain, step_of

CPU = torch.device("cpu")
SAMPLER = load_sampler("reference")
by_policy = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
SMALL = random_chain(3, seed=4)
LIMIT = 1e-6


@by_policy
def test_grouped_steps_are_the_sampler_s(policy: Policy) -> None:
    seeds = spread_seeds(150)
    grouped, single = (
        decode(SMALL, policy, seeds, step) for step in (grouped_step, step_of(SAMPLER))
    )
    assert torch.equal(grouped.token_ids, single.token_ids)
    assert torch.equal(grouped.again, single.again)


@by_policy
def test_a_hundred_thousand_runs(policy: Policy) -> None:
    tests = compare(SMALL, policy, grouped_step, 100_000, CPU)
    assert tests is not None
    worst = min(test.p_value for test in tests.values())
    assert (worst > LIMIT) == policy.lossless
    assert tests["first"].detectable < 0.011
    assert tests["joint"].detectable < 0.016
    assert tests["conditional"].detectable < 0.025


@pytest.mark.parametrize("policy", [p for p in POLICIES if p.lossless], ids=lambda p: p.name)
@pytest.mark.parametrize("chain", ["other recipe", "mapped"])
def test_other_drafters_by_the_sampler_alone(policy: Policy, chain: str) -> None:
    tests = compare(CHAINS[chain], policy, step_of(SAMPLER), 600, CPU)
    assert tests is not None
    assert min(test.p_value for test in tests.values()) > LIMIT


def test_a_policy_that_a_backend_lacks_is_not_sampled() -> None:
    assert compare(SMALL, Probabilistic(), step_of(OnlyStrict()), 5, CPU) is None


def test_grouped_draws_are_the_sampler_s() -> None:
    models, seeds = large.near_uniform_logits(CPU), spread_seeds(8)
    grouped, single = large.grouped_ways(*models), large.ways_of(SAMPLER)(*models)
    for name, (drawing, _) in grouped.items():
        assert torch.equal(drawing(seeds), single[name][0](seeds))


def test_a_large_vocabulary() -> None:
    tests = list(large.near_uniform_draws(large.grouped_ways, CPU, 20_000, 256))
    assert len(tests) == 9
    assert min(test.p_value for *_, test in tests) > LIMIT
    assert min(test.num_cells for *_, test in tests) > 290
    assert max(test.detectable for *_, test in tests) < 0.09


def test_a_sample_cut_short_is_tested_with_what_was_drawn() -> None:
    late = time.monotonic()
    assert list(parts(10, 4, None)) == [(0, 4), (4, 4), (8, 2)]
    assert list(parts(10, 4, late)) == [(0, 4)]
    tests = compare(SMALL, Probabilistic(), grouped_step, 9_000, CPU, 3_000, late)
    assert tests is not None
    assert tests["joint"].num_draws == 3_000
    assert tests["joint"].p_value > LIMIT
    drawn = large.near_uniform_draws(large.grouped_ways, CPU, 400, 100, late)
    assert [test.num_draws for *_, test in drawn] == [100] * 9


@pytest.mark.gpu
@by_policy
def test_samples_on_a_gpu(policy: Policy) -> None:
    tests = compare(SMALL, policy, step_of(SAMPLER), 300, torch.device("cuda"))
    assert tests is not None
    assert not policy.lossless or min(test.p_value for test in tests.values()) > LIMIT


def test_the_stated_power_is_the_real_power() -> None:
    """Draws from a law that is off by just the detectable effect are noticed."""
    law = np.full(8, 1 / 8)
    num_draws = 20_000
    shift = effect_detectable(7, num_draws) / 8
    off = law + shift * np.array([1, -1] * 4)
    generator = np.random.default_rng(1)
    drawn = generator.multinomial(num_draws, off, size=400)
    noticed = np.mean([goodness(counts, law).p_chi_square < ALPHA for counts in drawn])
    assert noticed == pytest.approx(POWER, abs=0.02)


def test_p_values_of_the_right_law_are_uniform() -> None:
    law = np.array([0.5, 0.2, 0.15, 0.1, 0.05])
    drawn = np.random.default_rng(2).multinomial(5_000, law, size=400)
    for kind in ("p_chi_square", "p_g"):
        p_values = [getattr(goodness(counts, law), kind) for counts in drawn]
        assert stats.kstest(p_values, "uniform").pvalue > 1e-3


def test_what_cannot_happen_must_not_happen() -> None:
    assert goodness([5, 95, 0], [0.5, 0.5, 0.0]).p_value < 1e-6
    assert goodness([500, 499, 1], [0.5, 0.5, 0.0]).p_value == 0.0


def test_thin_cells_are_merged_and_lose_no_draw() -> None:
    tested = goodness(np.ones(200), np.ones(200))
    assert (tested.num_draws, tested.num_cells, tested.freedom) == (200, 20, 19)


def test_the_law_of_a_chain_is_the_law_of_plain_sampling() -> None:
    """Sampled without drafts, so that only the tables are tested."""
    chain = evolve(SMALL, num_spec_tokens=1)
    runs = decode(chain, Probabilistic(), spread_seeds(300), step_of(SAMPLER))
    assert runs.token_ids.min() >= 0
    assert float(chain.law["joint"].sum()) == pytest.approx(1.0)
    assert chain.law["joint"].view(3, 3, 3).sum((1, 2)) == pytest.approx(chain.law["first"])
