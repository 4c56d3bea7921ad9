"""Synthetic acceptance in the decode loop, against known answers over 10**5 drafts in all."""

import math
from collections.abc import Callable, Sequence

import pytest

from acceptor.app.request import GenerationRequest, GenerationResult
from acceptor.core import AcceptanceStatistics, SamplingParams, Synthetic
from kit.toy_pair import Pair

NUM_REQUESTS = 16
NUM_DRAFTS = 25_000
KNOWN = {
    0.24: (46.93, 18.72, 6.35),
    0.69: (90.84, 70.14, 46.03),
    0.9: (100.0, 92.04, 77.96),
    1.0: (100.0, 100.0, 100.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("rate", KNOWN)
def test_set_rates_are_reproduced_within_sampling_noise(
    make_pair: Callable[..., Pair], rate: float
) -> None:
    policy = Synthetic.from_acceptance_rate(rate, num_spec_tokens=3)
    length = int(NUM_DRAFTS / NUM_REQUESTS * (1 + 3 * rate))
    requests = [
        GenerationRequest(
            prompt_token_ids=[1],
            params=SamplingParams(temperature=0, seed=seed),
            max_tokens=length,
        )
        for seed in range(NUM_REQUESTS)
    ]
    figures = sum_of(make_pair(max_model_len=2 * length).decoder(policy, 3).generate(requests))
    assert figures.num_drafts == pytest.approx(NUM_DRAFTS, rel=0.02)
    # The last two drafts of an output may be shorter, as no more tokens were wanted.
    shortened = 2 * NUM_REQUESTS / figures.num_drafts
    for measured, known in zip(figures.acceptance_rate_per_pos, KNOWN[rate], strict=True):
        share = known / 100
        noise = math.sqrt(share * (1 - share) / figures.num_drafts)
        assert measured == pytest.approx(share, abs=4 * noise + shortened + 0.5e-4)
    assert figures.acceptance_rate == pytest.approx(rate, abs=0.01)


def sum_of(results: Sequence[GenerationResult]) -> AcceptanceStatistics:
    figures, *others = [result.statistics for result in results]
    for other in others:
        figures = figures + other
    return figures
