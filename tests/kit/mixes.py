"""Sampling parameters that ask for anything."""

from acceptor.backends.conformance.case import FEATURES, Case
from acceptor.backends.conformance.params import all_params
from acceptor.core import SamplingParams


def every_mix(count: int, vocab_size: int, seed: int = 0) -> tuple[SamplingParams, ...]:
    """Parameters of requests that ask for anything; the first one asks for everything."""
    features = frozenset(FEATURES) - {"extremes"}
    lengths = (0,) * count
    return all_params(
        Case(seed=seed, vocab_size=vocab_size, num_draft_tokens=lengths, features=features)
    )
