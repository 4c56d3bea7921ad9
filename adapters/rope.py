"""Rotary position embedding (RoFormer, arXiv 2104.09864) and its extensions to longer contexts.

Frequencies cannot depend on the sequence's length, because keys in the cache are rotated once and
never again.

A Hugging Face config has `rope_parameters` with the theta inside, or the older `rope_theta` beside
`rope_scaling`. Here no field is ignored: an unknown one could change every logit.
"""

import math
from collections.abc import Callable

import torch
from attrs import evolve, frozen
from torch import Tensor

from .error_text import unfit
from .json_object import JsonObject

Stretch = Callable[[Tensor], Tensor]
"""Frequencies [head_dim / 2] float32 -> frequencies for longer contexts."""


@frozen(kw_only=True)
class Rope:
    """How positions rotate queries and keys.

    Attributes:
        head_dim: dimensions of a head, even; dimension i is paired with i + head_dim / 2.
        theta: base of the wavelengths.
        stretch: changes the frequencies; None leaves them.
        attention_factor: multiplies rotated vectors.
        stretched_len: how many positions a stretched context has, if that is more than the config
            says itself.
    """

    head_dim: int
    theta: float
    stretch: Stretch | None = None
    attention_factor: float = 1.0
    stretched_len: int = 0

    def table(self, max_len: int) -> Tensor:
        """[max_len, 2, head_dim] float32: cosines, and sines signed for `rotate`, per position."""
        exponents = torch.arange(0, self.head_dim, 2, dtype=torch.float32) / self.head_dim
        frequencies = 1.0 / self.theta**exponents
        if self.stretch is not None:
            frequencies = self.stretch(frequencies)
        angles = torch.arange(max_len, dtype=torch.float32)[:, None] * frequencies
        cos, sin = angles.cos() * self.attention_factor, angles.sin() * self.attention_factor
        return torch.stack((torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)), 1)


def rotate(heads: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """Rotate heads [num_tokens, num_heads, head_dim] by cosines and sines [num_tokens, 1, ...]."""
    # With the halves swapped and the sign in the table, no negation or concatenation is needed.
    return torch.addcmul(heads * cos, heads.roll(heads.shape[-1] // 2, -1), signed_sin)


DEFAULT_THETA = 10_000.0


def read_rope(config: JsonObject, head_dim: int) -> Rope:
    """The rotary embedding that config.json asks for."""
    # As in transformers, the older spelling wins if both are present.
    section = config.section("rope_scaling" if config.value("rope_scaling") else "rope_parameters")
    kind = section.text("rope_type", section.text("type", "default"))
    if kind not in _READERS:
        raise section.error("rope_type", " or ".join(_READERS), kind)
    reader, fields = _READERS[kind]
    _check_fields(section, fields)
    theta = section.positive("rope_theta", config.positive("rope_theta", DEFAULT_THETA))
    if theta <= 1:
        raise config.error("rope_theta", "a number above 1", theta)
    return reader(Rope(head_dim=head_dim, theta=theta), section, config)


def _check_fields(section: JsonObject, known: set[str]) -> None:
    known = known | {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
    for name in section.values:
        if name in section and name not in known:
            raise unfit(section.source, f"only {', '.join(sorted(known))}", repr(name))
    if section.value("partial_rotary_factor", 1) != 1:
        raise section.error("partial_rotary_factor", "1", section.value("partial_rotary_factor"))


def _linear(rope: Rope, section: JsonObject, _: JsonObject) -> Rope:
    """Position interpolation (arXiv 2306.15595): all frequencies divided by `factor`."""
    factor = section.positive("factor")
    return evolve(rope, stretch=lambda frequencies: frequencies / factor)


def _llama3(rope: Rope, section: JsonObject, config: JsonObject) -> Rope:
    """Llama 3.1: long wavelengths divided by `factor`, short ones kept, a ramp between."""
    low, high = section.positive("low_freq_factor"), section.positive("high_freq_factor")
    if high <= low:
        raise section.error("high_freq_factor", f"a number above low_freq_factor, {low}", high)
    factor, original = section.positive("factor"), _original_length(section, config)

    def stretch(frequencies: Tensor) -> Tensor:
        turns = original * frequencies / (2 * math.pi)
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        return frequencies * (kept + (1 - kept) / factor)

    return evolve(rope, stretch=stretch)


def _yarn(rope: Rope, section: JsonObject, config: JsonObject) -> Rope:
    """YaRN (arXiv 2309.00071): interpolates dimensions that turn less than `beta_slow` times.

    Dimensions that turn more than `beta_fast` times within the original context are kept, with a
    ramp between; the rotated vectors are multiplied by `attention_factor`.
    """
    original, num = _original_length(section, config), rope.head_dim // 2
    factor = section.positive(
        "factor", config.integer("max_position_embeddings", 1, default=original) / original
    )
    attention_factor = section.positive("attention_factor", _yarn_attention(section, factor))

    def dimension(turns: float) -> float:
        """The pair of dimensions that turns this often within the original context."""
        return num * math.log(original / turns / (2 * math.pi)) / math.log(rope.theta)

    low = dimension(section.positive("beta_fast", 32.0))
    high = dimension(section.positive("beta_slow", 1.0))
    if section.flag("truncate", default=True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * num - 1)
    # A ramp of no width would divide by zero.
    width = high - low or 0.001
    interpolated = ((torch.arange(num, dtype=torch.float32) - low) / width).clamp(0, 1)
    scale = 1 - interpolated + interpolated / factor
    return evolve(
        rope,
        stretch=lambda frequencies: frequencies * scale,
        attention_factor=attention_factor,
        stretched_len=int(original * factor),
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
_Reader = Callable[[Rope, JsonObject, JsonObject], Rope]
_READERS: dict[str, tuple[_Reader, set[str]]] = {
    "default": (lambda rope, *_: rope, set()),
    # It starts beyond max_position_embeddings, and no model is loaded with a longer context.
    "dynamic": (lambda rope, *_: rope, {"factor", _ORIGINAL}),
    "linear": (_linear, {"factor", _ORIGINAL}),
    "llama3": (_llama3, {"factor", "low_freq_factor", "high_freq_factor", _ORIGINAL}),
    "yarn": (
        _yarn,
        {"factor", "attention_factor", "beta_fast", "beta_slow", "truncate", _ORIGINAL}
        | {"mscale", "mscale_all_dim"},
    ),
}
