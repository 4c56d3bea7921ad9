"""An engine under a steady load: how long its steps take, and what is in them.

This module refuses to know what the numbers are compared with.
"""

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen

from ....core.policies import Policy
from ....core.ports import LanguageModel, Sampler
from ....core.sampling_params import SamplingParams
from ...bench.pair import NoText
from ...decode import DecodeStep
from ...drafter import Drafter, NoDrafter
from ...model_drafter import ModelDrafter
from ..cuda_graphs import GraphRunner
from ..engine import Engine
from ..parts import Parts
from ..schedule import Limits
from .timing import milliseconds

PROMPT_LEN, OUTPUT_LEN = 128, 256
Span = tuple[torch.cuda.Event, torch.cuda.Event]


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
            lengths of the last step; and host: what of a step its graph does not run.
    """

    concurrency: int
    num_spec_tokens: int
    tokens_per_second: float
    step_ms: float
    tokens_per_step: float
    parts_ms: dict[str, float]


def make_engine(
    target: LanguageModel[Any],
    draft: LanguageModel[Any] | None,
    sampler: Sampler,
    policy: Policy,
    num_spec_tokens: int,
    num_slots: int,
) -> Engine:
    """An engine for a load."""
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
    )
    max_len = min(target.max_model_len, PROMPT_LEN + OUTPUT_LEN + num_spec_tokens + 1)
    return Engine.of(parts, Limits(num_slots=num_slots, max_len=max_len))


def serve(engine: Engine, concurrency: int) -> Served:
    """Serve one request per slot until the first has ended, twice; the second time counts."""
    runner = engine.loop.runner
    assert isinstance(runner, GraphRunner)
    _run(engine, concurrency)
    before, spans = engine.loop.decode_seconds, list[Span]()
    for captured in runner.captured.values():
        captured.replay = _timed(captured.replay, spans)
    num_tokens, num_steps = _run(engine, concurrency)
    seconds = engine.loop.decode_seconds - before
    step_ms = 1000 * seconds / num_steps
    graph_ms = sum(start.elapsed_time(end) for start, end in spans) / num_steps
    parts = time_parts(engine.loop.decode_step, runner)
    return Served(
        concurrency=concurrency,
        num_spec_tokens=engine.loop.parts.drafter.num_spec_tokens,
        tokens_per_second=num_tokens / seconds,
        step_ms=step_ms,
        tokens_per_step=num_tokens / num_steps / concurrency,
        parts_ms={**parts, "host": step_ms - graph_ms},
    )


def _timed(replay: Callable[[], None], spans: list[Span]) -> Callable[[], None]:
    def run() -> None:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        replay()
        end.record()
        spans.append((start, end))

    return run


def _run(engine: Engine, concurrency: int) -> tuple[int, int]:
    generator = torch.Generator().manual_seed(0)
    vocab_size = engine.loop.parts.target.vocab_size
    ids = [
        engine.add_request(
            torch.randint(vocab_size, (PROMPT_LEN,), generator=generator).tolist(),
            SamplingParams(seed=seed),
            max_tokens=OUTPUT_LEN,
        )
        for seed in range(concurrency)
    ]
    num_tokens = num_steps = 0
    ended = False
    while not ended:
        progress = engine.step()
        ended = any(one.result is not None for one in progress)
        num_tokens += sum(len(one.token_ids) for one in progress)
        num_steps += 1
    for request_id in ids:
        engine.cancel(request_id)
    while engine.has_unfinished():
        engine.step()
    return num_tokens, num_steps


def time_parts(step: DecodeStep, runner: GraphRunner) -> dict[str, float]:
    """Device milliseconds of the parts of a recorded step, at its last inputs."""
    num_spec_tokens = step.drafter.num_spec_tokens
    captured = next(
        one for one in runner.captured.values() if one.drafts.shape[1] == num_spec_tokens
    )
    frontier = captured.frontier()
    made: list[Any] = [None, None]

    def draft() -> None:
        made[0] = step.draft(frontier)

    def score() -> None:
        made[1] = step.score(frontier, made[0])

    def verify() -> None:
        step.verify(frontier, made[0], made[1], None)

    with torch.inference_mode():
        parts = {"draft": draft, "target": score, "verification": verify}
        replays = {name: runner.record(part) for name, part in parts.items()}
        return {name: milliseconds(replay) for name, replay in replays.items()}
