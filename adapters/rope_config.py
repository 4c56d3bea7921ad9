"""Reads how a Hugging Face config spells its rotary embedding.

Both spellings: `rope_parameters` with the theta inside, and the older `rope_theta` beside
`rope_scaling`. Here no field is ignored: one that is unknown could change every logit.
"""

import math
from collections.abc import Callable

from ..core.errors import CheckpointError
from .json_object import JsonObject
from .rope import LinearScaling, Llama3Scaling, Rope, RopeScaling, YarnScaling

DEFAULT_THETA = 10_000.0


def read_rope(config: JsonObject, head_dim: int) -> Rope:
    """The rotary embedding that config.json asks for."""
    # As in transformers, the older spelling wins where both are there.
    section = config.section("rope_scaling" if config.value("rope_scaling") else "rope_parameters")
    kind = section.text("rope_type", section.text("type", "default"))
    if kind not in _READERS:
        raise section.error("rope_type", " or ".join(_READERS), kind)
    reader, fields = _READERS[kind]
    _check_fields(section, fields)
    theta = section.positive("rope_theta", config.positive("rope_theta", DEFAULT_THETA))
    if theta <= 1:
        raise config.error("rope_theta", "a number above 1", theta)
    return Rope(head_dim=head_dim, theta=theta, scaling=reader(section, config))


def _check_fields(section: JsonObject, known: set[str]) -> None:
    known = known | {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
    for name in section.values:
        if name in section and name not in known:
            raise CheckpointError(
                f"{section.source}: expected only {', '.join(sorted(known))}, got {name!r}"
            )
    if section.value("partial_rotary_factor", 1) != 1:
        raise section.error("partial_rotary_factor", "1", section.value("partial_rotary_factor"))


def _llama3(section: JsonObject, config: JsonObject) -> RopeScaling:
    low, high = section.positive("low_freq_factor"), section.positive("high_freq_factor")
    if high <= low:
        raise section.error("high_freq_factor", f"a number above low_freq_factor, {low}", high)
    return Llama3Scaling(
        factor=section.positive("factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_position_embeddings=_original_length(section, config),
    )


def _yarn(section: JsonObject, config: JsonObject) -> RopeScaling:
    original = _original_length(section, config)
    factor = section.positive(
        "factor", config.integer("max_position_embeddings", 1, default=original) / original
    )
    return YarnScaling(
        factor=factor,
        original_max_position_embeddings=original,
        attention_factor=section.positive("attention_factor", _yarn_attention(section, factor)),
        beta_fast=section.positive("beta_fast", 32.0),
        beta_slow=section.positive("beta_slow", 1.0),
        truncate=section.flag("truncate", default=True),
    )


def _yarn_attention(section: JsonObject, factor: float) -> float:
    def magnitude(mscale: float) -> float:
        return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0

    if "mscale" in section and "mscale_all_dim" in section:
        both = section.positive("mscale"), section.positive("mscale_all_dim")
        return magnitude(both[0]) / magnitude(both[1])
    return magnitude(1.0)


def _original_length(section: JsonObject, config: JsonObject) -> int:
    if _ORIGINAL in config:
        return config.integer(_ORIGINAL, 1)
    return section.integer(_ORIGINAL, 1, default=config.value("max_position_embeddings"))


_ORIGINAL = "original_max_position_embeddings"
_Reader = Callable[[JsonObject, JsonObject], RopeScaling | None]
_READERS: dict[str, tuple[_Reader, set[str]]] = {
    "default": (lambda *_: None, set()),
    # It only sets in beyond max_position_embeddings, which is as long as a model may be loaded.
    "dynamic": (lambda *_: None, {"factor", _ORIGINAL}),
    "linear": (
        lambda section, _: LinearScaling(factor=section.positive("factor")),
        {"factor", _ORIGINAL},
    ),
    "llama3": (_llama3, {"factor", "low_freq_factor", "high_freq_factor", _ORIGINAL}),
    "yarn": (
        _yarn,
        {"factor", "attention_factor", "beta_fast", "beta_slow", "truncate", _ORIGINAL}
        | {"mscale", "mscale_all_dim"},
    ),
}
