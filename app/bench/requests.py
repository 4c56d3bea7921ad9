"""Turns a load into a run's requests, which are the same for every setting except temperature.

Only the first turn of a question is used, and no prompt is cut. A request waits for its turn
outside the engine; its latency counts from when the engine gets it.
"""

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np
from attrs import evolve, frozen

from ...adapters.error_text import read_named, unfit
from ...core import ConfigError, SamplingParams
from ...core.checks import check_choice, check_integer
from ..engine.engine import Engine
from ..request import GenerationRequest, RequestRecord
from .sweep import Load

OnEnded = Callable[[int], object]
"""Called with how many more requests, or steps, have ended."""

Begin = Callable[[str, int], OnEnded]
"""Called with the name and the length of a run before it begins."""

BUILT_IN = Path(__file__).with_name("prompts.jsonl")
"""Beginnings in the style of the bundled pair's training texts; none is taken from these."""

Question = tuple[str, str]
"""The category of a prompt, and its text."""


@frozen
class Prompt:
    """A tokenized prompt of at least one token, and its category."""

    category: str
    token_ids: tuple[int, ...]


@frozen(eq=False)
class Reader:
    """The target's limits, which prompts must fit.

    Attributes:
        encode: turns a text into token ids; None for models without a tokenizer.
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
            length = load.input_len or 1
            check_integer("input_len", length, 1, self.max_model_len)
            lengths = spread_lengths(length, load.length_spread, count, load.seed)
            drawn = synthetic_prompts(lengths, self.vocab_size, load.seed)
        else:
            questions = read_questions(file or BUILT_IN)
            if categories is not None:
                questions = of_categories(questions, categories)
            drawn = [Prompt(kind, tuple(self.encode(text))) for kind, text in questions]
        longest = self.max_model_len - round(load.output_len * (1 + load.length_spread))
        return choose(drawn, count, max(1, longest), load.seed)


def read_questions(path: Path) -> list[Question]:
    """The questions of a JSONL file in the format of MT-Bench and Spec-Bench.

    Each line is an object with `turns`, a list of strings, or `prompt`, a string; `category` is
    optional.
    """
    lines = enumerate(read_named(path, "a UTF-8 text file").splitlines(), 1)
    questions = [_read_line(line, f"{path}:{number}") for number, line in lines if line.strip()]
    if not questions:
        raise ConfigError(f"{path}: expected a question per line, got none")
    return questions


def _read_line(line: str, source: str) -> Question:
    try:
        question: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise unfit(source, "JSON", error, ConfigError) from None
    if not isinstance(question, dict):
        raise ConfigError(f"{source}: expected an object, got {type(question).__name__}")
    turns = question.get("turns") or [question.get("prompt")]
    if not isinstance(turns, list) or not isinstance(turns[0], str) or not turns[0]:
        raise ConfigError(f"{source}: expected turns, a list of strings, or prompt, got neither")
    return str(question.get("category", "all")), turns[0]


def of_categories(questions: Sequence[Question], categories: Sequence[str]) -> list[Question]:
    """The questions of these categories."""
    known = dict(questions)
    for category in categories:
        check_choice("category", category, known)
    return [question for question in questions if question[0] in categories]


def synthetic_prompts(lengths: Iterable[int], vocab_size: int, seed: int) -> list[Prompt]:
    """One prompt of random token ids for each length."""
    draw = np.random.default_rng(seed).integers
    return [Prompt("synthetic", tuple(draw(vocab_size, size=one).tolist())) for one in lengths]


def spread_lengths(length: int, spread: float, count: int, seed: int) -> list[int]:
    """Lengths drawn uniformly from length * (1 - spread) to length * (1 + spread), at least 1."""
    low, high = round(length * (1 - spread)), round(length * (1 + spread))
    drawn = np.random.default_rng(seed).integers(max(low, 1), max(high, 1) + 1, size=count)
    return [*map(int, drawn)]


def choose(prompts: Sequence[Prompt], count: int, longest: int, seed: int) -> list[Prompt]:
    """Choose prompts of at most `longest` tokens at random; none repeats before all are used."""
    fitting = [prompt for prompt in prompts if len(prompt.token_ids) <= longest]
    if not fitting:
        shortest = min(len(prompt.token_ids) for prompt in prompts)
        expected = f"one of at most {longest} tokens, which leave room for --output-len"
        raise unfit("prompts", expected, f"{shortest} or more", ConfigError)
    generator, rounds = np.random.default_rng(seed), range(0, count, len(fitting))
    order = (index for _ in rounds for index in generator.permutation(len(fitting)))
    return [fitting[index] for index in islice(order, count)]


@frozen
class TimedRequest:
    """A request, the category of its prompt, and the second at which it arrives."""

    request: GenerationRequest
    category: str
    at: float = 0.0


def make_arrivals(
    load: Load, prompts: Sequence[Prompt], params: SamplingParams
) -> list[TimedRequest]:
    """A request for each prompt, warm-up first, with consecutive seeds; greedy ones are spread."""
    # Not the seed of the prompts' lengths: both lengths would rise and fall together.
    lengths = spread_lengths(load.output_len, load.length_spread, len(prompts), load.seed + 1)
    times = [0.0] * load.warm_up + poisson_times(load.num_requests, load.request_rate, load.seed)
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
        arrivals.append(TimedRequest(request, kind, times[index]))
    return arrivals


def poisson_times(count: int, request_rate: float | None, seed: int) -> list[float]:
    """Arrival times in seconds: at a mean rate per second, or all at once for None."""
    if request_rate is None:
        return [0.0] * count
    gaps = np.random.default_rng(seed).exponential(1 / request_rate, size=count)
    return [*map(float, np.cumsum(gaps))]


def serve(
    engine: Engine, arrivals: Iterable[TimedRequest], limit: int, on_ended: OnEnded = lambda _: None
) -> dict[str, list[RequestRecord]]:
    """Serve requests as they arrive, with a limit at once; returns their records by category."""
    waiting = deque(sorted(arrivals, key=lambda arrival: arrival.at))
    inside, began = dict[int, str](), perf_counter()
    served = defaultdict[str, list[RequestRecord]](list)
    while waiting or inside:
        now = perf_counter() - began
        while waiting and waiting[0].at <= now and len(inside) < limit:
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
