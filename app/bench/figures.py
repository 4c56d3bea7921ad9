"""The figures of one benchmark run: counts, throughput, latency and acceptance.

Accepted and final tokens are counted separately, so that figures add up by construction.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

import numpy as np
from attrs import field, fields_dict, frozen

from ...core import AcceptanceStatistics
from ..request import RequestRecord
from .latency import SUCCESS, Distribution, latencies_of

WINDOW_SECONDS = 1.0
"""The window of the peak in seconds; the whole run if that is shorter."""


def duration_of(records: Sequence[RequestRecord]) -> float:
    """Seconds from the first arrival to the last end; 0 without requests."""
    began = min((one.arrival_time for one in records), default=0.0)
    return max((one.finish_time for one in records), default=0.0) - began


def peak_output_throughput(records: Sequence[RequestRecord]) -> float:
    """The most output tokens per second in any window that ends with a step."""
    steps = sorted(step for one in records for step in one.token_times)
    if not steps:
        return 0.0
    window = min(WINDOW_SECONDS, duration_of(records))
    times, nums_tokens = np.array(steps).T
    emitted = np.cumsum(nums_tokens)
    before = np.append(0, emitted)[np.searchsorted(times, times - window, side="right")]
    return float((emitted - before).max() / window)


def peak_concurrency(records: Sequence[RequestRecord]) -> int:
    """The most requests that ran at once."""
    changes = [(one.arrival_time, 1) for one in records]
    # If they happen at the same moment, an end comes before an arrival.
    changes += [(one.finish_time, -1) for one in records]
    return int(max(np.cumsum([change for _, change in sorted(changes)]), default=0))


@frozen(kw_only=True)
class Acceptance:
    """The outcome of the drafts: `AcceptanceStatistics`, and emitted tokens by kind.

    Attributes:
        num_accepted_tokens: only emitted ones.
        num_recovered_tokens: tokens emitted in place of a draft's first rejected one.
        num_bonus_tokens: tokens emitted after a draft that was accepted completely.
        num_plain_tokens: tokens emitted without a draft.
    """

    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_recovered_tokens: int
    num_bonus_tokens: int
    num_plain_tokens: int
    acceptance_rate: float
    acceptance_length: float
    acceptance_rate_per_pos: tuple[float, ...] = field(converter=tuple)

    @property
    def num_final_tokens(self) -> int:
        """The tokens that the target added itself, one per step unless a stop came before it."""
        return self.num_recovered_tokens + self.num_bonus_tokens + self.num_plain_tokens

    @classmethod
    def of(cls, records: Iterable[RequestRecord]) -> "Acceptance":
        """Count over all steps of these requests, failed ones included."""
        statistics, finals = AcceptanceStatistics(), Counter[str]()
        for record in records:
            # Only a last step that failed can have emitted nothing.
            steps = zip_longest(record.token_times, record.acceptance, fillvalue=(0, 0))
            for (_, num_tokens), (num_drafted, num_accepted) in steps:
                statistics.observe(num_drafted, num_accepted)
                kind = "bonus" if num_accepted == num_drafted else "recovered"
                finals[kind if num_drafted else "plain"] += num_tokens - num_accepted
        counted = [name for name in fields_dict(cls) if hasattr(statistics, name)]
        return cls(
            num_recovered_tokens=finals["recovered"],
            num_bonus_tokens=finals["bonus"],
            num_plain_tokens=finals["plain"],
            **{name: getattr(statistics, name) for name in counted},
        )


@frozen(kw_only=True)
class Figures:
    """All figures of a run. Throughputs are per second, and latencies in milliseconds.

    Attributes:
        num_failed: requests that ended with an error, or were cancelled.
        duration: seconds from the first arrival to the last end.
        cpu_seconds: processor time of all threads of this process; 0 if not measured.
        num_output_tokens: tokens emitted, including those of failed requests.
        request_throughput: successful requests per second.
        total_throughput: input and output tokens per second.
        peak_output_throughput: output tokens per second in the best second.
        ttft: time to first token, from the arrival: waiting and the prompt included.
        tpot: time per output token, without the first step.
        itl: inter-token latency: between steps that emitted tokens.
        e2el: end-to-end latency.
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

    @classmethod
    def of(
        cls, by_category: Mapping[str, Sequence[RequestRecord]], cpu_seconds: float = 0.0
    ) -> "Figures":
        """Compute all figures; without requests they are 0."""
        records = [record for members in by_category.values() for record in members]
        duration = duration_of(records)
        # The duration is 0 only without requests, and then every count is 0, too.
        seconds = duration or 1.0
        num_successful = sum(record.status in SUCCESS for record in records)
        num_input = sum(record.prompt_len for record in records)
        num_output = sum(record.output_len for record in records)
        return cls(
            num_successful=num_successful,
            num_failed=len(records) - num_successful,
            duration=duration,
            cpu_seconds=cpu_seconds,
            num_input_tokens=num_input,
            num_output_tokens=num_output,
            request_throughput=num_successful / seconds,
            output_throughput=num_output / seconds,
            total_throughput=(num_input + num_output) / seconds,
            peak_output_throughput=peak_output_throughput(records),
            peak_concurrency=peak_concurrency(records),
            **{name: Distribution.of(values) for name, values in latencies_of(records).items()},
            acceptance=Acceptance.of(records),
            acceptance_by_category={name: Acceptance.of(by_category[name]) for name in by_category},
        )
