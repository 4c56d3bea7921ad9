"""From a batch to the numbers and addresses that a kernel is launched with.

Works for tensors of any device, so that a host build can be run with the same arguments. It refuses
to read what a tensor holds.
"""

import torch
from attrs import frozen
from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.errors import UnavailableError
from ...core.output import Status
from ...core.policies import Fly, Policy, RelaxedTopN, Strict, Synthetic, Typical
from ...core.randomness import Stream
from ...core.sampling_tensors import RecipeTensors, SamplingTensors
from ...core.token_counts import TokenCounts
from .params import MAX_RATES
from .variant import KernelPolicy, Variant, kernel_policy
from .workspace import Extent, Workspace

MAX_SPEC_LEN = 127
"""A row is seven bits of a block's number."""

_VECTOR_BYTES = 16

Fields = dict[str, int]


@frozen(eq=False)
class Job:
    """What one launch is told, except how it is cut into tasks and where it works.

    Attributes:
        variant: the kernel.
        extent: how large the batch is.
        fields: by the names of params.FIELDS.
        numbers: the policy's.
        rates: the synthetic policy's.
        keep: tensors made on the way, which must live until the launch.
    """

    variant: Variant
    extent: Extent
    fields: Fields
    numbers: tuple[float, float] = (0.0, 0.0)
    rates: tuple[float, ...] = (0.0,)
    keep: tuple[Tensor, ...] = ()

    @property
    def has_whole_vectors(self) -> bool:
        """Whether rows are read by 16 bytes at a time, as cuda/stretch.cuh tells."""
        draft = self.variant.draft
        return self._are_whole("target", self.variant.target, "stride") and (
            draft is None or self._are_whole("draft", draft, "slot_stride", "row_stride")
        )

    def _are_whole(self, model: str, dtype: torch.dtype, *strides: str) -> bool:
        steps = [self.fields[f"{model}_{stride}"] for stride in strides]
        sizes = [size * dtype.itemsize for size in (*steps, self.extent.vocab_size)]
        places = [self.fields[f"{model}_logits"], *sizes]
        return not self.fields.get(f"{model}_map", 0) and all(
            place % _VECTOR_BYTES == 0 for place in places
        )


def verify_job(
    batch: VerifyBatch, params: SamplingTensors, policy: Policy, draft_map: Tensor | None
) -> Job:
    """A verification.

    Raises:
        UnavailableError: the kernels lack the policy, or the draft is longer than they can judge.
    """
    kind = kernel_policy(policy)
    if batch.max_spec_len > MAX_SPEC_LEN:
        raise UnavailableError(
            f"draft_token_ids.shape[1]: backend cupy verifies at most {MAX_SPEC_LEN} draft tokens, "
            f"got {batch.max_spec_len}"
        )
    logits, drafts = batch.target_logits, batch.draft_token_ids
    draft_logits = batch.draft_logits
    if params.draft.all_greedy or params.target.all_greedy or not policy.uses_draft_probs:
        draft_logits = None
    dense = draft_logits is not None
    filtered = _has_filters(params.target) or (dense and _has_filters(params.draft))
    variant = Variant(
        policy=KernelPolicy.STRICT if _is_strict(policy, params) else kind,
        target=logits.dtype,
        draft=None if draft_logits is None else draft_logits.dtype,
        filtered=filtered,
        adjusted=params.bias is not None or params.penalties is not None,
        greedy=params.target.all_greedy,
    )
    extent = Extent(
        num_reqs=batch.num_reqs,
        max_spec_len=batch.max_spec_len,
        num_logits=max(logits.shape[0], batch.num_reqs),
        vocab_size=batch.vocab_size,
        draft_vocab_size=0 if draft_logits is None else draft_logits.shape[-1],
    )
    fields: Fields = {
        "target_elements": batch.vocab_size,
        "draft_ids_step": drafts.stride(1) * drafts.itemsize,
        "rows_known": logits.shape[0] == batch.num_reqs * (batch.max_spec_len + 1),
        "stream": Stream.TARGET,
        "invalid_status": Status.TARGET_LOGITS_INVALID,
    }
    _enter_integers(fields, "draft_ids", drafts)
    _enter_integers(fields, "row_starts", batch.cu_num_logits)
    if draft_logits is not None:
        fields["draft_logits"] = draft_logits.data_ptr()
        fields["draft_slot_stride"], fields["draft_row_stride"], _ = draft_logits.stride()
        fields["draft_map"] = 0 if draft_map is None else draft_map.data_ptr()
    keep = _enter_common(
        fields, extent, logits, batch.positions, batch.slot_ids, batch.token_counts, params,
        params.target,
    )  # fmt: skip
    _enter_recipe(fields, "draft", params.draft, keep)
    keep += [draft_map] if dense and draft_map is not None else []
    numbers, rates = _numbers(fields, policy)
    return Job(variant, extent, fields, numbers, rates, tuple(keep))


