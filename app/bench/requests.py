"""Turns a load into a run's requests, which are the same for every setting except temperature.

A request waits for its turn outside the engine; its latency counts from when the engine gets it.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import perf_counter, sleep

import numpy as np
from attrs import evolve, frozen

from ...core import SamplingParams
from ...core.checks import check_integer
from ..engine.engine import Engine
from ..request import GenerationRequest, RequestRecord
from . import prompts as sources
from .progress import OnEnded
from .prompts import Prompt
from .sweep import Load


@frozen(eq=False, kw_only=True)
class Reader:
    """The limits that prompts must fit.

    Attributes:
        encode: turns a text into token ids; None for models without a tokenizer.
        vocab_size: the target's.
        max_model_len: how many positions a sequence may have.
    """

    encode: Callable[[str], Sequence[int]] | None
    vocab_size: int
    max_model_len: int

    def prompts(
        self, load: Load, file: Path | None = None, categories: Sequence[str] | None = None
    ) -> list[Prompt]:
        """A prompt for each request of a load, warm-up included, from a JSONL file or built-in.

        Raises:
            ConfigError: the file is invalid, or no prompt leaves room for the output.
            InvalidInputError: there is no such category, or input_len is beyond the context.
        """
        count = load.warm_up + load.num_requests
        if load.input_len is not None or self.encode is None:
            length = 1 if load.input_len is None else load.input_len
            check_integer("input_len", length, 1, self.max_model_len)
            lengths = sources.spread_lengths(length, load.length_spread, count, load.seed)
            drawn = sources.synthetic_prompts(lengths, self.vocab_size, load.seed)
        else:
            questions = sources.read_questions(file or sources.BUILT_IN)
            if categories is not None:
                questions = sources.of_categories(questions, categories)
            drawn = [Prompt(kind, tuple(self.encode(text))) for kind, text in questions]
        longest_output = round(load.output_len * (1 + load.length_spread))
        longest = max(1, self.max_model_len - longest_output)
        return sources.choose(drawn, count, longest, load.seed)


@frozen
class TimedRequest:
    """A request, the category of its prompt, and the second at which it arrives."""

    request: GenerationRequest
    category: str
    at: float = 0.0


def make_arrivals(
    load: Load, prompts: Sequence[Prompt], params: SamplingParams
) -> list[TimedRequest]:
    """A request for each prompt, warm-up first, with consecutive seeds.

    Greedy ones are spread evenly.
    """
    # Not the seed of the prompts' lengths: both lengths would rise and fall together.
    lengths = sources.spread_lengths(
        load.output_len, load.length_spread, len(prompts), load.seed + 1
    )
    times = poisson_times(load.num_requests, load.request_rate, load.seed)
    arrivals, share = list[TimedRequest](), load.greedy_share
    for index, prompt in enumerate(prompts):
        greedy = int((index + 1) * share) > int(index * share)
        temperature = 0.0 if greedy else params.temperature
        request = GenerationRequest(
            prompt_token_ids=prompt.token_ids,
            params=evolve(params, seed=load.seed + index, temperature=temperature),
            max_tokens=lengths[index],
            ignore_eos=load.ignore_eos,
        )
        kind = ("greedy" if greedy else "sampled") if share else prompt.category
        at = times[index - load.warm_up] if index >= load.warm_up else 0.0
        arrivals.append(TimedRequest(request, kind, at))
    return arrivals


def poisson_times(count: int, request_rate: float | None, seed: int) -> list[float]:
    """Arrival times in seconds: at a mean rate per second, or all at once for None."""
    if request_rate is None:
        return [0.0] * count
    gaps = np.random.default_rng(seed).exponential(1 / request_rate, size=count)
    return [float(time) for time in np.cumsum(gaps)]


def serve(
    engine: Engine,
    arrivals: Iterable[TimedRequest],
    max_concurrency: int,
    on_ended: OnEnded = lambda _: None,
) -> dict[str, list[RequestRecord]]:
    """Serve requests as they arrive, with a limit at once; returns their records by category."""
    waiting = deque(sorted(arrivals, key=lambda arrival: arrival.at))
    inside, began = dict[int, str](), perf_counter()
    served = defaultdict[str, list[RequestRecord]](list)
    while waiting or inside:
        now = perf_counter() - began
        while waiting and waiting[0].at <= now and len(inside) < max_concurrency:
            arrival = waiting.popleft()
            inside[engine.add_request(arrival.request)] = arrival.category
        if not inside:
            sleep(waiting[0].at - now)
            continue
        ended = [event.record for event in engine.step() if event.record is not None]
        for record in ended:
            served[inside.pop(record.request_id)].append(record)
        on_ended(len(ended))
    return served
