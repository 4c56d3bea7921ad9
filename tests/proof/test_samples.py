"""The proof by sampling, in its short form, and the tools it rests on."""

import numpy as np
import pytest
import torch
from attrs import evolve
from scipy import stats

from acceptor.backends import load_sampler
from acceptor.core import Level, Policy, Probabilistic, Stream
from acceptor.core.randomness import random_words
from kit.many_seeds import spread_seeds
from kit.proof import large, samples
from kit.proof.cases import POLICIES
from kit.proof.device_words import words_on_device
from kit.proof.frequencies import compare, law_of, random_chain
from kit.proof.goodness import ALPHA, POWER, effect_detectable, goodness
from kit.proof.grouped import grouped_step
from kit.proof.runs import decode, step_of

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
    compared = compare(SMALL, policy, grouped_step, 100_000, CPU)
    worst = min(test.p_value for test in compared.tests.values())
    assert (worst > LIMIT) == policy.lossless
    assert compared.tests["first"].detectable < 0.011
    assert compared.tests["joint"].detectable < 0.016
    assert compared.tests["conditional"].detectable < 0.025


@pytest.mark.parametrize("policy", [p for p in POLICIES if p.lossless], ids=lambda p: p.name)
@pytest.mark.parametrize("chain", ["other recipe", "mapped"])
def test_other_drafters_by_the_sampler_alone(policy: Policy, chain: str) -> None:
    compared = compare(samples.CHAINS[chain], policy, step_of(SAMPLER), 600, CPU)
    assert min(test.p_value for test in compared.tests.values()) > LIMIT


def test_grouped_draws_are_the_sampler_s() -> None:
    models, seeds = large.near_uniform_logits(CPU), spread_seeds(8)
    grouped, single = large.grouped_ways(*models), large.sampler_ways(SAMPLER, *models)
    for name, (drawing, _) in grouped.items():
        assert torch.equal(drawing(seeds), single[name][0](seeds))


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("stream", Stream)
def test_words_made_on_a_device_are_the_reference_s(stream: Stream, level: Level) -> None:
    seeds = torch.cat((spread_seeds(50), torch.tensor([0, -1, 2**63 - 1, -(2**63)])))
    positions = torch.arange(len(seeds)) * 123_456_789
    candidates = torch.arange(8, 17).expand(len(seeds), -1)
    given = (seeds, positions, positions % 7, stream, level, candidates)
    assert torch.equal(words_on_device(*given), random_words(*given))


def test_a_large_vocabulary() -> None:
    size = evolve(samples.SHORT, draws=20_000)
    tests = list(large.near_uniform_draws("reference", CPU, size))
    assert len(tests) == 9
    assert min(test.p_value for *_, test in tests) > LIMIT
    assert min(test.num_cells for *_, test in tests) > 290
    assert max(test.detectable for *_, test in tests) < 0.09


@pytest.mark.gpu
@by_policy
def test_samples_on_a_gpu(policy: Policy) -> None:
    compared = compare(SMALL, policy, step_of(SAMPLER), 300, torch.device("cuda"))
    worst = min(test.p_value for test in compared.tests.values())
    assert not policy.lossless or worst > LIMIT


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
    seeds = spread_seeds(40_000)
    chain = evolve(SMALL, num_spec_tokens=1)
    runs = decode(chain, Probabilistic(), seeds[:300], step_of(SAMPLER))
    assert runs.token_ids.min() >= 0
    assert float(law_of(chain).joint.sum()) == pytest.approx(1.0)
    assert law_of(chain).joint.view(3, 3, 3).sum((1, 2)) == pytest.approx(law_of(chain).first)
