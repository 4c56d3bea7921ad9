"""Given memory equals what a call would allocate, and counts by slot are entered once each."""

from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from acceptor.backends.reference import ReferenceSampler
from acceptor.core import (
    InvalidInputError,
    SampleBatch,
    SamplingParams,
    SamplingTensors,
    TokenCounts,
    Typical,
    UnavailableError,
    check_sample_output,
    check_verify_output,
    check_workspace,
    empty_sample_output,
    empty_verify_output,
)
from acceptor.core.checks import check_device
from kit.batches import dense, stacked

SAMPLER, POLICY, CPU = ReferenceSampler(), Typical(), torch.device("cpu")
LOGITS = torch.randn(2, 4, 9, generator=torch.Generator().manual_seed(3))
POSITIONS = torch.tensor([5, 6])
FIELDS: dict[str, Any] = {"positions": POSITIONS, "draft_logits": LOGITS[:, :3] + 1}
ROWS = dense(LOGITS, [[1, 8, 3], [4, -1, -1]], **FIELDS)
ROW = SampleBatch(logits=LOGITS[:, 0], positions=POSITIONS)
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
def test_an_output_unlike_the_calls_own_is_refused(name: str, spoil: Any, message: str) -> None:
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


def test_a_slot_starts_with_its_prompt_and_forgets_the_last_request() -> None:
    counts = TokenCounts.empty(2, 4)
    counts.start(0, [1, 1, 3])
    counts.start(1, [])
    counts.add(torch.tensor([0]), torch.tensor([[2, 2, -1]]))
    assert counts.prompt_mask.tolist() == [[False, True, False, True], [False] * 4]
    assert counts.output_counts.tolist() == [[0, 0, 2, 0], [0] * 4]
    counts.start(0, [0])
    assert counts.prompt_mask[0].tolist() == [True, False, False, False]
    assert counts.output_counts[0].tolist() == [0] * 4


@pytest.mark.parametrize("wrong", [(2, []), (-1, []), (1, [0, 4]), (1, [np.int64(-1)])])
def test_an_id_out_of_range_changes_nothing(wrong: tuple[int, list[int]]) -> None:
    counts = TokenCounts.empty(2, 4)
    of_numpy: tuple[Any, Any] = (np.int64(1), [np.int64(3)])
    counts.start(*of_numpy)
    with pytest.raises(InvalidInputError, match=r" expected a number in \[0, [13]\], got (2|4|-1)"):
        counts.start(*wrong)
    assert counts.prompt_mask.tolist() == [[False] * 4, [False, False, False, True]]


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_absent_cuda_is_one_line() -> None:
    message = r"^device: expected cpu, as PyTorch finds no CUDA device, got cuda$"
    with pytest.raises(UnavailableError, match=message):
        TokenCounts.empty(2, 4, "cuda")
    with pytest.raises(UnavailableError, match=message):
        SamplingTensors.stack([SamplingParams(seed=1)], "cuda")


def test_there_is_one_cpu() -> None:
    assert check_device("cpu:3") == torch.device("cpu")


@given(
    st.lists(st.lists(st.integers(-1, 4), min_size=3, max_size=3), max_size=4),
    st.permutations(range(4)),
    st.sampled_from([torch.int32, torch.int64]),
)
def test_emitted_tokens_count_once(emitted: Any, slots: list[int], dtype: Any) -> None:
    counts = TokenCounts.empty(4, 5)
    slot_ids = torch.tensor(slots[: len(emitted)], dtype=dtype)
    counts.add(slot_ids, torch.tensor(emitted, dtype=torch.int64).view(-1, 3))
    for slot, tokens in zip(slots, emitted, strict=False):
        expected = [tokens.count(token_id) for token_id in range(5)]
        assert counts.output_counts[slot].tolist() == expected
    assert int(counts.output_counts.sum()) == sum(token >= 0 for row in emitted for token in row)
