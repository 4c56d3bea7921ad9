"""Memory that a caller brings to a call is what the call would have allocated, or is refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from attrs import evolve

from acceptor.backends.reference import ReferenceSampler
from acceptor.core import (
    InvalidInputError,
    SampleBatch,
    Typical,
    VerifyBatch,
    check_sample_output,
    check_verify_output,
    check_workspace,
    empty_sample_output,
    empty_verify_output,
)
from kit.batches import stacked

SAMPLER, POLICY, CPU = ReferenceSampler(), Typical(), torch.device("cpu")
LOGITS = torch.randn(2, 4, 9, generator=torch.Generator().manual_seed(3))
ROWS = VerifyBatch.dense(
    target_logits=LOGITS,
    draft_token_ids=torch.tensor([[1, 8, 3], [4, -1, -1]]),
    positions=torch.tensor([5, 6]),
    draft_logits=LOGITS[:, :3] + 1,
)
ROW = SampleBatch(logits=LOGITS[:, 0], positions=torch.tensor([5, 6]))
PARAMS, PLAIN = stacked(2, logprobs=2), stacked(2)


def leaves(output: Any) -> list[torch.Tensor]:
    logprobs = output.logprobs
    parts = [output.token_ids, output.status, logprobs.emitted, logprobs.top_token_ids]
    return [*parts, logprobs.top, *[getattr(output, "total_variation", output.status)]]


@pytest.mark.parametrize("fill", [7, -3])
def test_a_call_writes_all_of_the_memory_it_is_given(fill: int) -> None:
    out, drawn = empty_verify_output(ROWS, PARAMS, POLICY), empty_sample_output(ROW, PARAMS)
    for tensor in (*leaves(out), *leaves(drawn)):
        tensor.fill_(fill)
    assert SAMPLER.verify(ROWS, PARAMS, POLICY, out=out) is out
    assert SAMPLER.sample(ROW, PARAMS, out=drawn) is drawn
    expected = leaves(SAMPLER.verify(ROWS, PARAMS, POLICY)) + leaves(SAMPLER.sample(ROW, PARAMS))
    for got, want in zip(leaves(out) + leaves(drawn), expected, strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        ("token_ids", lambda t: t[:1], r"out.token_ids: expected shape \[2, 4\], got \[1, 4\]"),
        ("token_ids", lambda t: t.int(), "out.token_ids: expected dtype int64, got torch.int32"),
        ("token_ids", lambda t: t.t().contiguous().t(), "out.token_ids: expected a contiguous"),
        ("num_accepted", lambda t: t.to("meta"), "out.num_accepted: expected device cpu, got meta"),
        ("status", lambda _: None, "out.status: expected a tensor, got NoneType"),
        ("logprobs", lambda _: None, "out.logprobs: expected memory for it, got None"),
        ("logprobs", lambda p: evolve(p, top=p.top[..., :1]), r"out.logprobs.top: expected shape"),
        ("total_variation", lambda _: None, "out.total_variation: expected memory for it, got"),
    ],
)
def test_an_output_unlike_the_calls_own_is_refused(
    name: str, spoil: Callable[[Any], Any], message: str
) -> None:
    out = empty_verify_output(ROWS, PARAMS, POLICY)
    check_verify_output(out, ROWS, PARAMS, POLICY)
    wrong = evolve(out, **{name: spoil(getattr(out, name))})
    with pytest.raises(InvalidInputError, match=message):
        check_verify_output(wrong, ROWS, PARAMS, POLICY)
    with pytest.raises(InvalidInputError, match=message):
        SAMPLER.verify(ROWS, PARAMS, POLICY, out=wrong)


def test_a_draft_draw_reports_no_logprobs() -> None:
    out, drafting = empty_sample_output(ROW, PARAMS), evolve(ROW, draft_index=1)
    with pytest.raises(InvalidInputError, match="logprobs: expected None, got Logprobs"):
        check_sample_output(out, drafting, PARAMS)
    with pytest.raises(InvalidInputError, match="logprobs: expected memory for it, got None"):
        SAMPLER.sample(ROW, PARAMS, out=empty_sample_output(drafting, PARAMS))
    check_sample_output(empty_sample_output(ROW, PLAIN), drafting, PARAMS)


@pytest.mark.parametrize(
    ("workspace", "message"),
    [
        (torch.zeros(63, dtype=torch.uint8), r"workspace.shape\[0\]: expected a number in \[64, "),
        (torch.zeros(64), "workspace: expected dtype uint8, got torch.float32"),
        (torch.zeros(8, 8, dtype=torch.uint8), r"workspace: expected shape \[any\], got \[8, 8\]"),
        (torch.zeros(64, dtype=torch.uint8, device="meta"), "workspace: expected device cpu, got"),
        (torch.zeros(128, dtype=torch.uint8)[::2], "workspace: expected a contiguous tensor"),
        (torch.zeros(96, dtype=torch.uint8)[8:], "workspace: expected an address that is a multip"),
    ],
)
def test_a_workspace_that_cannot_serve_is_refused(workspace: torch.Tensor, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        check_workspace(workspace, 64, CPU)


def test_the_reference_needs_no_workspace_and_checks_one_that_it_is_given() -> None:
    assert SAMPLER.verify_workspace_size(ROWS, PARAMS, POLICY) == 0
    assert SAMPLER.sample_workspace_size(ROW, PARAMS) == 0
    SAMPLER.verify(ROWS, PARAMS, POLICY, workspace=torch.zeros(0, dtype=torch.uint8))
    with pytest.raises(InvalidInputError, match="workspace: expected dtype uint8"):
        SAMPLER.verify(ROWS, PARAMS, POLICY, workspace=torch.zeros(4))
    with pytest.raises(InvalidInputError, match="workspace: expected dtype uint8"):
        SAMPLER.sample(ROW, PARAMS, workspace=torch.zeros(4))
