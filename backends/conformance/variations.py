"""Changes of a batch under which every request must keep its tokens, bit for bit.

There are no near-ties between two runs of one backend.
"""

from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from ...core.output import VerifyOutput
from ...core.sampling_tensors import SamplingTensors
from .calls import Watched
from .findings import Difference
from .inputs import Inputs, make_inputs
from .requests import Layout, Request, lay_out

NUMBERS_TOLERANCE = 1e-4
"""For logprobs and total variations, whose sums may run in another order."""


@frozen(eq=False)
class Variation:
    """One changed batch.

    Attributes:
        requests: what is in it.
        origins: for each, which request of the first batch it is; None for a stranger.
        layout: where they lie.
    """

    requests: Sequence[Request]
    origins: Sequence[int | None]
    layout: Layout


def differences_in_variations(
    inputs: Inputs, output: VerifyOutput, backend: Watched
) -> Iterator[Difference]:
    """Verify the changed batches, or the same one on poisoned memory, and compare."""
    policy, name = inputs.case.policy, inputs.case.variation
    for variation in _variations(inputs):
        batch = lay_out(inputs.models, variation.requests, variation.layout)
        params = SamplingTensors.stack([request.params for request in variation.requests])
        again = backend.verify(batch, params, policy, name)
        for place, request in enumerate(variation.origins):
            if request is not None:
                yield from _compare(name, request, output, again, place)


def _variations(inputs: Inputs) -> Iterator[Variation]:
    rng = np.random.default_rng((inputs.case.seed, 2))
    requests, layout = inputs.requests, Layout(id_dtype=inputs.layout.id_dtype)
    everyone, count = [*range(len(requests))], len(requests)
    match inputs.case.variation:
        case "repeat":
            yield Variation(requests, everyone, inputs.layout)
        case "permute":
            yield _of(inputs, rng.permutation(everyone).tolist())
        case "split":
            middle = int(rng.integers(count + 1))
            yield _of(inputs, everyone[:middle])
            yield _of(inputs, everyone[middle:])
        case "pad":
            spare_drafts, spare_rows, gap = rng.integers(0, 4, size=3).tolist()
            padded = attrs.evolve(
                layout, spare_drafts=spare_drafts, spare_rows=spare_rows, gap=gap, spare_slots=1
            )
            yield Variation(requests, everyone, padded)
        case "slots":
            slots = tuple(rng.permutation(count + 3)[:count].tolist())
            yield Variation(requests, everyone, attrs.evolve(layout, slots=slots))
        case "neighbour":
            yield _among_strangers(inputs, rng)


def _of(inputs: Inputs, chosen: list[int]) -> Variation:
    slots = tuple(range(len(chosen)))
    layout = Layout(slots=slots, id_dtype=inputs.layout.id_dtype)
    return Variation([inputs.requests[request] for request in chosen], chosen, layout)


def _among_strangers(inputs: Inputs, rng: np.random.Generator) -> Variation:
    """Keep about half of the requests; the others become longer, different and partly broken."""
    case, count = inputs.case, max(len(inputs.requests), 1)
    other = attrs.evolve(
        case,
        seed=case.seed ^ 1,
        num_draft_tokens=tuple(rng.integers(0, 5, size=count).tolist()),
        features=case.features
        | {"bad target rows", "bad draft rows", "bad ids", "greedy", "top-k", "top-p", "bias"},
    )
    strangers = make_inputs(other).with_arbitrary_drafts().requests
    stays = [place < len(inputs.requests) and rng.random() < 0.5 for place in range(count)]
    return Variation(
        [inputs.requests[p] if stay else strangers[p] for p, stay in enumerate(stays)],
        [place if stay else None for place, stay in enumerate(stays)],
        Layout(id_dtype=inputs.layout.id_dtype),
    )


def _compare(
    name: str, request: int, output: VerifyOutput, again: VerifyOutput, place: int
) -> Iterator[Difference]:
    for what in ("token_ids", "num_accepted", "status"):
        want = _without_padding(getattr(output, what)[request])
        got = _without_padding(getattr(again, what)[place])
        if want != got:
            yield _difference(name, request, what, want, got)
    pairs = {"total variation": (output.total_variation, again.total_variation)}
    if output.logprobs is not None and again.logprobs is not None:
        pairs["logprobs"] = (output.logprobs.emitted, again.logprobs.emitted)
    for what, (numbers, others) in pairs.items():
        if numbers is not None and others is not None:
            width = min(numbers.shape[1], others.shape[1])
            expected, given = numbers[request, :width], others[place, :width]
            if not torch.allclose(expected, given, rtol=0, atol=NUMBERS_TOLERANCE):
                yield _difference(name, request, what, expected.tolist(), given.tolist())


def _difference(name: str, request: int, what: str, expected: object, got: object) -> Difference:
    decision = f"{what} in the variation {name!r}"
    return Difference(request, -1, decision, str(expected), str(got), float("inf"))


def _without_padding(values: Tensor) -> list[int]:
    numbers: list[int] = values.reshape(-1).tolist()
    while len(numbers) > 1 and numbers[-1] == -1:
        numbers.pop()
    return numbers
