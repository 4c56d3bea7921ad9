"""The figures of one benchmark run: counts, throughput, latency and acceptance.

Accepted and final tokens are counted separately, so that figures add up by construction.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from attrs import frozen

from ...core.statistics import AcceptanceStatistics
from .latency import Distribution, Latencies
from .served import ServedRequest, ServedStep
from .throughput import duration_of, peak_concurrency, peak_output_throughput


@frozen(kw_only=True)
class Acceptance:
    """What became of the drafts.

    Attributes:
        num_drafts: steps that verified a draft of at least one token.
        num_draft_tokens: tokens in them.
        num_accepted_tokens: of those, the emitted ones.
        num_recovered_tokens: emitted where a draft's first rejected token stood.
        num_bonus_tokens: emitted behind a draft that was accepted completely.
        num_plain_tokens: emitted without a draft.
        acceptance_rate: accepted over drafted tokens.
        acceptance_length: 1 + accepted tokens per draft.
        acceptance_rate_per_pos: the share of drafts accepted through each place.
    """

    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_recovered_tokens: int
    num_bonus_tokens: int
    num_plain_tokens: int
    acceptance_rate: float
    acceptance_length: float
    acceptance_rate_per_pos: tuple[float, ...]

    @property
    def num_final_tokens(self) -> int:
        """Tokens that the target added itself: one per step, unless a stop came before it."""
        return self.num_recovered_tokens + self.num_bonus_tokens + self.num_plain_tokens

    @classmethod
    def of(cls, requests: Iterable[ServedRequest]) -> "Acceptance":
        """Over all steps of these requests, failed ones included."""
        statistics, finals = AcceptanceStatistics(), dict.fromkeys(("plain", "bonus", "rest"), 0)
        for request in requests:
            for step in request.steps:
                statistics.observe(step.num_draft_tokens, step.num_accepted)
                finals[_kind_of_final(step)] += step.num_tokens - step.num_accepted
        return cls(
            num_drafts=statistics.num_drafts,
            num_draft_tokens=statistics.num_draft_tokens,
            num_accepted_tokens=statistics.num_accepted_tokens,
            num_recovered_tokens=finals["rest"],
            num_bonus_tokens=finals["bonus"],
            num_plain_tokens=finals["plain"],
            acceptance_rate=statistics.acceptance_rate,
            acceptance_length=statistics.acceptance_length,
            acceptance_rate_per_pos=tuple(statistics.acceptance_rate_per_pos),
        )


def _kind_of_final(step: ServedStep) -> str:
    if step.num_draft_tokens == 0:
        return "plain"
    return "bonus" if step.num_accepted == step.num_draft_tokens else "rest"


@frozen(kw_only=True)
class Figures:
    """All of a run.

    Attributes:
        num_successful: requests that ended as they should.
        num_failed: requests that ended with an error, or were cancelled.
        duration: seconds from the first arrival to the last end.
        cpu_seconds: processor time of this process meanwhile, of all its threads; 0 if not taken.
        num_input_tokens: of all prompts.
        num_output_tokens: emitted, by failed requests too.
        request_throughput: successful requests per second.
        output_throughput: output tokens per second.
        total_throughput: input and output tokens per second.
        peak_output_throughput: output tokens per second in the best second.
        peak_concurrency: requests under way at once, at most.
        ttft: time to first token, milliseconds.
        tpot: time per output token, milliseconds.
        itl: inter-token latency, milliseconds.
        e2el: end-to-end latency, milliseconds.
        acceptance: over all prompts.
        acceptance_by_category: for each category of prompts.
    """

    num_successful: int
    num_failed: int
    duration: float
    cpu_seconds: float
    num_input_tokens: int
    num_output_tokens: int
    request_throughput: float
    output_throughput: float
    total_throughput: float
    peak_output_throughput: float
    peak_concurrency: int
    ttft: Distribution
    tpot: Distribution
    itl: Distribution
    e2el: Distribution
    acceptance: Acceptance
    acceptance_by_category: dict[str, Acceptance]

    @property
    def tokens_per_cpu_second(self) -> float | None:
        """Output tokens per second of processor time, which other work hardly disturbs."""
        return self.num_output_tokens / self.cpu_seconds if self.cpu_seconds else None


def figures_of(requests: Sequence[ServedRequest], cpu_seconds: float = 0.0) -> Figures:
    """Compute all figures; without requests they are 0."""
    duration = duration_of(requests)
    # A duration of 0 has no requests, and then every count is 0, too.
    seconds = duration or 1.0
    num_successful = sum(request.succeeded for request in requests)
    num_input = sum(request.prompt_len for request in requests)
    num_output = sum(request.output_len for request in requests)
    latencies = Latencies.of(requests)
    return Figures(
        num_successful=num_successful,
        num_failed=len(requests) - num_successful,
        duration=duration,
        cpu_seconds=cpu_seconds,
        num_input_tokens=num_input,
        num_output_tokens=num_output,
        request_throughput=num_successful / seconds,
        output_throughput=num_output / seconds,
        total_throughput=(num_input + num_output) / seconds,
        peak_output_throughput=peak_output_throughput(requests),
        peak_concurrency=peak_concurrency(requests),
        ttft=Distribution.of(latencies.ttft),
        tpot=Distribution.of(latencies.tpot),
        itl=Distribution.of(latencies.itl),
        e2el=Distribution.of(latencies.e2el),
        acceptance=Acceptance.of(requests),
        acceptance_by_category={
            category: Acceptance.of(members) for category, members in _by_category(requests).items()
        },
    )


def _by_category(requests: Iterable[ServedRequest]) -> dict[str, list[ServedRequest]]:
    grouped = defaultdict[str, list[ServedRequest]](list)
    for request in requests:
        grouped[request.category].append(request)
    return dict(grouped)
