"""What kernels are given: one tuple of groups. A field that is None is compiled away."""

from typing import Any, NamedTuple

import triton
import triton.language as tl


class TargetRows(NamedTuple):
    """Rows of raw target logits, addressed by request and row."""

    logits: Any
    row_stride: Any
    vocab_size: Any
    cu_num_logits: Any
    """None when every request owns one row."""
    inverse_map: Any
    """[vocab_size] int32, the column of each token id or -1; None when columns are token ids."""


class Masks(NamedTuple):
    """Masks of allowed tokens, see `VerifyBatch`; None where there are none."""

    words: Any
    stride: Any
    rows: Any


class DraftRows(NamedTuple):
    """Rows of raw draft logits, addressed by slot and row."""

    logits: Any
    slot_stride: Any
    row_stride: Any
    vocab_size: Any
    inverse_map: Any
    """[target vocab_size] int32, the draft id of each target id or -1; None when they agree."""


class Requests(NamedTuple):
    """What belongs to each request."""

    draft_token_ids: Any
    draft_stride: Any
    positions: Any
    slot_ids: Any


class RecipeArguments(NamedTuple):
    """Each request's recipe, see `RecipeTensors`; None when nobody uses it."""

    entries: Any
    """[num_reqs] int, each request's entry of all parameters; None for its own number."""

    temperature: Any
    min_p: Any
    top_k: Any
    top_p: Any


class Adjustments(NamedTuple):
    """Logit bias and penalties; None where no request has any."""

    bias_ids: Any
    bias_values: Any
    bias_width: Any
    repetition: Any
    presence: Any
    frequency: Any


class Counts(NamedTuple):
    """What penalties count, see `TokenCounts`, addressed by slot."""

    prompt_mask: Any
    output_counts: Any
    stride: Any


class Leniency(NamedTuple):
    """The parameters of lossy policies, each under the policies that have it."""

    strictness: Any
    """Epsilon of typical acceptance; the least entropy, in nats, of FLy."""
    delta: Any
    top_n: Any
    window: Any


class Scratch(NamedTuple):
    """The workspace, see `workspace`."""

    arrivals: Any
    """[num_reqs] int32, programs that are through with a request; zero between calls."""
    counters: Any
    """[4] int32, see `queue`; zero between calls."""
    sums: Any
    """[num_reqs, num_drafts, 3] int64, what rows sum up to, in units; zero between calls."""
    seen: Any
    """[num_reqs, num_blocks * 64] uint8, bits of tokens that requests have seen, see `seen`."""
    records: Any
    """[num_reqs * num_rows, words], see `record`."""
    raw: Any
    """[num_reqs * (num_drafts + 1), words], records of raw logits, for logprobs."""
    bins: Any
    """[num_reqs * num_rows, words] int64, see `thresholds.found`."""
    queue: Any
    """[num_reqs * num_rows, rounds] int32, see `queue`."""
    decisions: Any
    """[num_reqs, num_drafts + 1, 4] int32, see `decision`."""
    num_blocks: Any
    queue_length: Any


class Outputs(NamedTuple):
    """Where results go, see `VerifyOutput`."""

    token_ids: Any
    num_accepted: Any
    status: Any
    total_variation: Any


class LogprobOutputs(NamedTuple):
    """Where logprobs go, see `Logprobs`, and which law each request wants them of."""

    processed: Any
    emitted: Any
    top_token_ids: Any
    top: Any


class Variant(NamedTuple):
    """What kernels are compiled for: constants all."""

    policy: Any
    """"strict", "rates", "probabilistic", "block", "typical", "relaxed" or "fly"."""
    is_lossy: Any
    """The policy looks at whole rows once more."""
    rates: Any
    """Conditional acceptance rates in units of 2**-23, for "rates"."""
    num_drafts: Any
    num_rows: Any
    """Rows of statistics per request."""
    width: Any
    """Blocks per row: a power of 2, at least one Philox group."""
    filters: Any
    """Some row is cut; `ranks` by min-p or top-k, `masses` by top-p."""
    ranks: Any
    masses: Any
    key_shift: Any
    """How many low bits of every logit's key are the same."""
    same_dtype: Any
    """Target and draft logits are of one dtype."""
    sample: Any
    """Logits of a row that are looked at for a bracket."""
    invalid: Any
    """The status of a request whose target row is unusable."""
    top_logprobs: Any
    bias_width: Any
    overlaps: Any
    """See `device`."""


class Call(NamedTuple):
    """All that a kernel is given."""

    target: TargetRows
    masks: Masks
    draft: DraftRows
    requests: Requests
    counts: Counts
    seeds: Any
    adjust: Adjustments
    target_recipe: RecipeArguments
    draft_recipe: RecipeArguments
    leniency: Leniency
    scratch: Scratch
    outputs: Outputs
    logprobs: LogprobOutputs
    stream: Any
    draft_index: Any
    variant: Variant


@triton.jit
def opened(call, BODY: tl.constexpr, rest):
    """Call a kernel's body with a call that loops can carry.

    Triton 3.6 does not carry constants that lie in a tuple beside other values through a loop,
    and every integer that is 1 is one, unless it was given a name inside the kernel.
    """
    target = TargetRows(*call.target)
    masks = Masks(*call.masks)
    draft = DraftRows(*call.draft)
    requests = Requests(*call.requests)
    counts = Counts(*call.counts)
    adjust = Adjustments(*call.adjust)
    leniency = Leniency(*call.leniency)
    scratch = Scratch(*call.scratch)
    stream = call.stream
    draft_index = call.draft_index
    BODY(
        Call(
            target,
            masks,
            draft,
            requests,
            counts,
            call.seeds,
            adjust,
            call.target_recipe,
            call.draft_recipe,
            leniency,
            scratch,
            call.outputs,
            call.logprobs,
            stream,
            draft_index,
            call.variant,
        ),
        *rest,
    )
