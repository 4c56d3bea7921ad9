"""On a GPU, a request's tokens are the same bit for bit whatever is around it."""

from typing import Any

import pytest
import torch

from acceptor.backends.conformance import Case
from acceptor.backends.conformance.calls import moved
from acceptor.backends.conformance.requests import Inputs, Layout, Request
from acceptor.core import Policy, Probabilistic, SamplingTensors, Strict
from kit.on_gpu import (
    Verification,
    assert_identical,
    every_fused_backend,
    every_policy,
    verification,
)

pytestmark = pytest.mark.gpu

NUM_REQS = 10


def arranged(step: Verification, order: list[int], layout: Layout) -> Verification:
    """These requests of a dense batch in another place; what belongs to nobody is NaN."""
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
def test_rows_that_large_batches_skip_do_not_matter(
    backend: str, policy: Policy, recipe: dict[str, Any]
) -> None:
    unfiltered: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    step = verification(policy, num_reqs=200, **unfiltered, **recipe)
    expected = step.by(backend)
    assert (expected.num_accepted < 2).any()
    for first in range(0, 200, 20):
        order = [*range(first, first + 20)]
        assert_same_in(backend, step, order, Layout(slots=tuple(range(20))))
