"""An engine under a steady load: how long its steps take, and what is in them.

This module refuses to know what the numbers are compared with.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, islice
from time import monotonic, perf_counter
from typing import Any

import torch
from attrs import evolve, frozen

from ....core.policies import Policy
from ....core.ports import LanguageModel, Sampler
from ....core.sampling_params import SamplingParams
from ...bench.pair import NoText
from ...current_device import current_device
from ...decode import DecodeStep
from ...drafter import Drafter, NoDrafter
from ...model_drafter import ModelDrafter
from ..cuda_graphs import GraphRunner
from ..engine import Engine
from ..parts import Parts
from ..schedule import Limits
from .shapes import Sizes
from .timing import milliseconds, recorder, stopwatch


@frozen(kw_only=True)
class Served:
    """One load.

    Attributes:
        concurrency: requests at once.
        num_spec_tokens: K.
        tokens_per_second: of all requests together, prompts left out.
        step_ms: wall time of a step, mean.
        tokens_per_step: for each request, mean.
        parts_ms: device time of draft, target and verification, each captured alone and run at the
            lengths of the last step; and host: the time of a step in which its graph does not run.
        num_steps: that the figures rest on.
    """

    concurrency: int
    num_spec_tokens: int
    tokens_per_second: float
    step_ms: float
    tokens_per_step: float
    parts_ms: dict[str, float]
    num_steps: int


@frozen(kw_only=True)
class Load:
    """What is served.

    Attributes:
        sizes: of the requests.
        concurrency: how many at once.
        num_steps: at least; for as long, others of the same lengths follow those that have ended.
        deadline: when to stop although none has ended, by the monotonic clock.
    """

    sizes: Sizes
    concurrency: int
    num_steps: int
    deadline: float


def make_engine(
    target: LanguageModel[Any],
    draft: LanguageModel[Any] | None,
    sampler: Sampler,
    policy: Policy,
    num_spec_tokens: int,
    load: Load,
) -> Engine:
    """An engine for a load, whose steps are captured where they can be."""
    drafter: Drafter[Any] = NoDrafter()
    if draft is not None:
        drafter = ModelDrafter(
            model=draft, sampler=sampler, policy=policy, num_spec_tokens=num_spec_tokens
        )
    parts = Parts(
        target=target,
        drafter=drafter,
        sampler=sampler,
        policy=policy,
        eos_token_ids=frozenset(),
        new_detokenizer=NoText,
        new_runner=partial(GraphRunner, record=recorder(target.device)),
    )
    wanted = load.sizes.prompt_len + load.sizes.output_len + num_spec_tokens + 1
    max_len = min(target.max_model_len, wanted)
    return Engine.of(parts, Limits(num_slots=load.concurrency, max_len=max_len))


def serve(engine: Engine, load: Load) -> Served:
    """Serve one request per slot until the first has ended, again and again.

    What is served first does not count: it records the graph of each draft length.
    """
    runner, device = engine.loop.runner, engine.loop.device
    assert isinstance(runner, GraphRunner)
    num_spec_tokens = engine.loop.parts.drafter.num_spec_tokens
    # A request drafts less before its end; which lengths it comes to is a matter of chance.
    for output_len in (load.sizes.output_len, *range(1, num_spec_tokens + 2)):
        sizes = evolve(load.sizes, output_len=output_len)
        _run(engine, evolve(load, sizes=sizes), _requests(load))
    watches = list[Callable[[], float]]()
    for captured in runner.captured.values():
        captured.replay = _timed(captured.replay, device, watches)
    num_tokens, num_steps, seconds = _run_often(engine, load)
    step_ms = 1000 * seconds / num_steps
    graph_ms = sum(read() for read in watches) / num_steps
    parts = time_parts(engine.loop.decode_step, runner)
    return Served(
        concurrency=load.concurrency,
        num_spec_tokens=num_spec_tokens,
        tokens_per_second=num_tokens / seconds,
        step_ms=step_ms,
        tokens_per_step=num_tokens / num_steps / load.concurrency,
        parts_ms={**parts, "host": step_ms - graph_ms},
        num_steps=num_steps,
    )


def _timed(
    replay: Callable[[], None], device: torch.device, watches: list[Callable[[], float]]
) -> Callable[[], None]:
    return lambda: watches.append(stopwatch(replay, device))


def prompt_of(sizes: Sizes, generator: torch.Generator) -> list[int]:
    """The next prompt."""
    vocab_size: int = sizes.target["vocab_size"]
    prompt: list[int] = torch.randint(vocab_size, (sizes.prompt_len,), generator=generator).tolist()
    return prompt


def _requests(load: Load) -> Iterator[tuple[list[int], SamplingParams]]:
    """Ever new ones of the same lengths."""
    generator = torch.Generator().manual_seed(0)
    for seed in count():
        yield prompt_of(load.sizes, generator), SamplingParams(seed=seed)


def _run_often(engine: Engine, load: Load) -> tuple[int, int, float]:
    """Tokens, steps, and seconds without the prompts'."""
    requests = _requests(load)
    num_tokens, num_steps, seconds = _run(engine, load, requests)
    while num_steps < load.num_steps and monotonic() < load.deadline:
        more = _run(engine, load, requests)
        num_tokens, num_steps = num_tokens + more[0], num_steps + more[1]
        seconds += more[2]
    return num_tokens, num_steps, seconds


def _run(
    engine: Engine, load: Load, requests: Iterator[tuple[list[int], SamplingParams]]
) -> tuple[int, int, float]:
    """See `_run_often`, of the next requests, until one has ended."""
    ids = [
        engine.add_request(prompt, params, max_tokens=load.sizes.output_len)
        for prompt, params in islice(requests, load.concurrency)
    ]
    num_tokens = num_steps = 0
    ended, began, prompts = False, perf_counter(), engine.loop.prefill_seconds
    while not ended:
        progress = engine.step()
        num_tokens += sum(len(one.token_ids) for one in progress)
        num_steps += 1
        ended = monotonic() > load.deadline or any(one.result is not None for one in progress)
    seconds = perf_counter() - began - (engine.loop.prefill_seconds - prompts)
    for request_id in ids:
        engine.cancel(request_id)
    while engine.has_unfinished():
        engine.step()
    return num_tokens, num_steps, seconds


def time_parts(step: DecodeStep, runner: GraphRunner) -> dict[str, float]:
    """Device milliseconds of the parts of a recorded step, at its last inputs."""
    num_spec_tokens = step.drafter.num_spec_tokens
    captured = next(one for one in runner.captured.values() if len(one.drafts) == num_spec_tokens)
    frontier = captured.frontier()
    made: list[Any] = [None, None]

    def draft() -> None:
        made[0] = step.draft(frontier)

    def score() -> None:
        made[1] = step.score(frontier, made[0])

    def verify() -> None:
        step.verify(frontier, made[0], made[1], None)

    device = step.target.device
    with torch.inference_mode(), current_device(device):
        parts = {"draft": draft, "target": score, "verification": verify}
        replays = {name: runner.record(part) for name, part in parts.items()}
        return {name: milliseconds(replay, device) for name, replay in replays.items()}
