"""Changes of a batch under which every request must keep its tokens, bit for bit.

It refuses tolerance for tokens: there is no near-tie between two runs of one backend.
"""

from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import torch
from attrs import frozen

from ...core.batch import VerifyBatch
from ...core.output import VerifyOutput
from ...core.ports import Sampler
from ...core.sampling_params import SamplingParams
from .case import Case
from .drafting import arbitrary_batch
from .findings import Difference
from .inputs import make_inputs
from .moved import on_host
from .parts import Arrangement, Part, put_together, take_apart
from .poison import memory

NUMBERS_TOLERANCE = 1e-4
"""For logprobs and total variations, whose sums may run in another order."""


@frozen(eq=False)
class Twisted:
    """One changed batch.

    Attributes:
        parts: its requests.
        origins: for each, which request of the first batch it is; None for a stranger.
        arrangement: where they lie.
    """

    parts: list[Part]
    origins: list[int | None]
    arrangement: Arrangement


def judge_twist(
    case: Case,
    batch: VerifyBatch,
    wishes: Sequence[SamplingParams],
    output: VerifyOutput,
    sampler: Sampler,
) -> Iterator[Difference]:
    """Verify the changed batch, or the same one on poisoned memory, and compare."""
    rng = np.random.default_rng((case.seed, 2))
    parts, output = take_apart(batch, wishes), on_host(output)
    for twisted in _twist(case, parts, rng, batch.target_logits.device):
        changed, params = put_together(twisted.parts, batch, twisted.arrangement)
        with memory(poisoned=case.twist == "repeat"):
            again = on_host(sampler.verify(changed, params, case.policy))
        for place, request in enumerate(twisted.origins):
            if request is not None:
                yield from _compare(case.twist, request, output, again, place)


def _twist(
    case: Case, parts: list[Part], rng: np.random.Generator, device: torch.device
) -> Iterator[Twisted]:
    requests = list(range(len(parts)))
    match case.twist:
        case "permute":
            yield _lay_out(parts, rng.permutation(requests).tolist())
        case "split":
            middle = int(rng.integers(len(parts) + 1))
            yield _lay_out(parts, requests[:middle])
            yield _lay_out(parts, requests[middle:])
        case "pad":
            places, rows, gap = rng.integers(0, 4, size=3).tolist()
            arrangement = Arrangement(tuple(requests), len(parts) + 1, places, rows, gap)
            yield Twisted(parts, list(requests), arrangement)
        case "slots":
            num_slots = len(parts) + 3
            slots = rng.permutation(num_slots)[: len(parts)].tolist()
            yield Twisted(parts, list(requests), Arrangement(tuple(slots), num_slots))
        case "neighbour":
            yield _among_strangers(case, parts, rng, device)
        case "repeat":
            yield _lay_out(parts, requests)


def _lay_out(parts: list[Part], requests: list[int]) -> Twisted:
    slots = tuple(range(len(requests)))
    arrangement = Arrangement(slots, len(slots))
    return Twisted([parts[request] for request in requests], list(requests), arrangement)


def _among_strangers(
    case: Case, parts: list[Part], rng: np.random.Generator, device: torch.device
) -> Twisted:
    """Keep about half of the requests; the others become longer, different and partly broken."""
    other = attrs.evolve(
        case,
        seed=case.seed ^ 1,
        num_draft_tokens=tuple(rng.integers(0, 5, size=max(len(parts), 1)).tolist()),
        features=case.features
        | {"bad target rows", "bad draft rows", "bad ids", "greedy", "top-k", "top-p", "bias"},
    )
    inputs = make_inputs(other, device)
    strangers = take_apart(arbitrary_batch(other, inputs), inputs.wishes)
    mixed: list[Part] = []
    origins: list[int | None] = []
    for request, stranger in enumerate(strangers):
        stays = request < len(parts) and rng.random() < 0.5
        mixed.append(parts[request] if stays else stranger)
        origins.append(request if stays else None)
    return Twisted(mixed, origins, Arrangement(tuple(range(len(mixed))), len(mixed)))


def _compare(
    twist: str, request: int, output: VerifyOutput, again: VerifyOutput, place: int
) -> Iterator[Difference]:
    for name in ("token_ids", "num_accepted", "status"):
        expected = _without_padding(getattr(output, name)[request].tolist())
        got = _without_padding(getattr(again, name)[place].tolist())
        if expected != got:
            what = f"{name} after the twist {twist!r}"
            yield Difference(request, -1, what, str(expected), str(got), float("inf"))
    if output.total_variation is not None and again.total_variation is not None:
        expected_row, got_row = output.total_variation[request], again.total_variation[place]
        width = min(len(expected_row), len(got_row))
        yield from _close(twist, request, "total variation", expected_row[:width], got_row[:width])
    if output.logprobs is not None and again.logprobs is not None:
        expected_row, got_row = output.logprobs.emitted[request], again.logprobs.emitted[place]
        width = min(len(expected_row), len(got_row))
        yield from _close(twist, request, "logprobs", expected_row[:width], got_row[:width])


def _close(
    twist: str, request: int, name: str, expected: torch.Tensor, got: torch.Tensor
) -> Iterator[Difference]:
    if not torch.allclose(expected, got, rtol=0, atol=NUMBERS_TOLERANCE):
        what = f"{name} after the twist {twist!r}"
        yield Difference(request, -1, what, str(expected.tolist()), str(got.tolist()), float("inf"))


def _without_padding(values: list[int] | int) -> list[int] | int:
    if isinstance(values, int):
        return values
    while values and values[-1] == -1:
        values = values[:-1]
    return values
