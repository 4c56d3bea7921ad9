"""The settings that a benchmark varies, and the load that is the same in all runs."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from attrs import field, frozen, validators

from ...adapters.model_config import MAX_POSITIONS
from ...core.checks import check_integers, check_number
from ...core.policies.parameters import integer, number
from ..config import MAX_NUM_SPEC_TOKENS
from ..engine.parts import MAX_SLOTS
from ..policies import PolicySettings

PLAIN = "plain"
MAX_REQUESTS, LEAST_RATE = 10**6, 1e-6
"""Far beyond what a run needs: a slip must not fill the memory, or wait for ever."""


@frozen
class Setting:
    """The setting of one run.

    Attributes:
        policy: its name, `plain` without drafts.
        adaptive: whether K is chosen anew in each step, up to this K.
        max_concurrency: how many requests run at once; None for as many as the load allows.
        drafter: its name, if several are compared.
    """

    policy: str
    num_spec_tokens: int
    temperature: float
    backend: str
    adaptive: bool = False
    max_concurrency: int | None = None
    drafter: str | None = None

    @property
    def line(self) -> str:
        """A key that is equal for runs that differ in K alone."""
        return f"{self.policy}, {self.drafter}" if self.drafter else self.policy

    @property
    def table(self) -> tuple[int, float, str]:
        """A key that is equal for runs that are compared with each other."""
        return self.max_concurrency or 0, self.temperature, self.backend

    @property
    def label(self) -> str:
        """The head of its column."""
        if not self.num_spec_tokens:
            return PLAIN
        return f"{self.line}, K{'≤' if self.adaptive else '='}{self.num_spec_tokens}"


@frozen(kw_only=True)
class Sweep:
    """Every combination of these is one run; plain decoding has no policy, so K = 0 is one run.

    Attributes:
        policies: shown name -> settings.
        adaptive: run policies once more with K chosen anew in each step, up to the largest.
        max_concurrencies: how many requests run at once, at most as many as the load allows.
        drafts_by: the drafter's name, if several are compared.

    Raises:
        InvalidInputError: a K or a temperature is out of its range.
    """

    policies: Mapping[str, PolicySettings] = field(validator=validators.min_len(1))
    num_spec_tokens: Sequence[int]
    temperatures: Sequence[float]
    backends: Sequence[str]
    adaptive: bool = False
    max_concurrencies: Sequence[int | None] = (None,)
    drafts_by: str | None = None

    def __attrs_post_init__(self) -> None:
        check_integers("num_spec_tokens", self.num_spec_tokens, 0, MAX_NUM_SPEC_TOKENS)
        for temperature in self.temperatures:
            check_number("temperature", temperature, 0)
        wanted = [at_once for at_once in self.max_concurrencies if at_once is not None]
        check_integers("max_concurrency", wanted, 1, MAX_SLOTS)

    def __iter__(self) -> Iterator[Setting]:
        lengths, longest = self.num_spec_tokens, max(self.num_spec_tokens)
        drafting = [(name, k, False) for k in lengths for name in (self.policies if k else [PLAIN])]
        if self.adaptive and longest:
            drafting += [(name, longest, True) for name in self.policies]
        for at_once, backend, temperature, (policy, length, adaptive) in product(
            self.max_concurrencies, self.backends, self.temperatures, drafting
        ):
            drafter = self.drafts_by if length else None
            yield Setting(policy, length, temperature, backend, adaptive, at_once, drafter)


@frozen(kw_only=True)
class Load:
    """The load of every run.

    Attributes:
        max_concurrency: how many requests run at once, unless a setting has fewer.
        request_rate: mean arrivals per second, Poisson; None for all at once.
        warm_up: requests before the measured ones.
        seed: that of the prompts' order and the arrivals; requests count up from it.
        output_len: the most tokens per request.
        prompts: a file's name, `built-in` or `synthetic`, for the record.
        input_len: length of synthetic prompts; None for others.
        length_spread: lengths vary by this share in both directions.
        greedy_share: the share of requests at temperature 0 in every setting; if there are any,
            categories are `greedy` and `sampled`.

    Raises:
        InvalidInputError: a value is out of its range.
    """

    num_requests: int = integer(32, 1, MAX_REQUESTS)
    max_concurrency: int = integer(8, 1, MAX_SLOTS)
    request_rate: float | None = number(None, LEAST_RATE)
    warm_up: int = integer(2, 0, MAX_REQUESTS)
    seed: int = integer(0, 0)
    output_len: int = integer(64, 1, MAX_POSITIONS)
    ignore_eos: bool = False
    prompts: str = "built-in"
    input_len: int | None = integer(None, 1)
    length_spread: float = number(0.0, 0, 1)
    greedy_share: float = number(0.0, 0, 1)

    @property
    def lengths(self) -> str:
        """The lengths of outputs, in words."""
        spread = f" ± {100 * self.length_spread:g}%" if self.length_spread else ""
        return f"{'' if self.ignore_eos else 'up to '}{self.output_len}{spread}"
