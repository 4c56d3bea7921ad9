"""Defines what is measured (a batch's size, inputs, recipe and policy), and a run's record."""

from collections.abc import Sequence
from statistics import median

import torch
from attrs import asdict, frozen

from ....core import POLICIES, Policy, Recipe, SamplingParams, Synthetic, num_mask_words
from ....core.checks import check_integer
from ....core.policies.parameters import choice, number

DTYPES = ("bfloat16", "float16", "float32")
INPUTS = ("lm", "zipf", "flat", "sharp", "ties", "mixed", "bad")
"""See `acceptor.app.bench.kernels.inputs`."""

SYNTHETIC_ACCEPTANCE_RATE = 0.7
USUALLY_COUNTED = 640
COUNT_BYTES, MASK_BYTES = 5, 4
"""The bytes of a token id in `TokenCounts` (a bool and an int32), and of a word of a mask."""


@frozen(kw_only=True)
class Workload:
    """One batch to be timed; its requests are alike, and both models' logits are.

    Attributes:
        num_counted: how many tokens of each text penalties count.
        num_biases: how many token ids of every request have a bias; half of them are the last ids.
        allowed: the share of token ids that every row's mask allows; at 1 there are no masks.
        is_applied: there are no masks, but the logits of all other ids are -inf beforehand.
    """

    num_reqs: int = 1
    num_spec_tokens: int = 3
    vocab_size: int = 151_936
    dtype: str = choice("bfloat16", DTYPES)
    inputs: str = choice("lm", INPUTS)
    policy: str = choice("probabilistic", tuple(POLICIES))
    recipe: Recipe = Recipe(temperature=0.8)
    repetition_penalty: float = 1.0
    num_counted: int = USUALLY_COUNTED
    num_biases: int = 0
    logprobs: int | None = None
    allowed: float = number(1.0, 0, 1)
    is_applied: bool = False

    def __attrs_post_init__(self) -> None:
        check_integer("num_counted", self.num_counted, 1, 2**20)
        check_integer("num_biases", self.num_biases, 0, self.vocab_size)
        self.params  # noqa: B018, checks them

    @property
    def params(self) -> SamplingParams:
        """The parameters of every request, without seed and biases."""
        return SamplingParams(
            **asdict(self.recipe),
            repetition_penalty=self.repetition_penalty,
            logprobs=self.logprobs,
        )

    @property
    def label(self) -> str:
        """The policy and the parameters, in the tables' form."""
        recipe = self.recipe
        words = {
            self.policy: not recipe.is_greedy or self.policy != "probabilistic",
            "greedy": recipe.is_greedy,
            f"temperature {recipe.temperature:g}": not recipe.is_greedy,
            f"min-p {recipe.min_p:g}": recipe.min_p > 0 and not recipe.is_greedy,
            f"top-k {recipe.top_k}": recipe.top_k > 0 and not recipe.is_greedy,
            f"top-p {recipe.top_p:g}": recipe.top_p < 1 and not recipe.is_greedy,
            f"repetition penalty {self.repetition_penalty:g}": self.repetition_penalty != 1,
            f"{self.num_counted:,} tokens counted": self.num_counted != USUALLY_COUNTED,
            f"{self.num_biases} logit biases": self.num_biases > 0,
            f"{self.logprobs} logprobs": self.logprobs is not None,
            f"{self.allowed:.0%} allowed": self.is_masked,
            f"{1 - self.allowed:.0%} at -inf": self.allowed < 1 and self.is_applied,
        }
        return ", ".join(word for word, is_shown in words.items() if is_shown)

    def make_policy(self) -> Policy:
        """The policy with its default settings."""
        if self.policy == Synthetic.name:
            return Synthetic.from_acceptance_rate(SYNTHETIC_ACCEPTANCE_RATE, self.num_spec_tokens)
        return POLICIES[self.policy]

    @property
    def reads_draft_logits(self) -> bool:
        """Whether the rule needs the draft's logits."""
        return self.make_policy().uses_draft_probs and not self.recipe.is_greedy

    @property
    def is_masked(self) -> bool:
        """Whether rows have masks."""
        return self.allowed < 1 and not self.is_applied

    @property
    def num_bytes(self) -> int:
        """The bytes that the rule reads: each needed row once, counts with a penalty, and masks."""
        num_rows = self.num_spec_tokens + 1 + self.num_spec_tokens * self.reads_draft_logits
        for_each_id = num_rows * int(getattr(torch, self.dtype).itemsize)
        for_each_id += COUNT_BYTES * self.params.has_penalties
        num_words = (self.num_spec_tokens + 1) * num_mask_words(self.vocab_size) * self.is_masked
        return self.num_reqs * (self.vocab_size * for_each_id + MASK_BYTES * num_words)


