"""The plug-in beside vLLM's own rejection sampler: the same engine's steps on one GPU.

`python -m lab.speed.vllm docs/data/vllm.md`, with docs, tests and vLLM's files on the path,
writes the table: medians of replayed CUDA graphs with a cold cache. A step is a call of the
rejection sampler as vLLM's model runner makes it, with logits, draft logits, slots and parameters
in vLLM's own tensors.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch
from attrs import evolve
from torch import Tensor

import kit.vllm_process  # noqa: F401, vLLM can be imported from here on

# isort: split

from vllm.sampling_params import SamplingParams

from acceptor.app.bench.files import describe
from acceptor.app.bench.kernels.inputs import Logits, make_step
from acceptor.app.bench.kernels.measure import Call, Stopwatch
from acceptor.app.bench.kernels.workload import Workload
from acceptor.app.bench.table import Table
from acceptor.app.vllm_plugin.registration import PluginSettings
from acceptor.app.vllm_plugin.rejection_sampler import AcceptorSampler
from acceptor.backends import load_sampler
from acceptor.core.sampling_params import Recipe
from kit.vllm_engine import DEVICE, OWN, Engine, speculation

VOCAB_SIZE = 151_936
NUM_REQS = (1, 16, 64, 256)
RECIPES = (
    Recipe(temperature=0),
    Recipe(temperature=0.8),
    Recipe(temperature=0.8, top_p=0.9),
    Recipe(temperature=0.8, top_k=50, top_p=0.9),
)
SAMPLERS: dict[str, Callable[..., Any]] = {
    "vLLM": OWN,
    "triton": partial(AcceptorSampler, PluginSettings(backend="triton")),
    "cupy": partial(AcceptorSampler, PluginSettings(backend="cupy")),
}


def steps(workload: Workload, logits: Logits) -> list[Call]:
    """One step of each sampler on the same inputs."""
    recipe, noise = workload.recipe, torch.Generator(DEVICE).manual_seed(1)
    # Speculators of vLLM draw at the temperature alone.
    drawn = evolve(workload, recipe=Recipe(temperature=recipe.temperature))
    drafts = make_step(drawn, logits, noise, load_sampler("reference")).batch.draft_token_ids
    of_recipe = {"temperature": recipe.temperature, "top_k": recipe.top_k, "top_p": recipe.top_p}
    params = [SamplingParams(seed=seed, **of_recipe) for seed in range(workload.num_reqs)]
    speculates = speculation(num_spec_tokens=workload.num_spec_tokens)
    engines = (Engine(params, speculates, make, workload.vocab_size) for make in SAMPLERS.values())
    return [engine.call(logits.target, drafts, logits.draft) for engine in engines]


def emitted(step: Call) -> Tensor:
    """Token ids [num_reqs, K + 1], -1 behind the last one."""
    output = step()
    ids, num_sampled = output.sampled_token_ids, output.num_sampled[:, None]
    kept: Tensor = ids.where(torch.arange(ids.shape[1], device=ids.device) < num_sampled, -1)
    return kept


def main(path: Path, num_reqs: Sequence[int] = NUM_REQS, count: int = 40) -> None:
    """Time every step, and write the table."""
    stopwatch, num_different = Stopwatch(DEVICE), 0
    times: dict[tuple[str, str], list[str]] = {}
    for size in num_reqs:
        one = Workload(num_reqs=size, vocab_size=VOCAB_SIZE)
        logits = Logits.random(one, torch.Generator(DEVICE).manual_seed(0))
        for recipe in RECIPES:
            workload = evolve(one, recipe=recipe)
            calls = steps(workload, logits)
            if recipe.is_greedy:
                expected, *others = map(emitted, calls)
                num_different += sum(int((other != expected).any(1).sum()) for other in others)
            for name, call in zip(SAMPLERS, calls, strict=True):
                row = workload.label.removeprefix("probabilistic, "), name
                replays = stopwatch.replays([call], count)
                times.setdefault(row, []).append(f"{median(replays):.1f}")
        done = num_reqs[: num_reqs.index(size) + 1]
        path.write_text(document(times, done, num_different), encoding="utf-8")


def document(
    measured: Mapping[tuple[str, str], Sequence[str]], num_reqs: Sequence[int], num_different: int
) -> str:
    """Where and when, and a table."""
    about = describe(DEVICE) | {"vllm": version("vllm")}
    machine = ", ".join(f"{name} {value}" for name, value in about.items())
    where = f"{datetime.now(UTC).date()}; {machine}. V = {VOCAB_SIZE:,}, K = 3, bfloat16 and lm"
    told = f"Of the greedy requests {num_different} get other tokens than from vLLM's kernels."
    cells = {key: "/".join(times) for key, times in measured.items()}
    table = Table.of(f"µs at R = {'/'.join(map(str, num_reqs))}", cells)
    return f"{where} inputs. {told}\n\n" + table.as_markdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), tuple(map(int, sys.argv[2:])) or NUM_REQS)
