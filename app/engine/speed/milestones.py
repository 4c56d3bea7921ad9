"""What is measured, most important first; each part stands for itself.

This module refuses to run anything before it is asked for, and to know how long that may take.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from attrs import asdict, define, field, frozen

from ....adapters.language_model import TransformerModel
from ....adapters.spans import Spans
from ....backends import load_sampler
from ....core.policies import Synthetic
from .hugging_face import load_copy, tokens_per_second
from .operations import products, time_attention, time_flex_attention, time_products
from .served import Load, make_engine, prompt_of, serve
from .shapes import SEEDS, Sizes, make_model
from .timing import bandwidth

NUM_SPEC_TOKENS = 3
ACCEPTANCE_RATE = 0.6

Record = dict[str, Any]


@define(eq=False, kw_only=True)
class Subject:
    """What is measured, where; models are made when they are first needed.

    Attributes:
        sizes: of models and requests.
        device: a GPU, or the CPU for a rehearsal.
        backend: that verifies.
        deadline: see `Load`.
    """

    sizes: Sizes
    device: torch.device
    backend: str
    deadline: float
    _models: dict[str, TransformerModel] = field(factory=dict, init=False)

    def model(self, name: str) -> TransformerModel:
        """Target or draft."""
        if name not in self._models:
            shape = dict(self.sizes.shapes)[name]
            self._models[name] = make_model(shape, SEEDS[name], self.device)
        return self._models[name]


@frozen
class Milestone:
    """One part of the measurement.

    Attributes:
        name: as it is told of.
        measure: writes what it found into the record, and returns what can be told of it.
    """

    name: str
    measure: Callable[[Subject, Record], object]


def milestones(several: int, *, hugging_face: bool) -> Iterator[Milestone]:
    """All parts in their order.

    Args:
        several: requests at once, besides one.
        hugging_face: whether to compare with it.
    """
    yield Milestone("bandwidth", _bandwidth)
    yield Milestone("one request, with drafts", partial(_serve, 1, NUM_SPEC_TOKENS))
    yield Milestone("one request, plain", partial(_serve, 1, 0))
    if hugging_face:
        yield Milestone("Hugging Face", _hugging_face)
    yield Milestone(f"{several} requests, with drafts", partial(_serve, several, NUM_SPEC_TOKENS))
    yield Milestone(f"{several} requests, plain", partial(_serve, several, 0))
    yield Milestone("bandwidth, once more", _bandwidth)
    yield Milestone("products", _products)
    yield Milestone("attention", _attention)
    yield Milestone("flex_attention", _flex_attention)


def _bandwidth(subject: Subject, record: Record) -> object:
    found = bandwidth(subject.device, subject.sizes.bandwidth_mib)
    record["bandwidth"] = max(found, record.get("bandwidth", 0.0))
    record["weight_bytes"] = {name: weight_bytes(shape) for name, shape in subject.sizes.shapes}
    return f"{found / 1e12:.2f} TB/s"


def _serve(concurrency: int, num_spec_tokens: int, subject: Subject, record: Record) -> object:
    sizes = subject.sizes
    load = Load(
        sizes=sizes,
        concurrency=concurrency,
        num_steps=sizes.steps_of_one if concurrency == 1 else 1,
        deadline=subject.deadline,
    )
    engine = make_engine(
        subject.model("target"),
        subject.model("draft") if num_spec_tokens else None,
        load_sampler(subject.backend),
        Synthetic.from_acceptance_rate(ACCEPTANCE_RATE, NUM_SPEC_TOKENS),
        num_spec_tokens,
        load,
    )
    served = serve(engine, load)
    record.setdefault("rows", []).append(asdict(served))
    return served


def _hugging_face(subject: Subject, record: Record) -> object:
    target, draft = (
        load_copy(shape, SEEDS[name], subject.device) for name, shape in subject.sizes.shapes
    )
    # The prompt of the engine's first request.
    prompt = prompt_of(subject.sizes, torch.Generator().manual_seed(0))
    on_device = torch.tensor([prompt], device=subject.device)
    found = record.setdefault("hugging_face", {})
    for name, assistant in (("assisted", draft), ("plain", None)):
        found[name] = tokens_per_second(target, assistant, on_device, NUM_SPEC_TOKENS)
    return found


def _products(subject: Subject, record: Record) -> object:
    record["products"] = time_products(subject.sizes, subject.device)
    return f"{len(record['products'])} rows"


def _attention(subject: Subject, record: Record) -> object:
    if not Spans.can_be_used(subject.device, torch.bfloat16):
        return "has no kernel here"
    record["attention"] = time_attention(subject.sizes, subject.device)
    return f"{len(record['attention'])} rows"


def _flex_attention(subject: Subject, record: Record) -> object:
    # Each shape is compiled, so not all of them.
    shortest = min(subject.sizes.lengths)
    rows = [row for row in record.get("attention", []) if row["positions"] == shortest]
    for row in rows:
        row["flex_us"] = time_flex_attention(subject.sizes, row, subject.device)
    return f"{len(rows)} rows"


def weight_bytes(shape: dict[str, Any]) -> int:
    """What one forward reads: all weights; of the embedding, a few rows."""
    *layer, head = products(shape).values()
    num_layers: int = shape["num_hidden_layers"]
    return 2 * (num_layers * sum(rows * columns for rows, columns in layer) + head[0] * head[1])
