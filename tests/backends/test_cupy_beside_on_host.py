"""CuPy's kernels on the CPU as a sampler, held to the oracle and to the reference beside it."""

import pytest

from acceptor.backends.conformance import Case
from acceptor.backends.conformance.calls import Watched
from acceptor.backends.conformance.check import Check
from acceptor.backends.conformance.run import run_all
from acceptor.backends.reference import ReferenceSampler
from acceptor.core import Policy, Probabilistic, Typical
from kit.cuda_on_host import GXX
from kit.cupy_on_host import HostSampler

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GXX is None, reason="builds the kernels with g++"),
]


@pytest.mark.parametrize(
    ("policy", "drafter", "features"),
    [
        (Probabilistic(), "mapped", {"logprobs", "top-p", "temperature"}),
        (Typical(), "same", {"temperature"}),
        (Probabilistic(), "same", {"greedy"}),
    ],
)
def test_a_batch_conforms_and_agrees(policy: Policy, drafter: str, features: set[str]) -> None:
    case = Case(
        seed=11,
        vocab_size=700,
        num_draft_tokens=(2, 0, 3),
        policy=policy,
        drafter=drafter,
        features=frozenset(features),
    )
    watched = [Watched(HostSampler()), Watched(ReferenceSampler())]
    assert [len(found.differences) for found in run_all(Check(case), watched)] == [0] * 3


def test_no_requests_are_no_launch() -> None:
    case = Case(num_draft_tokens=(), policy=Probabilistic())
    watched = [Watched(HostSampler()), Watched(ReferenceSampler())]
    assert [len(found.differences) for found in run_all(Check(case), watched)] == [0] * 3
