"""The one argument of every kernel, packed as cuda/params.cuh declares it.

Field by field in the same order; this module refuses to know what the fields mean.
"""

import struct
from collections.abc import Mapping, Sequence

MAX_RATES = 127

_INTEGERS = "{0} {0}_stride {0}_wide"
_RECIPE = "{0}_temperature {0}_min_p {0}_top_k {0}_top_p"

FIELDS: tuple[str, ...] = tuple(
    " ".join(
        (
            "target_logits target_stride vocab_size max_spec_len group group_inverse share",
            "inverse rows_known target_elements target_map announced control",
            _INTEGERS.format("slots"),
            "draft_logits draft_slot_stride draft_row_stride draft_vocab_size announced_drafts",
            "seeds",
            _INTEGERS.format("positions"),
            _INTEGERS.format("row_starts"),
            _INTEGERS.format("draft_ids"),
            "draft_ids_step",
            _RECIPE.format("target"),
            _RECIPE.format("draft"),
            "num_reqs draft_index stream invalid_status token_ids num_accepted status variation",
            "rivals draft_map prompt_mask prompt_stride output_counts counts_stride bias_ids",
            "bias_values num_bias repetition presence frequency target_stats draft_stats",
            "residuals num_logits top_n window",
        )
    ).split()
)
"""The 64-bit fields before the policy's numbers."""

_FIXED = struct.Struct(f"={len(FIELDS)}q2d")


def size(num_rates: int) -> int:
    """Bytes of the struct of a kernel that knows so many rates."""
    return _FIXED.size + 8 * num_rates


def pack(
    fields: Mapping[str, int],
    numbers: tuple[float, float] = (0.0, 0.0),
    rates: Sequence[float] = (0.0,),
) -> bytearray:
    """The struct; fields not named are 0, which is null for a pointer.

    Args:
        fields: integers and addresses by name.
        numbers: the policy's epsilon and delta.
        rates: as many as the kernel knows: MAX_RATES of the synthetic policy, else one.
    """
    get = fields.get
    fixed = _FIXED.pack(*[get(name, 0) for name in FIELDS], *numbers)
    return bytearray(fixed + struct.pack(f"={len(rates)}d", *rates))
