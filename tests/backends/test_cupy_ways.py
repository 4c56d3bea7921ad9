"""Ways to spread a batch that are timed and counted on a GPU, and what they need to read."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from acceptor.app.bench.kernels.inputs import make_step
from acceptor.app.bench.kernels.logits import Logits
from acceptor.app.bench.kernels.workload import Workload
from acceptor.backends import load_sampler
from acceptor.core import Recipe
from kit.cupy_reads.workloads import FILTERED, Ways, bytes_judged, job_of

DEVICE: Any = SimpleNamespace(verification=lambda *_: SimpleNamespace(room=264))
PLAIN, GREEDY = Recipe(temperature=0.8), Recipe(temperature=0.0)


def ways(workload: Workload) -> Ways:
    noise = torch.Generator().manual_seed(0)
    logits = Logits.random(workload, noise)
    return Ways.of(job_of(make_step(workload, logits, noise, load_sampler("reference"))), DEVICE)


@pytest.mark.parametrize(
    ("policy", "recipe", "kernels"),
    [
        ("probabilistic", PLAIN, {"narrow", "wide", "pair_pieces"}),
        ("probabilistic", FILTERED, {"narrow", "wide", "pair_pieces"}),
        ("probabilistic", GREEDY, {"narrow", "wide", "greedy_pieces"}),
        ("strict", PLAIN, {"narrow", "wide", "rowwise", "pieces"}),
        ("strict", FILTERED, {"narrow", "wide"}),
        ("block", PLAIN, {"narrow", "wide", "rowwise"}),
    ],
)
def test_every_kernel_of_a_batch_is_a_way_and_one_is_chosen(
    policy: str, recipe: Recipe, kernels: set[str]
) -> None:
    for num_reqs, drafts in ((1, 3), (96, 3), (2, 0)):
        workload = Workload(
            num_reqs=num_reqs,
            num_spec_tokens=drafts,
            vocab_size=1024,
            policy=policy,
            recipe=recipe,
        )
        found = ways(workload)
        assert {name.split(" ", maxsplit=1)[0] for name in found.shapes} == kernels
        assert found.chosen in found.shapes
        assert num_reqs > 1 or found.chosen == "wide"


def test_rows_are_judged_up_to_an_end_or_all_under_block_verification() -> None:
    row = 2 * 1024
    for policy, judged in (("strict", 1 + 3 + 4), ("probabilistic", 2 + 6 + 7), ("block", 19)):
        workload = Workload(num_reqs=3, vocab_size=1024, policy=policy, recipe=PLAIN)
        assert bytes_judged(workload, (0, 2, 3)) == judged * row
