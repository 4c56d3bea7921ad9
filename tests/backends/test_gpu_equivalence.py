"""On a GPU all backends give a request the same result in any batch, at real vocabularies."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch

from acceptor.backends.conformance import Case
from acceptor.backends.conformance.calls import moved
from acceptor.backends.conformance.requests import Inputs, Layout, Request
from acceptor.core import Block, Policy, Probabilistic, SamplingTensors, Strict
from kit.interpreted import run_python
from kit.on_gpu import (
    FUSED,
    KINDS,
    Verification,
    assert_alike,
    assert_identical,
    every_fused_backend,
    every_policy,
    sampler_of,
    verification,
)

pytestmark = pytest.mark.gpu

LOSSLESS = (Strict(), Probabilistic(), Block())
FLAT: tuple[dict[str, Any], ...] = (
    {"temperature": 1.5, "top_p": 0.95},
    {"temperature": 1.0, "top_p": 0.5},
    {"temperature": 1.2, "top_k": 20_000, "top_p": 0.9},
    {"temperature": 2.0, "min_p": 0.001},
)
WARM = tuple({"temperature": temperature} for temperature in (0.8, 1.0, 1.5, 3.0))
FILTERED: dict[str, Any] = {"top_k": 50, "top_p": 0.9}


def many(policy: Policy, num_reqs: int, **recipe: Any) -> Verification:
    how: dict[str, Any] = {"vocab_size": 17_160, "inputs": "mixed", "recipes": WARM}
    return verification(policy, num_reqs=num_reqs, **how, **recipe)


STEPS: Mapping[str, Callable[[], Verification]] = (
    {f"mixed, {policy.name}": partial(verification, policy) for policy in KINDS}
    | {
        f"no vector fits, {policy.name}": partial(verification, policy, vocab_size=50_257)
        for policy in LOSSLESS
    }
    # Thresholds lie among thousands of logits.
    | {
        f"{n} flat, {policy.name}": partial(
            verification, policy, num_reqs=n, inputs="flat", recipes=FLAT
        )
        for policy in LOSSLESS
        for n in (4, 40)
    }
    # The search for a threshold goes by digits, of which these have twice as many.
    | {
        f"{n} flat of all 32 bits": partial(
            verification, Probabilistic(), num_reqs=n, inputs="flat", recipes=FLAT, dtype="float32"
        )
        for n in (4, 40)
    }
    # Peaked and flat rows: how they are dealt out depends on how many there are.
    | {
        f"{n} of {[*recipe]}, {policy.name}": partial(many, policy, n, **recipe)
        for policy in LOSSLESS
        for n in (64, 300)
        for recipe in ({}, FILTERED, {"top_p": 0.9})
    }
)


@every_fused_backend
@pytest.mark.parametrize("make", STEPS.values(), ids=STEPS)
def test_large_batches_match_the_reference(backend: str, make: Callable[[], Verification]) -> None:
    step = make()
    assert_alike(step, step.by(backend), step.by("reference"))


@pytest.mark.parametrize("recipe", [FILTERED, {"top_p": 0.9}])
def test_a_wave_of_filtered_requests_is_the_same_again_and_again(recipe: dict[str, Any]) -> None:
    """CuPy gives each a CTA, whose warps read ahead of those that judge."""
    step = many(Probabilistic(), 256, **recipe)
    expected = step.by("cupy")
    for _ in range(100):
        assert torch.equal(step.by("cupy").token_ids, expected.token_ids)


SUITE = (
    "test_random_batches",
    "test_corner and float",
    "test_corner and not float",
    "not test_random_batches and not test_corner",
)
"""Parts of about the same length."""


@pytest.mark.parametrize("backend", ["reference", *FUSED])
def test_the_conformance_suite(backend: str) -> None:
    sampler_of(backend)
    # Each compiles tens of kernels, one after the other.
    with ThreadPoolExecutor(len(SUITE)) as pool:
        list(pool.map(partial(run_suite, backend), SUITE))


def run_suite(backend: str, part: str) -> None:
    suite = ["--pyargs", "acceptor.backends.conformance.test_backend", "-k", part]
    plugin = ["-p", "acceptor.backends.conformance.pytest_plugin", "--import-mode=importlib"]
    options = ["--backend", backend, "--device", "cuda", "--batches", "1"]
    options += ["--max-vocab-size", "5001"] + ["--may-wait"] * (backend == "reference")
    calm = ["-q", "-W", "default", "-p", "no:cacheprovider"]
    run_python("-m", "pytest", *calm, *plugin, *options, *suite)


NUM_REQS = 10


def arranged(step: Verification, order: list[int], layout: Layout) -> Verification:
    """These requests of a dense batch in other places; unused memory is NaN."""
    batch, num_rows = step.batch, step.batch.max_spec_len + 1
    assert batch.draft_logits is not None
    requests = [
        Request(
            params=step.sampling_params[place],
            target_logits=batch.target_logits[place * num_rows : (place + 1) * num_rows],
            draft_logits=batch.draft_logits[place],
            draft_token_ids=tuple(batch.draft_token_ids[place].tolist()),
            position=int(batch.positions[place]),
        )
        for place in order
    ]
    dtype = str(batch.target_logits.dtype).removeprefix("torch.")
    case = Case(vocab_size=batch.vocab_size, dtype=dtype, draft_dtype=dtype)
    inputs = Inputs(case, tuple(requests), layout)
    laid_out = moved(inputs.verify_batch(), torch.device("cuda"))
    sampling_params = tuple(request.params for request in requests)
    return Verification(
        laid_out, sampling_params, SamplingTensors.stack(sampling_params, "cuda"), step.policy
    )


def assert_same_in(backend: str, step: Verification, order: list[int], layout: Layout) -> None:
    expected = step.by(backend)
    got = arranged(step, order, layout).by(backend)
    assert_identical(got, expected, torch.tensor(order, device="cuda"))


def many_times(copies: int) -> tuple[list[int], Layout]:
    """All requests in another order and other slots, some more than once."""
    order = [(7 * i + 3) % NUM_REQS for i in range(NUM_REQS * copies)]
    slots = tuple((11 * i + 5) % (len(order) + 3) for i in range(len(order)))
    assert len({*slots}) == len(slots)
    return order, Layout(slots=slots, spare_slots=3)


def spread(gap: int) -> Layout:
    return Layout(slots=(2, 0, 1), spare_slots=1, spare_drafts=2, spare_rows=3, gap=gap)


ELSEWHERE: dict[str, tuple[list[int], Layout]] = {
    **{f"{n} times, mixed": many_times(n) for n in (1, 4, 24)},
    **{f"alone, {place}": ([place], Layout(slots=(0,))) for place in range(5)},
    **{f"gaps of {gap} and spare room": ([4, 2, 9], spread(gap)) for gap in (1, 8)},
    "first part": ([*range(6)], Layout(slots=(*range(6),))),
    "second part": ([*range(6, NUM_REQS)], Layout(slots=(*range(4),))),
}


@every_fused_backend
@every_policy
@pytest.mark.parametrize(("order", "layout"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_other_batches_and_layouts_do_not_matter(
    backend: str, policy: Policy, order: list[int], layout: Layout
) -> None:
    assert_same_in(backend, verification(policy, num_reqs=NUM_REQS), order, layout)


@every_fused_backend
@pytest.mark.parametrize("policy", [Strict(), Probabilistic()])
@pytest.mark.parametrize("recipe", [{}, {"temperature": 0.0}], ids=["mixed", "greedy"])
def test_skipped_rows_do_not_matter(backend: str, policy: Policy, recipe: dict[str, Any]) -> None:
    unfiltered: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    step = verification(policy, num_reqs=200, **unfiltered, **recipe)
    assert (step.by(backend).num_accepted < 2).any()
    for first in range(0, 200, 20):
        order = [*range(first, first + 20)]
        assert_same_in(backend, step, order, Layout(slots=tuple(range(20))))
