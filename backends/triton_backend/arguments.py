"""What kernels are given: one tuple of groups. A field that is None is compiled away."""

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
    inverse_map: Any
    """[vocab_size] int32, the column of each token id or -1; None when columns are token ids."""


class Masks(NamedTuple):
    """Masks of allowed tokens, see `VerifyBatch`; None where there are none."""

    words: Any = None
    stride: Any = 0
    rows: Any = None
    rows_step: Any = 0


class DraftRows(NamedTuple):
    """Rows of raw draft logits, addressed by slot and row."""

    logits: Any
    slot_stride: Any
    row_stride: Any
    vocab_size: Any
    inverse_map: Any
    """[target vocab_size] int32, the draft id of each target id or -1; None when they agree."""


class Requests(NamedTuple):
    """What belongs to each request, and the strides that it lies at."""

    draft_token_ids: Any
    draft_stride: Any
    draft_step: Any
    positions: Any
    positions_step: Any
    slot_ids: Any
    slots_step: Any


class Entries(NamedTuple):
    """What belongs to each entry of the parameters, besides what others here hold."""

    seeds: Any
    processed: Any
    """[num_reqs] bool, whether logprobs are of a request's law; else they are of raw logits."""


class RecipeArguments(NamedTuple):
    """Each request's recipe, see `RecipeTensors`; a filter is None when nobody uses it."""

    entries: Any
    """[num_reqs] int, each request's entry of all parameters; None for its own number."""

    temperature: Any
    min_p: Any
    top_k: Any
    top_p: Any


class Adjustments(NamedTuple):
    """Logit bias and penalties; None where no request has any."""

    bias_ids: Any = None
    bias_values: Any = None
    bias_width: Any = 0
    repetition: Any = None
    presence: Any = None
    frequency: Any = None


class Counts(NamedTuple):
    """What penalties count, see `TokenCounts`, addressed by slot."""

    prompt_mask: Any = None
    output_counts: Any = None
    stride: Any = 0


class Leniency(NamedTuple):
    """The parameters of lossy policies, each under the policies that have it."""

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
    """[num_reqs] int32, programs that are through with a request; zero between calls."""
    sums: Any
    """[num_reqs, num_drafts, 3] int64, what rows sum up to, in units; zero between calls."""
    seen: Any
    """[num_reqs, num_blocks * 64] uint8, a bit of each token that a request has seen."""
    records: Any
    """[num_reqs * num_rows, words], see `record`."""
    raw: Any
    """[num_reqs * (num_drafts + 1), words], records of raw logits, for logprobs."""
    bins: Any
    """[num_reqs * num_rows, bins] int32, see `thresholds.bins`."""
    odd: Any
    """[num_reqs * num_rows, words] int64, see `thresholds.bins`; where few logits are odd."""
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
    """Where logprobs go, see `Logprobs`."""

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
    invalid: Any
    """The status of a request whose target row is unusable."""
    top_logprobs: Any
    bias_width: Any
    overlaps: Any
    """See `device`."""


class Call(NamedTuple):
    """All that a kernel is given: by a batch, parameters, an output, a workspace and a plan."""

    target: TargetRows
    draft: DraftRows
    masks: Masks
    requests: Requests
    counts: Counts
    entries: Entries
    adjust: Adjustments
    target_recipe: RecipeArguments
    draft_recipe: RecipeArguments
    outputs: Outputs
    logprobs: LogprobOutputs
    scratch: Scratch
    leniency: Leniency
    stream: Any
    draft_index: Any
    variant: Variant

    @classmethod
    def of(cls, values: Iterable[Any]) -> "Call":
        """A call of plain tuples."""
        kinds = cls.__annotations__.values()
        return cls._make(
            kind._make(value) if isinstance(value, tuple) else value
            for kind, value in zip(kinds, values, strict=True)
        )


@triton.jit
def opened(call, BODY: tl.constexpr, rest):
    """Call a kernel's body with a call that loops can carry.

    Triton 3.6 does not carry constants that lie in a tuple beside other values through a loop,
    and every integer that is 1 is one, unless it was given a name inside the kernel.
    """
    values = call[:-1]
    BODY(Call(*values, call.variant), *rest)  # type: ignore[call-arg]
