"""The proof by sampling: which draws are counted, where, and how many.

Everything is drawn by the sampler under test, drafts included.
"""

from collections.abc import Iterator

import torch
from attrs import evolve, frozen

from acceptor.backends.conformance.loading import load_backend
from acceptor.core import Policy, Recipe, SamplingParams, UnavailableError
from kit.proof.cases import POLICIES
from kit.proof.device_words import words_made_on
from kit.proof.frequencies import Comparison, compare, random_chain
from kit.proof.grouped import grouped_step
from kit.proof.pace import UNHURRIED, Pace
from kit.proof.runs import Chain, Step, step_of

PLAIN = random_chain(4)
CHAINS: dict[str, Chain] = {
    "draft model": PLAIN,
    "other recipe": evolve(
        PLAIN, params=SamplingParams(seed=0, temperature=0.8, top_k=3, draft=Recipe(top_p=0.9))
    ),
    "mapped": evolve(
        PLAIN, draft=PLAIN.draft[:, :3].contiguous(), draft_to_target=torch.tensor([3, 0, 2])
    ),
}


@frozen
class Size:
    """How much is drawn.

    Attributes:
        runs: decode runs of every policy with the plain chain.
        runs_elsewhere: of lossless ones with the other chains.
        draws: draws from the large vocabulary, on each way.
        chunk, draws_at_once: how many of either fit into memory together.
    """

    runs: int
    runs_elsewhere: int
    draws: int
    chunk: int = 1 << 17
    draws_at_once: int = 256

    def at_most(self, draws: int | None, runs: int | None) -> "Size":
        """The same with other numbers; None leaves them."""
        runs = self.runs if runs is None else runs
        elsewhere = min(runs, self.runs_elsewhere)
        draws = self.draws if draws is None else draws
        return evolve(self, runs=runs, runs_elsewhere=elsewhere, draws=draws)


SHORT = Size(runs=20_000, runs_elsewhere=1_000, draws=1_000)
FULL = Size(runs=200_000, runs_elsewhere=1_500, draws=50_000)
ON_A_GPU = Size(
    runs=10_000_000,
    runs_elsewhere=500_000,
    draws=10_000_000,
    # Filters list up to 1,024 candidates for each row of a request: 5 GB.
    chunk=1 << 18,
    draws_at_once=1 << 15,
)


def size_for(device: torch.device, *, short: bool) -> Size:
    """What a device can draw in a few minutes."""
    if short:
        return SHORT
    return FULL if device.type == "cpu" else ON_A_GPU


def sampled_runs(
    backend: str, device: torch.device, size: Size, pace: Pace = UNHURRIED
) -> Iterator[tuple[Policy, str, Comparison]]:
    """Every policy that the backend has, lossless ones first and with every chain.

    The reference decides what is alike together where it can, and is not asked elsewhere on a GPU.
    """
    step, is_reference = step_of(load_backend(backend)), backend == "reference"
    for policy, name, runs in _plan(size):
        chain, grouped = CHAINS[name], is_reference and CHAINS[name] is PLAIN
        if is_reference and not grouped and device.type != "cpu":
            continue
        chosen = grouped_step if grouped else step
        compared = _compared(chain, policy, chosen, runs, device, size.chunk, pace)
        if compared is not None:
            yield policy, name, compared


def _plan(size: Size) -> Iterator[tuple[Policy, str, int]]:
    lossless = [policy for policy in POLICIES if policy.lossless]
    for name, chain in CHAINS.items():
        for policy in lossless:
            yield policy, name, size.runs if chain is PLAIN else size.runs_elsewhere
    for policy in POLICIES:
        if not policy.lossless:
            yield policy, "draft model", size.runs


def _compared(
    chain: Chain,
    policy: Policy,
    step: Step,
    runs: int,
    device: torch.device,
    chunk: int,
    pace: Pace,
) -> Comparison | None:
    try:
        with words_made_on(device):
            return compare(chain, policy, step, runs, device, chunk, pace)
    except UnavailableError:
        return None
