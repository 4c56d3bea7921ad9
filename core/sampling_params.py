"""The parameters of one request: its recipe from logits to probabilities, its seed, its logprobs.

Values are checked here, once, on the host; nothing later looks at them again.
"""

import math
import secrets
from collections.abc import Iterable, Mapping
from enum import Enum

from attrs import evolve, field, fields_dict, frozen

from .checks import MAX_INT32, MAX_INT64, check_integer, check_number, plain_number
from .errors import InvalidInputError
from .policies.parameters import integer, number

MAX_SEED = 2**64 - 1
MAX_TEMPERATURE = 1e6
MAX_PENALTY = 1e6
MAX_BIAS = 1e9
"""More than any use needs, and far below float32's overflow, which only a logit can then cause."""

LEAST_FLOAT32 = 2.0**-126
"""Kernels round what is smaller to 0, which means greedy or off."""

LogitBias = tuple[tuple[int, float], ...]


class LogprobsMode(Enum):
    """Which distribution logprobs are taken from."""

    RAW = "raw"
    """The model's own logits, unchanged."""
    PROCESSED = "processed"
    """The distribution the token was drawn from. At temperature 0 its logprobs would all be 0, so
    there it is the softmax of the logits after bias and penalties."""


@frozen(kw_only=True)
class Recipe:
    """How logits become a distribution: temperature, then min-p, top-k, top-p, in this order.

    Attributes:
        temperature: at most 1e6; 0 is greedy: the largest logit, lowest token id on a tie, no
            filter.
        min_p: keep tokens at least this likely relative to the most likely; 0 is off.
        top_k: keep tokens whose logit is at least the k-th largest; 0 or -1 is off.
        top_p: keep the fewest most likely tokens with at least this mass, and ties; 1 is off. If
            the mass reaches top_p exactly, the next token is cut.

    Raises:
        InvalidInputError: a value is out of its range.
    """

    temperature: float = number(1.0, 0, MAX_TEMPERATURE)
    min_p: float = number(0.0, 0, 1)
    top_k: int = integer(0, -1, MAX_INT32)
    top_p: float = number(1.0, 0, 1, open_below=True)

    def __attrs_post_init__(self) -> None:
        for name in ("temperature", "min_p", "top_p"):
            value = getattr(self, name)
            if 0 < value < LEAST_FLOAT32:
                raise InvalidInputError(
                    f"{name}: expected a number that float32 can hold, got {value!r}"
                )

    @property
    def is_greedy(self) -> bool:
        """Whether the distribution is one-hot at the largest logit."""
        return self.temperature == 0

    @property
    def has_filters(self) -> bool:
        """Whether any token can be cut off."""
        return not self.is_greedy and (self.min_p > 0 or self.top_k > 0 or self.top_p < 1)


def _as_pairs(bias: Mapping[int, float] | Iterable[tuple[int, float]]) -> LogitBias:
    try:
        pairs = dict(bias).items()
        return tuple(sorted((plain_number(token), plain_number(value)) for token, value in pairs))
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"logit_bias: expected a mapping from token ids to numbers, got {bias!r}"
        ) from None


@frozen(kw_only=True)
class SamplingParams(Recipe):
    """The parameters of one request: the target's recipe, logit adjustments, seed and logprobs.

    Bias, then penalties, are applied in float32, each operation rounded once: a logit that
    overflows becomes infinite, and +inf makes its row invalid.

    Attributes:
        logit_bias: token id -> added to its logit, at most 1e9 either way; -inf bans the token.
        repetition_penalty: divides positive and multiplies negative logits of every token in the
            prompt or the output (CTRL, arXiv 1909.05858), from 1e-6 to 1e6; 1 is off.
        presence_penalty: subtracted from the logit of every token in the output, at most 1e6 either
            way; 0 is off.
        frequency_penalty: the same, once per occurrence in the output.
        seed: 64 bits that fix every draw; None asks for a random one, see `with_seed`.
        logprobs: None for none, n for the emitted token's and the n most likely tokens', n at most
            the vocabulary size.
        logprobs_mode: which distribution logprobs are taken from.
        draft: the draft's recipe; None means the target's, without bias and penalties. It must be
            what draft tokens are really drawn with; temperature 0 declares their law one-hot.

    Raises:
        InvalidInputError: a value is out of its range.
    """

    logit_bias: LogitBias = field(default=(), converter=_as_pairs)
    repetition_penalty: float = number(1.0, 1 / MAX_PENALTY, MAX_PENALTY)
    presence_penalty: float = number(0.0, -MAX_PENALTY, MAX_PENALTY)
    frequency_penalty: float = number(0.0, -MAX_PENALTY, MAX_PENALTY)
    seed: int | None = integer(None, 0, MAX_SEED)
    logprobs: int | None = integer(None, 0, MAX_INT32)
    logprobs_mode: LogprobsMode = LogprobsMode.RAW
    draft: Recipe | None = None

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        for token_id, bias in self.logit_bias:
            check_integer("logit_bias: token id", token_id, 0, MAX_INT64)
            if bias != -math.inf:
                check_number(f"logit_bias[{token_id}]", bias, -MAX_BIAS, MAX_BIAS)
        if not isinstance(self.logprobs_mode, LogprobsMode):
            raise InvalidInputError(
                f"logprobs_mode: expected a LogprobsMode, got {self.logprobs_mode!r}"
            )
        # The penalties of full sampling parameters would be ignored.
        if self.draft is not None and type(self.draft) is not Recipe:
            raise InvalidInputError(f"draft: expected a Recipe or None, got {self.draft!r}")

    @property
    def has_penalties(self) -> bool:
        """Whether logits depend on the tokens so far."""
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1, 0, 0)

    @property
    def draft_recipe(self) -> Recipe:
        """The recipe that draft tokens are drawn with."""
        if self.draft is not None:
            return self.draft
        return Recipe(**{name: getattr(self, name) for name in fields_dict(Recipe)})

    def with_seed(self) -> "SamplingParams":
        """These parameters with a seed: their own, or a fresh random one from the system."""
        return self if self.seed is not None else evolve(self, seed=secrets.randbits(64))
