"""The one argument of every kernel, packed field by field as cuda/params.cuh declares it."""

import struct
from collections.abc import Mapping
from typing import Any

MAX_RATES = 127

_INTEGERS = "{0} {0}_stride {0}_wide"
_RECIPE = "{0}_temperature {0}_min_p {0}_top_k {0}_top_p"

FIELDS: tuple[str, ...] = tuple(
    " ".join(
        (
            "target_logits target_stride target_type target_elements target_map vocab_size",
            "draft_logits draft_slot_stride draft_row_stride draft_type draft_map draft_vocab_size",
            "dense filtered policy num_reqs max_spec_len ends_early num_pieces piece_blocks",
            "num_looks residual_blocks",
            _INTEGERS.format("slot_ids"),
            _INTEGERS.format("entries"),
            _INTEGERS.format("positions"),
            _INTEGERS.format("cu_num_logits"),
            _INTEGERS.format("draft_token_ids"),
            "draft_step seeds",
            _RECIPE.format("target"),
            _RECIPE.format("draft"),
            "stream draft_index invalid_status prompt_mask output_counts bias_ids bias_values",
            "num_bias allowed_tokens allowed_stride",
            _INTEGERS.format("allowed_rows"),
            "repetition presence frequency top_n window token_ids num_accepted status",
            "total_variation processed emitted top_token_ids top num_logprobs",
            "tops ends arrivals counted judged counts facts searches",
            "target_stats draft_stats residuals marks",
        )
    ).split()
)
"""The 64-bit fields before the policy's numbers."""

PLACES = {name: place for place, name in enumerate(FIELDS)}
_LAYOUT = struct.Struct(f"={len(FIELDS)}q2d{MAX_RATES}d")
SIZE = _LAYOUT.size


def pack(fields: Mapping[str, Any]) -> bytearray:
    """The struct; fields not named are 0, which is null for a pointer.

    Args:
        fields: integers and addresses by name, and a policy's epsilon, delta and rates.
    """
    rates = fields.get("rates", ())
    numbers = fields.get("epsilon", 0.0), fields.get("delta", 0.0)
    padded = [*numbers, *rates[:MAX_RATES], *[0.0] * (MAX_RATES - len(rates))]
    return bytearray(_LAYOUT.pack(*[fields.get(name, 0) for name in FIELDS], *padded))