HEADLINE: Sequence[Workload] = (
    Workload(),
    Workload(recipe=Recipe(temperature=0.8, top_k=50, top_p=0.9)),
    Workload(recipe=Recipe(temperature=0.8, top_p=0.9)),
    Workload(recipe=Recipe(temperature=0)),
    Workload(policy="strict"),
    Workload(policy="block"),
)
"""The rows that backends are compared by."""

_TOP_P = Recipe(temperature=0.8, top_p=0.95)
_TOP_K_P = Recipe(temperature=1, top_k=50, top_p=0.9)
_PENALTY, _LONG = 1.1, 8192
WORST: Sequence[Workload] = (
    Workload(),
    Workload(recipe=Recipe(temperature=1, top_p=0.9)),
    Workload(recipe=_TOP_P),
    Workload(recipe=Recipe(temperature=1, top_k=1000)),
    Workload(recipe=Recipe(temperature=0.6, top_k=20, top_p=0.95)),
    Workload(recipe=_TOP_K_P),
    Workload(recipe=Recipe(temperature=0.8, min_p=0.05)),
    Workload(repetition_penalty=_PENALTY),
    Workload(recipe=Recipe(temperature=0.8, top_p=0.9), repetition_penalty=_PENALTY),
    Workload(recipe=Recipe(temperature=0), repetition_penalty=_PENALTY),
    Workload(repetition_penalty=_PENALTY, num_counted=_LONG),
    Workload(
        recipe=Recipe(temperature=0.8, top_p=0.9), repetition_penalty=_PENALTY, num_counted=_LONG
    ),
    Workload(num_biases=2),
    Workload(num_biases=300),
    Workload(logprobs=20),
    *(
        Workload(recipe=recipe, allowed=0.5, is_applied=is_applied)
        for recipe in (Recipe(temperature=0.8), _TOP_P, _TOP_K_P, Recipe(temperature=0))
        for is_applied in (False, True)
    ),
    Workload(policy="strict", recipe=_TOP_P),
    Workload(policy="block", recipe=_TOP_P),
    Workload(policy="typical"),
    Workload(policy="fly"),
    Workload(dtype="float32"),
    Workload(dtype="float32", recipe=Recipe(temperature=1, top_p=0.9)),
    Workload(dtype="float32", recipe=_TOP_K_P),
    Workload(vocab_size=32_001, recipe=Recipe(temperature=0.8, top_k=50)),
    Workload(vocab_size=32_001, recipe=_TOP_P),
    Workload(vocab_size=32_000, num_spec_tokens=15, recipe=Recipe(temperature=0.8, top_p=0.9)),
)
"""The rows of the worst table, shape by shape, because workloads of one shape share logits."""


@frozen(kw_only=True)
class Cell:
    """One backend on one workload. Times are microseconds of every call, each with a cold cache.

    Attributes:
        replays: times of CUDA graphs.
        eager: times from the call to its synchronised result.
        problem: why there are no times.
        num_different: how many of the checked requests differ from the reference, near-ties too.
    """

    backend: str
    replays: tuple[float, ...] = ()
    eager: tuple[float, ...] = ()
    problem: str = ""
    mean_accepted: float | None = None
    num_checked: int = 0
    num_different: int = 0
    first_call_seconds: float | None = None

    @property
    def column(self) -> str:
        """The backend, and a word if its time is not that of replays."""
        return f"{self.backend}, eager" if self.eager and not self.replays else self.backend

    @property
    def time(self) -> float | None:
        """The median time: of replays if there are any."""
        times = self.replays or self.eager
        return median(times) if times else None


@frozen(kw_only=True)
class Line:
    """One workload, the measured microseconds to read its bytes once, and every backend on it."""

    workload: Workload
    floor: float | None
    cells: tuple[Cell, ...]


@frozen(kw_only=True)
class Run:
    """Everything that one run measured.

    Attributes:
        bandwidth: bytes per second of a plain read; None if it could not be measured.
        num_sets: sets of fresh inputs that took turns, except in the worst table.
        num_left_out: how many lines there was no time for.
    """

    date: str
    machine: dict[str, str]
    bandwidth: float | None
    num_sets: int
    seconds: float
    lines: tuple[Line, ...]
    worst: tuple[Line, ...] = ()
    num_left_out: int = 0
