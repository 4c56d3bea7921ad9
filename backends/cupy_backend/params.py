"""The one argument of every kernel, packed as cuda/params.cuh declares it.

Field by field in the same order; this module refuses to know what the fields mean.
"""

import struct
from collections.abc import Mapping, Sequence

MAX_RATES = 32

_INTEGERS = "{0} {0}_stride {0}_wide"
_RECIPE = "{0}_temperature {0}_min_p {0}_top_k {0}_top_p"

FIELDS: tuple[str, ...] = tuple(
    " ".join(
        (
            "target_logits target_stride draft_logits draft_slot_stride draft_row_stride",
            "target_map draft_map prompt_mask prompt_stride output_counts counts_stride",
            "bias_ids bias_values num_bias repetition presence frequency seeds",
            _RECIPE.format("target"),
            _RECIPE.format("draft"),
            _INTEGERS.format("row_starts"),
            _INTEGERS.format("positions"),
            _INTEGERS.format("slots"),
            _INTEGERS.format("draft_ids"),
            "draft_ids_step token_ids num_accepted status variation control scratch",
            "set_words num_logits num_reqs max_spec_len vocab_size target_elements",
            "draft_vocab_size pair_chunks last_chunks chunk residual_chunks stream draft_index",
            "invalid_status top_n window",
        )
    ).split()
)
"""The 64-bit fields before the policy's numbers."""

_LAYOUT = struct.Struct(f"={len(FIELDS)}q2d{MAX_RATES}d")
SIZE = _LAYOUT.size


def pack(
    fields: Mapping[str, int],
    numbers: tuple[float, float] = (0.0, 0.0),
    rates: Sequence[float] = (),
) -> bytes:
    """The struct; fields not named are 0, which is null for a pointer.

    Args:
        fields: integers and addresses by name.
        numbers: the policy's epsilon and delta.
        rates: the synthetic policy's conditional rates, at most MAX_RATES.
    """
    get = fields.get
    padded = (*rates, *(0.0,) * (MAX_RATES - len(rates)))
    return _LAYOUT.pack(
        *[get(name, 0) for name in FIELDS],
        *numbers,
        *padded,
    )
