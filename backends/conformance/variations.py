"""Requests verified again in another batch: each must keep its tokens, bit for bit.

There are no near-ties between two runs of one backend.
"""

from collections.abc import Iterator

import attrs
import numpy as np
import torch
from torch import Tensor

from ...core.output import VerifyOutput
from ...core.sampling_tensors import SamplingTensors
from .calls import Watched
from .findings import Difference
from .inputs import make_inputs
from .requests import Inputs, Layout

NUMBERS_TOLERANCE = 1e-4
"""For logprobs and total variations, whose sums may run in another order."""

ALSO_OF_STRANGERS = frozenset(
    ("bad target rows", "bad draft rows", "bad ids", "greedy", "top-k", "top-p", "bias")
)


def differences_in_variation(
    inputs: Inputs, output: VerifyOutput, backend: Watched
) -> Iterator[Difference]:
    """Verify what the case's variation makes of the batch, and compare."""
    varied, origins = _varied(inputs)
    batch, params = varied.verify_batch(), SamplingTensors.stack(varied.params)
    again = backend.verify(batch, params, inputs.case.policy, is_variation=True)
    for place, request in enumerate(origins):
        if request is not None:
            yield from _compare(inputs.case.variation, request, output, again, place)


def _varied(inputs: Inputs) -> tuple[Inputs, list[int | None]]:
    """The batch, and which request of the first batch each is; None for a stranger."""
    rng = np.random.default_rng((inputs.case.seed, 2))
    count = len(inputs.requests)
    if inputs.case.variation == "repeated":
        return inputs, [*range(count)]
    if inputs.case.variation == "in part":
        chosen = rng.permutation(count)[: rng.integers(count + 1)].tolist()
        requests = tuple(inputs.requests[request] for request in chosen)
        layout = _any_layout(len(chosen), rng)
        return attrs.evolve(inputs, requests=requests, layout=layout), chosen
    return _among_strangers(inputs, rng)


def _any_layout(count: int, rng: np.random.Generator) -> Layout:
    spare_drafts, spare_rows, gap, spare_slots = rng.integers(0, 4, size=4).tolist()
    return Layout(
        slots=tuple(rng.permutation(count + 3)[:count].tolist()),
        spare_drafts=spare_drafts,
        spare_rows=spare_rows,
        gap=gap,
        spare_slots=spare_slots,
    )


def _among_strangers(inputs: Inputs, rng: np.random.Generator) -> tuple[Inputs, list[int | None]]:
    """Keep about half of the requests; the others become longer, different and partly broken."""
    case, count = inputs.case, max(len(inputs.requests), 1)
    other = attrs.evolve(
        case,
        seed=case.seed ^ 1,
        num_draft_tokens=tuple(rng.integers(0, 5, size=count).tolist()),
        features=case.features | ALSO_OF_STRANGERS,
    )
    strangers = make_inputs(other).with_arbitrary_drafts().requests
    stays = [place < len(inputs.requests) and rng.random() < 0.5 for place in range(count)]
    requests = [inputs.requests[p] if stay else strangers[p] for p, stay in enumerate(stays)]
    varied = attrs.evolve(inputs, requests=tuple(requests), layout=Layout())
    return varied, [place if stay else None for place, stay in enumerate(stays)]


def _compare(
    name: str, request: int, output: VerifyOutput, again: VerifyOutput, place: int
) -> Iterator[Difference]:
    for what in ("token_ids", "num_accepted", "status"):
        want = _without_padding(getattr(output, what)[request])
        got = _without_padding(getattr(again, what)[place])
        if want != got:
            yield Difference(request, -1, f"{what}, {name}", str(want), str(got))
    for what, numbers, others in (
        ("total variation", output.total_variation, again.total_variation),
        ("logprobs", _emitted(output), _emitted(again)),
    ):
        if numbers is not None and others is not None:
            width = min(numbers.shape[1], others.shape[1])
            pair = numbers[request, :width], others[place, :width]
            if not torch.allclose(*pair, rtol=0, atol=NUMBERS_TOLERANCE):
                told = [str(part.tolist()) for part in pair]
                yield Difference(request, -1, f"{what}, {name}", told[0], told[1])


def _emitted(output: VerifyOutput) -> Tensor | None:
    return None if output.logprobs is None else output.logprobs.emitted


def _without_padding(values: Tensor) -> list[int]:
    numbers: list[int] = values.reshape(-1).tolist()
    while len(numbers) > 1 and numbers[-1] == -1:
        numbers.pop()
    return numbers
