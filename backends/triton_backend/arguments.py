"""What kernels are given, in groups; a field that is None is compiled away.

This module refuses to compute anything.
"""

from typing import Any, NamedTuple

from attrs import frozen


class TargetRows(NamedTuple):
    """Rows of raw target logits, addressed by request and row."""

    logits: Any
    row_stride: int
    vocab_size: int
    cu_num_logits: Any
    """None when every request owns one row."""
    inverse_map: Any
    """[vocab_size] int32, the column of each token id or -1; None when columns are token ids."""


class DraftRows(NamedTuple):
    """Rows of raw draft logits, addressed by slot and row."""

    logits: Any
    slot_stride: int
    row_stride: int
    vocab_size: int
    inverse_map: Any
    """[target vocab_size] int32, the draft id of each target id or -1; None when they agree."""


class Requests(NamedTuple):
    """What belongs to each request."""

    draft_token_ids: Any
    draft_stride: int
    positions: Any
    seeds: Any
    slot_ids: Any


class RecipeArguments(NamedTuple):
    """Each request's recipe, see `RecipeTensors`; None when nobody uses it."""

    temperature: Any
    min_p: Any
    top_k: Any
    top_p: Any


class Adjustments(NamedTuple):
    """Logit bias and penalties; None where no request has any."""

    bias_ids: Any
    bias_values: Any
    bias_width: int
    prompt_mask: Any
    output_counts: Any
    counts_stride: int
    repetition: Any
    presence: Any
    frequency: Any


class Scratch(NamedTuple):
    """The workspace, see `workspace`; what several programs write to together comes first."""

    arrivals: Any
    """[num_reqs, num_rows] int32, how many programs have finished a row."""
    verdicts: Any
    """[num_reqs, max_spec_len + 1] int32, 1 + why a row ends the draft; 0 while unknown."""
    progress: Any
    """[num_reqs, 2] int32, how many rows and residual parts are done; the first halt known."""
    listing: Any
    """[4] int32: rows on the list, tickets taken, programs that are through with it."""
    rivals: Any
    """[num_reqs, max_spec_len + 1, 2] int32, see `rivals`."""
    tokens: Any
    """[num_reqs, max_spec_len + 1] int32, what a row draws where it ends the draft."""
    ratios: Any
    """[num_reqs, max_spec_len + 1, 2] float32, log p - log q and log p of each draft token."""
    statistics: Any
    summaries: Any
    num_blocks: Any
    residual: Any
    thresholds: Any
    open_rows: Any
    """[num_reqs * num_rows, 4] int32, the list: row, what its threshold is not below, mass."""
    counts: Any
    """[rows, COUNT_COPIES, MAX_CANDIDATES], the counts of logits of the first rows on it."""
    candidates: Any


class Variant(NamedTuple):
    """What kernels are compiled for: constants all, see `plan.Plan`."""

    policy: Any
    num_drafts: Any
    num_rows: Any
    all_greedy: Any
    with_masses: Any
    """Block masses are wanted, not only maxima."""
    invalid: Any
    """The status of a request whose target row is unusable."""
    width: Any
    """Blocks of a row, rounded up to a power of 2."""


class Outputs(NamedTuple):
    """Where results go, see `VerifyOutput`."""

    token_ids: Any
    num_accepted: Any
    status: Any
    total_variation: Any = None


class Call(NamedTuple):
    """All that the kernels of lossy policies are given."""

    target: TargetRows
    draft: DraftRows
    requests: Requests
    adjust: Adjustments
    target_recipe: RecipeArguments
    draft_recipe: RecipeArguments
    scratch: Scratch
    outputs: Outputs
    stream: int
    draft_index: int
    variant: Variant


class LogprobOutputs(NamedTuple):
    """Where logprobs go, see `Logprobs`, and which law each request wants them of."""

    processed: Any
    emitted: Any
    top_token_ids: Any
    top: Any


NO_DRAFT = DraftRows(None, 0, 0, 0, None)
NO_ADJUSTMENTS = Adjustments(None, None, 0, None, None, 0, None, None, None)
NO_SCRATCH = Scratch(*[None] * len(Scratch._fields))


@frozen
class Arguments:
    """Everything that kernels are given."""

    target: TargetRows
    draft: DraftRows
    requests: Requests
    adjust: Adjustments
    target_recipe: RecipeArguments
    draft_recipe: RecipeArguments
    scratch: Scratch
    outputs: Outputs
    stream: int
    draft_index: int
    invalid: int
    logprobs: LogprobOutputs | None
    raw: Scratch
