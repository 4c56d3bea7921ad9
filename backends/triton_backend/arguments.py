"""The arguments of kernels: one tuple of groups. Code for a field that is None is compiled away."""

from collections.abc import Iterable
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
    starts_step: Any
    inverse_map: Any = None
    """[vocab_size] int32, the column of each token id or -1; None when columns are token ids."""


class Masks(NamedTuple):
    """Masks of allowed tokens, see `VerifyBatch`; None where there are none."""

    words: Any
    stride: Any
    rows: Any
    rows_step: Any


class DraftRows(NamedTuple):
    """Rows of raw draft logits, addressed by slot and row."""

    logits: Any
    slot_stride: Any
    row_stride: Any
    vocab_size: Any
    inverse_map: Any = None
    """[target vocab_size] int32, the draft id of each target id or -1; None when they agree."""


class Requests(NamedTuple):
    """The data of each request, and its strides; the token counts for penalties are by slot."""

    draft_token_ids: Any
    draft_stride: Any
    draft_step: Any
    positions: Any
    positions_step: Any
    slot_ids: Any
    slots_step: Any
    prompt_mask: Any
    output_counts: Any
    counts_stride: Any


class RecipeArguments(NamedTuple):
    """Each request's recipe, see `RecipeTensors`; a filter that no request uses is None."""

    temperature: Any
    min_p: Any
    top_k: Any
    top_p: Any


class Entries(NamedTuple):
    """The data of each entry of the parameters, except for recipes; None where no request asks."""

    numbers: Any
    """[num_reqs] int, each request's entry; None if request i has entry i."""
    seeds: Any
    processed: Any = None
    """[num_reqs] bool, whether logprobs are of a request's law; else they are of raw logits."""
    bias_ids: Any = None
    bias_values: Any = None
    bias_width: Any = 0
    repetition: Any = None
    presence: Any = None
    frequency: Any = None


class Leniency(NamedTuple):
    """The parameters of lossy policies."""

    strictness: Any
    """Epsilon of typical acceptance; the least entropy, in nats, of FLy."""
    delta: Any
    top_n: Any
    window: Any


class Scratch(NamedTuple):
    """The workspace in its order, see `workspace`."""

    counters: Any
    """[4] int32, see `queue`; zero between calls."""
    arrivals: Any
    """[num_reqs] int32, how many programs have finished a request; zero between calls."""
    sums: Any
    """[num_reqs, num_drafts, 3] int64, sums over rows, in units; zero between calls."""
    num_touched: Any
    """[num_reqs] int32, how many tokens bias or penalties touch; zero between calls."""
    seen: Any
    """[num_reqs, num_blocks * 64] uint8, a bit per token: whether a request has seen it."""
    records: Any
    """[num_reqs * num_rows, words], see `records`."""
    raw: Any
    """[num_reqs * (num_drafts + 1), words], records of raw logits, for logprobs."""
    bins: Any
    """[num_reqs * num_rows, bins] int32, see `thresholds.bins`."""
    touched: Any
    """[num_reqs, words] int32, these tokens; only in bfloat16 with filters."""
    odd: Any
    """[num_reqs * num_rows, words] int64, see `thresholds.touched`; also only then."""
    queue: Any
    """[num_reqs * num_rows, rounds] int32, see `queue`."""
    decisions: Any
    """[num_reqs, num_drafts + 1, 4] int32, see `records.store_decision`."""
    num_blocks: Any
    queue_length: Any


class Outputs(NamedTuple):
    """The memory for results, see `VerifyOutput` and `Logprobs`."""

    token_ids: Any
    num_accepted: Any
    status: Any
    total_variation: Any
    emitted: Any
    top_token_ids: Any
    top: Any


class Variant(NamedTuple):
    """The constants that kernels are compiled for."""

    policy: Any
    """"strict", "rates", "probabilistic", "block", "typical", "relaxed" or "fly"."""
    is_lossy: Any
    """Whether the policy reads whole rows once more."""
    rates: Any
    """Conditional acceptance rates in units of 2**-23, for "rates"."""
    num_drafts: Any
    num_rows: Any
    """Rows of statistics per request."""
    width: Any
    """Blocks per row: a power of 2, at least one Philox group."""
    filters: Any
    """Whether any filter cuts a row: `ranks` says min-p or top-k, `masses` says top-p."""
    ranks: Any
    masses: Any
    key_shift: Any
    """How many low bits are equal in all logits' keys."""
    invalid: Any
    """The status of a request whose target row is unusable."""
    top_logprobs: Any
    extra_width: Any
    """A power of two, at least the number of tokens with a bias, and of drafts if they count."""
    realigns: Any
    """Whether some rows of two-byte logits begin elsewhere than at multiples of 16 bytes."""
    overlaps: Any
    """See `device`."""


class Call(NamedTuple):
    """All arguments of a kernel: from a batch, parameters, an output, a workspace and a plan."""

    target: TargetRows
    draft: DraftRows
    masks: Masks
    requests: Requests
    entries: Entries
    target_recipe: RecipeArguments
    draft_recipe: RecipeArguments
    outputs: Outputs
    scratch: Scratch
    leniency: Leniency
    stream: Any
    draft_index: Any
    variant: Variant

    @classmethod
    def of(cls, values: Iterable[Any]) -> "Call":
        """Make a call from plain tuples."""
        kinds = cls.__annotations__.values()
        return cls._make(
            kind._make(value) if isinstance(value, tuple) else value
            for kind, value in zip(kinds, values, strict=True)
        )


@triton.jit(repr=lambda kind: kind.constants["STAGE"].__name__)
def stage_kernel(call, rest, STAGE: tl.constexpr):
    """Run a stage in each program, with a call that loops can carry.

    Triton 3.6 cannot carry a tuple that mixes constants and other values through a loop. Every
    integer that is 1 is a constant, unless it got a name inside the kernel.
    """
    if call.variant.overlaps:
        # The next stage's programs may start once every program has said so.
        tl.extra.cuda.gdc_launch_dependents()
    values = call[:-1]
    STAGE(Call(*values, call.variant), *rest)  # type: ignore[call-arg]