def sample_job(batch: SampleBatch, params: SamplingTensors, target_map: Tensor | None) -> Job:
    """One draw per request: a verification without a draft."""
    drafting = batch.draft_index is not None
    recipe = params.draft if drafting else params.target
    vocab_size = batch.logits.shape[1]
    if batch.draft_to_target is not None and batch.target_vocab_size is not None:
        vocab_size = batch.target_vocab_size
    variant = Variant(
        policy=KernelPolicy.STRICT,
        target=batch.logits.dtype,
        filtered=_has_filters(recipe),
        adjusted=not drafting and (params.bias is not None or params.penalties is not None),
        greedy=recipe.all_greedy,
    )
    extent = Extent(
        num_reqs=batch.num_reqs, max_spec_len=0, num_logits=batch.num_reqs, vocab_size=vocab_size
    )
    invalid = Status.DRAFT_LOGITS_INVALID if drafting else Status.TARGET_LOGITS_INVALID
    fields: Fields = {
        "target_elements": batch.logits.shape[1],
        "target_map": 0 if target_map is None else target_map.data_ptr(),
        "rows_known": True,
        "stream": batch.stream,
        "draft_index": 0 if batch.stream is Stream.TARGET else batch.draft_index or 0,
        "invalid_status": invalid,
    }
    keep = _enter_common(
        fields, extent, batch.logits, batch.positions, batch.slot_ids, batch.token_counts, params,
        recipe,
    )  # fmt: skip
    keep += [] if target_map is None else [target_map]
    return Job(variant, extent, fields, keep=tuple(keep))


def place(fields: Fields, extent: Extent, workspace: Workspace) -> None:
    """Enter where a launch may work."""
    control = fields["control"] = workspace.control.data_ptr()
    fields.update((name, control + begin) for name, begin in extent.announced)
    address = workspace.scratch.data_ptr()
    for name, num_bytes in extent.areas:
        fields[name] = address
        address += num_bytes


def _is_strict(policy: Policy, params: SamplingTensors) -> bool:
    return isinstance(policy, Strict) or (params.target.all_greedy and policy.greedy_is_strict)


def _has_filters(recipe: RecipeTensors) -> bool:
    return recipe.any_min_p or recipe.any_top_k or recipe.any_top_p


def _enter_common(
    fields: Fields,
    extent: Extent,
    logits: Tensor,
    positions: Tensor,
    slots: Tensor | None,
    counts: TokenCounts | None,
    params: SamplingTensors,
    recipe: RecipeTensors,
) -> list[Tensor]:
    keep: list[Tensor] = []
    fields["target_logits"] = logits.data_ptr()
    fields["target_stride"] = logits.stride(0)
    fields["seeds"] = _address(params.seeds, keep)
    fields["num_logits"] = extent.num_logits
    fields["num_reqs"] = extent.num_reqs
    fields["max_spec_len"] = extent.max_spec_len
    fields["vocab_size"] = extent.vocab_size
    fields["draft_vocab_size"] = extent.draft_vocab_size
    _enter_integers(fields, "positions", positions)
    if slots is not None:
        _enter_integers(fields, "slots", slots)
    _enter_recipe(fields, "target", recipe, keep)
    _enter_adjustments(fields, params, counts, keep)
    return keep


def _enter_integers(fields: Fields, name: str, integers: Tensor) -> None:
    fields[name] = integers.data_ptr()
    fields[f"{name}_stride"] = integers.stride(0) * integers.itemsize
    fields[f"{name}_wide"] = integers.dtype is torch.int64


def _enter_recipe(fields: Fields, name: str, recipe: RecipeTensors, keep: list[Tensor]) -> None:
    fields[f"{name}_temperature"] = _address(recipe.temperature, keep)
    fields[f"{name}_min_p"] = _address(recipe.min_p, keep)
    fields[f"{name}_top_k"] = _address(recipe.top_k, keep)
    fields[f"{name}_top_p"] = _address(recipe.top_p, keep)


def _enter_adjustments(
    fields: Fields, params: SamplingTensors, counts: TokenCounts | None, keep: list[Tensor]
) -> None:
    if params.bias is not None:
        fields["bias_ids"] = _address(params.bias.token_ids, keep)
        fields["bias_values"] = _address(params.bias.values, keep)
        fields["num_bias"] = params.bias.token_ids.shape[1]
    if params.penalties is not None and counts is not None:
        fields["repetition"] = _address(params.penalties.repetition, keep)
        fields["presence"] = _address(params.penalties.presence, keep)
        fields["frequency"] = _address(params.penalties.frequency, keep)
        fields["prompt_mask"] = counts.prompt_mask.data_ptr()
        fields["prompt_stride"] = counts.prompt_mask.stride(0)
        fields["output_counts"] = counts.output_counts.data_ptr()
        fields["counts_stride"] = counts.output_counts.stride(0)


def _address(tensor: Tensor, keep: list[Tensor]) -> int:
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
        keep.append(tensor)
    return tensor.data_ptr()


def _numbers(fields: Fields, policy: Policy) -> tuple[tuple[float, float], tuple[float, ...]]:
    none = (0.0,)
    if isinstance(policy, Synthetic):
        rates = policy.conditional_rates[:MAX_RATES]
        return (0.0, 0.0), (*rates, *none * (MAX_RATES - len(rates)))
    if isinstance(policy, Typical):
        return (policy.epsilon, policy.delta), none
    if isinstance(policy, RelaxedTopN):
        fields["top_n"] = policy.top_n
        return (0.0, policy.delta), none
    if isinstance(policy, Fly):
        fields["window"] = policy.window
        return (policy.min_entropy, 0.0), none
    return (0.0, 0.0), none
