"""What differs between calls that look alike: where their tensors are."""

from array import array

from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.output import SampleOutput, VerifyOutput
from .params import PLACES


def verify_addresses(
    words: "array[int]",
    batch: VerifyBatch,
    entries: Tensor | None,
    draft_map: Tensor | None,
    out: VerifyOutput,
) -> None:
    """Enter what differs between verifications that look alike."""
    _enter(
        words,
        entries=entries,
        target_logits=batch.target_logits,
        draft_ids=batch.draft_token_ids,
        row_starts=batch.cu_num_logits,
        draft_logits=batch.draft_logits,
        draft_map=draft_map,
        num_accepted=out.num_accepted,
        variation=out.total_variation,
    )
    _enter_what_both_have(words, batch, out)


def sample_addresses(
    words: "array[int]",
    batch: SampleBatch,
    entries: Tensor | None,
    target_map: Tensor | None,
    out: SampleOutput,
) -> None:
    """Enter what differs between draws that look alike."""
    _enter(words, entries=entries, target_logits=batch.logits, target_map=target_map)
    _enter_what_both_have(words, batch, out)


def _enter(words: "array[int]", **tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None:
            words[PLACES[name]] = tensor.data_ptr()


def _enter_what_both_have(
    words: "array[int]", batch: VerifyBatch | SampleBatch, out: VerifyOutput | SampleOutput
) -> None:
    counts, lp = batch.token_counts, out.logprobs
    _enter(words, positions=batch.positions, slots=batch.slot_ids)
    _enter(words, token_ids=out.token_ids, status=out.status)
    _enter(words, allowed_tokens=batch.allowed_tokens, allowed_rows=batch.allowed_rows)
    if words[PLACES["repetition"]] and counts is not None:
        _enter(words, prompt_mask=counts.prompt_mask, output_counts=counts.output_counts)
    if lp is not None:
        _enter(
            words, emitted_logprobs=lp.emitted, top_token_ids=lp.top_token_ids, top_logprobs=lp.top
        )
