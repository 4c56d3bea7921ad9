"""Two small kernels that turn vLLM's tensors of a step into acceptor's, and back."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _read_kernel(
    draft_ids_ptr,
    positions_ptr,
    cu_num_logits_ptr,
    drafted_ptr,
    valid_ptr,
    pos_ptr,
    logits_ptr,
    logits_stride,
    NUM_SPEC_TOKENS: tl.constexpr,
    WIDTH: tl.constexpr,
    LOSSLESS: tl.constexpr,
):
    request = tl.program_id(0)
    start = tl.load(cu_num_logits_ptr + request).to(tl.int64)
    end = tl.load(cu_num_logits_ptr + request + 1)
    places = tl.arange(0, WIDTH)
    rows = start + places
    is_draft = rows + 1 < end
    drafted = tl.load(drafted_ptr + rows + 1, mask=is_draft, other=-1)
    valid = tl.load(valid_ptr + rows + 1, mask=is_draft, other=-1)
    logits = tl.load(logits_ptr + rows * logits_stride + drafted, mask=drafted >= 0, other=0.0)
    instead = drafted if LOSSLESS else tl.full((WIDTH,), -1, drafted.dtype)
    told = tl.where(logits.to(tl.float32) == float("-inf"), instead, valid)
    into = draft_ids_ptr + request * NUM_SPEC_TOKENS + places
    tl.store(into, told, mask=places < NUM_SPEC_TOKENS)
    tl.store(positions_ptr + request, tl.load(pos_ptr + start) + 1)


def read_step(
    logits: Tensor,
    cu_num_logits: Tensor,
    pos: Tensor,
    drafted: Tensor,
    valid: Tensor,
    num_spec_tokens: int,
    *,
    lossless: bool,
) -> tuple[Tensor, Tensor]:
    """Draft ids [num_reqs, K], -1 after a draft, and the position that each first row decides.

    vLLM hides draft tokens from the first one on that a grammar forbids. A lossless policy must see
    all that were drawn, and never accepts that token, whose logit is -inf. A lossy policy might
    accept it, so it does not see it.

    Args:
        logits: [num_logits, vocab_size], rows grouped by request.
        cu_num_logits: [num_reqs + 1], where each request's rows begin.
        pos: [num_logits], the position of the token before each row.
        drafted: [num_logits], that token.
        valid: that token, or -1 if it must not be accepted.
        num_spec_tokens: K.
        lossless: whether the policy is lossless.
    """
    num_reqs = len(cu_num_logits) - 1
    draft_ids = drafted.new_empty((num_reqs, num_spec_tokens))
    positions = pos.new_empty(num_reqs)
    _read_kernel[(num_reqs,)](
        draft_ids,
        positions,
        cu_num_logits,
        drafted,
        valid,
        pos,
        logits,
        logits.stride(0),
        NUM_SPEC_TOKENS=num_spec_tokens,
        WIDTH=triton.next_power_of_2(num_spec_tokens),
        LOSSLESS=lossless,
        num_warps=1,
    )
    return draft_ids, positions


@triton.jit
def _finish_kernel(
    token_ids_ptr, num_sampled_ptr, num_accepted_ptr, NUM_ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    request, places = tl.program_id(0), tl.arange(0, WIDTH)
    ids_ptr, inside = token_ids_ptr + request * NUM_ROWS + places, places < NUM_ROWS
    ids = tl.load(ids_ptr, mask=inside)
    tl.store(ids_ptr, tl.maximum(ids, 0), mask=inside)
    tl.store(num_sampled_ptr + request, tl.load(num_accepted_ptr + request) + 1)


def finish_step(token_ids: Tensor, num_accepted: Tensor) -> Tensor:
    """Numbers of emitted tokens [num_reqs]; -1 in token_ids [num_reqs, K + 1] becomes 0, in place.

    So a request with invalid logits goes on with a token that any model can read.
    """
    (num_reqs, num_rows), num_sampled = token_ids.shape, torch.empty_like(num_accepted)
    _finish_kernel[(num_reqs,)](
        token_ids,
        num_sampled,
        num_accepted,
        NUM_ROWS=num_rows,
        WIDTH=triton.next_power_of_2(num_rows),
        num_warps=1,
    )
    return num_sampled
