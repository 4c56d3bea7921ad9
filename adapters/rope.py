"""Rotary position embedding (RoFormer, arXiv 2104.09864) and the ways of stretching it.

Frequencies cannot depend on the sequence's length, because keys in the cache are rotated once and
never again.

A Hugging Face config spells it as `rope_parameters` with the theta inside, or as the older
`rope_theta` beside `rope_scaling`. Here no field is ignored: one that is unknown could change every
logit.
"""

import math
from collections.abc import Callable

import torch
from attrs import field, frozen
from torch import Tensor

from ..core.errors import CheckpointError
from .json_object import JsonObject


@frozen(kw_only=True)
class LinearScaling:
    """Position interpolation (arXiv 2306.15595): all frequencies divided by `factor`."""

    factor: float
    attention_factor: float = field(default=1.0, init=False)

    def scale(self, frequencies: Tensor, theta: float) -> Tensor:  # noqa: ARG002
        """Frequencies [head_dim / 2] float32, stretched."""
        return frequencies / self.factor


@frozen(kw_only=True)
class Llama3Scaling:
    """Llama 3.1: long wavelengths divided by `factor`, short ones kept, a ramp between."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int
    attention_factor: float = field(default=1.0, init=False)

    def scale(self, frequencies: Tensor, theta: float) -> Tensor:  # noqa: ARG002
        """Frequencies [head_dim / 2] float32, stretched."""
        turns = self.original_max_position_embeddings * frequencies / (2 * math.pi)
        span = self.high_freq_factor - self.low_freq_factor
        kept = ((turns - self.low_freq_factor) / span).clamp(0, 1)
        return frequencies * (kept + (1 - kept) / self.factor)


@frozen(kw_only=True)
class YarnScaling:
    """YaRN (arXiv 2309.00071): interpolates dimensions that turn less than `beta_slow` times.

    Dimensions that turn more than `beta_fast` times within the original context are kept, with a
    ramp between; the rotated vectors are multiplied by `attention_factor`.
    """

    factor: float
    original_max_position_embeddings: int
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True

    def scale(self, frequencies: Tensor, theta: float) -> Tensor:
        """Frequencies [head_dim / 2] float32 of base `theta`, stretched."""
        num = len(frequencies)
        low = self._dimension(self.beta_fast, theta, num)
        high = self._dimension(self.beta_slow, theta, num)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, 2 * num - 1)
        # A ramp of no width would divide by zero.
        width = high - low or 0.001
        interpolated = ((torch.arange(num, dtype=torch.float32) - low) / width).clamp(0, 1)
        return frequencies * (1 - interpolated + interpolated / self.factor)

    def _dimension(self, turns: float, theta: float, num: int) -> float:
        """Which pair of dimensions turns this often within the original context."""
        wavelength = self.original_max_position_embeddings / turns
        return num * math.log(wavelength / (2 * math.pi)) / math.log(theta)


RopeScaling = LinearScaling | Llama3Scaling | YarnScaling


@frozen(kw_only=True)
class Rope:
    """How positions turn queries and keys.

    Attributes:
        head_dim: dimensions of a head, even; dimension i is paired with i + head_dim / 2.
        theta: base of the wavelengths.
        scaling: how the frequencies are stretched for longer contexts; None leaves them.
    """

    head_dim: int
    theta: float
    scaling: RopeScaling | None = None

    def table(self, max_len: int) -> Tensor:
        """[max_len, 2, head_dim] float32: cosines, and sines signed for `rotate`, per position."""
        exponents = torch.arange(0, self.head_dim, 2, dtype=torch.float32) / self.head_dim
        frequencies = 1.0 / self.theta**exponents
        factor = 1.0
        if self.scaling is not None:
            frequencies = self.scaling.scale(frequencies, self.theta)
            factor = self.scaling.attention_factor
        angles = torch.arange(max_len, dtype=torch.float32)[:, None] * frequencies
        cos, sin = angles.cos() * factor, angles.sin() * factor
        return torch.stack((torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)), 1)


def rotate(heads: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """Heads [num_tokens, num_heads, head_dim], turned by cosines and sines [num_tokens, 1, ...]."""
    # Swapping the halves and carrying the sign in the table saves a negation and a concatenation.
    return torch.addcmul(heads * cos, heads.roll(heads.shape[-1] // 2, -1), signed_sin)


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
