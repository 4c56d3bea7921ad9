"""On a GPU: batches that are read by pieces have the tokens of small ones, again and again."""

from typing import Any

import pytest
import torch
from attrs import evolve

from acceptor.backends.cupy_backend import LaunchShape
from acceptor.backends.cupy_backend.arguments import verify_job
from acceptor.backends.cupy_backend.workspace import Extent
from acceptor.core import (
    Policy,
    Probabilistic,
    SamplingParams,
    SamplingTensors,
    Strict,
    VerifyOutput,
)
from kit.on_gpu import MIXED, Verification, assert_alike, assert_identical, sampler_of, verification

pytestmark = pytest.mark.gpu

PLAIN, GREEDY = {"temperature": 0.8}, {"temperature": 0.0}
CASES: dict[str, tuple[Policy, tuple[dict[str, float], ...], float]] = {
    "strict": (Strict(), (PLAIN, GREEDY, {"temperature": 1.3}), 1.9),
    "greedy": (Probabilistic(), (GREEDY,), 1.9),
    "probabilistic": (Probabilistic(), (PLAIN, GREEDY, {"temperature": 1.3}), 1.9),
    "filtered": (Probabilistic(), MIXED, 1.2),
}
"""The policy, recipes that take turns, and requests for each multiprocessor."""
every_case = pytest.mark.parametrize("case", CASES)
FLAWED, BAD_ID, PADDED, LAST, FLAWED_DRAFT = 2, 7, 6, 4, 9


def large(case: str, vocab_size: int = 151_936) -> Verification:
    """So many requests that pieces are chosen; some are bad, and one has fewer drafts."""
    policy, recipes, each = CASES[case]
    num_reqs = int(each * torch.cuda.get_device_properties(0).multi_processor_count)
    step = verification(policy, num_reqs=num_reqs, vocab_size=vocab_size)
    wishes = tuple(
        SamplingParams(seed=1000 + i, **recipes[i % len(recipes)])  # type: ignore[arg-type]
        for i in range(num_reqs)
    )
    step.batch.target_logits[4 * FLAWED + 1, 40_000] = torch.nan
    step.batch.target_logits[4 * LAST + 3, 7] = torch.inf
    step.batch.draft_token_ids[PADDED, 1] = -1
    step.batch.draft_token_ids[BAD_ID, 0] = vocab_size
    assert step.batch.draft_logits is not None
    step.batch.draft_logits[FLAWED_DRAFT, 0, 12_000] = torch.nan
    return evolve(step, wishes=wishes, params=SamplingTensors.stack(wishes, "cuda"))


def first(step: Verification, count: int) -> Verification:
    batch = step.batch
    few = evolve(
        batch,
        target_logits=batch.target_logits[: 4 * count],
        cu_num_logits=batch.cu_num_logits[: count + 1],
        draft_token_ids=batch.draft_token_ids[:count],
        positions=batch.positions[:count],
        slot_ids=None if batch.slot_ids is None else batch.slot_ids[:count],
    )
    wishes = step.wishes[:count]
    return Verification(few, wishes, SamplingTensors.stack(wishes, "cuda"), step.policy)


def extent_of(step: Verification) -> Extent:
    return verify_job(step.batch, step.params, step.policy, None).extent


def shape_of(step: Verification) -> LaunchShape:
    sampler: Any = sampler_of("cupy")
    device = sampler._device(step.batch.target_logits)
    if not device.overlaps:
        pytest.skip("pieces are chosen from sm_90 on")
    shape: LaunchShape = sampler._shape(
        device, verify_job(step.batch, step.params, step.policy, None)
    )
    return shape


def check_nothing_is_left() -> None:
    sampler: Any = sampler_of("cupy")
    torch.cuda.synchronize()
    assert not any(workspace.control.any() for workspace in sampler._workspaces.values())


@every_case
@pytest.mark.parametrize("vocab_size", [151_936, 50_264])
def test_tokens_are_the_reference_s_and_those_of_small_batches(case: str, vocab_size: int) -> None:
    step = large(case, vocab_size)
    assert shape_of(step).by_pieces
    got = step.by("cupy")
    assert_alike(step, got, step.by("reference"))
    everywhere = torch.arange(len(step.wishes), device="cuda")
    assert_identical(step.by("cupy"), got, everywhere)
    narrow = LaunchShape(group=0, num_ctas=len(step.wishes))
    assert_identical(step.by("cupy", shape=narrow), got, everywhere)
    few = first(step, 7)
    assert not shape_of(few).by_pieces
    assert_identical(few.by("cupy"), got, everywhere[:7])
    check_nothing_is_left()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_greedy_rows_of_other_dtypes(dtype: torch.dtype) -> None:
    step = large("greedy", 50_264)
    batch = evolve(step.batch, target_logits=step.batch.target_logits.to(dtype))
    step = evolve(step, batch=batch)
    assert shape_of(step).by_pieces
    got = step.by("cupy")
    assert_alike(step, got, step.by("reference"))
    narrow = LaunchShape(group=0, num_ctas=len(step.wishes))
    everywhere = torch.arange(len(step.wishes), device="cuda")
    assert_identical(step.by("cupy", shape=narrow), got, everywhere)
    check_nothing_is_left()


@every_case
@pytest.mark.parametrize("blocks", [5, 10, 24, 100])
def test_larger_and_smaller_pieces_give_the_same_tokens(case: str, blocks: int) -> None:
    step = large(case)
    shape = LaunchShape.pieces(extent_of(step), blocks)
    everywhere = torch.arange(len(step.wishes), device="cuda")
    for some in (step, first(step, 3)):
        got = some.by("cupy", shape=LaunchShape.pieces(extent_of(some), blocks))
        assert_identical(got, step.by("cupy", shape=shape), everywhere[: len(some.wishes)])
        assert_alike(some, got, some.by("reference"))
    check_nothing_is_left()


@every_case
def test_many_calls_eagerly_and_in_a_graph_never_differ(case: str) -> None:
    step, stream = large(case), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    results: list[VerifyOutput] = []
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        expected = step.by("cupy")
        results += [step.by("cupy") for _ in range(50)]
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            results += [step.by("cupy") for _ in range(3)]
        for _ in range(50):
            for result in results[-3:]:
                result.token_ids.fill_(-7)
            graph.replay()
            step.batch.draft_token_ids.copy_(step.batch.draft_token_ids.clone())
        stream.synchronize()
    for result in results:
        assert_identical(result, expected, torch.arange(len(step.wishes), device="cuda"))
    check_nothing_is_left()
