"""Requests that are asked again in another batch, in which each must keep its answer."""

import attrs
import numpy as np

from .inputs import make_inputs
from .requests import Inputs, Layout

Varied = tuple[Inputs, list[int | None]]
"""The batch, and which request of the first batch each is; None for a stranger."""

ALSO_OF_STRANGERS = frozenset(
    ("bad target rows", "bad draft rows", "bad ids", "greedy", "top-k", "top-p", "bias")
)


def varied(inputs: Inputs) -> Varied:
    """What the case's variation makes of a batch; the same batch if there is none."""
    rng = np.random.default_rng((inputs.case.seed, 2))
    count = len(inputs.requests)
    if inputs.case.variation == "in part":
        chosen = rng.permutation(count)[: rng.integers(count + 1)].tolist()
        requests = tuple(inputs.requests[request] for request in chosen)
        layout = _any_layout(len(chosen), rng)
        return attrs.evolve(inputs, requests=requests, layout=layout), chosen
    if inputs.case.variation == "among strangers":
        return _among_strangers(inputs, rng)
    return inputs, [*range(count)]


def _any_layout(count: int, rng: np.random.Generator) -> Layout:
    spare_drafts, spare_rows, gap, spare_slots = rng.integers(0, 4, size=4).tolist()
    return Layout(
        slots=tuple(rng.permutation(count + 3)[:count].tolist()),
        spare_drafts=spare_drafts,
        spare_rows=spare_rows,
        gap=gap,
        spare_slots=spare_slots,
    )


def _among_strangers(inputs: Inputs, rng: np.random.Generator) -> Varied:
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
