"""Draws held to the contract: against the oracle, and against the same draw in another batch.

It refuses tolerance for the second: a request's token does not depend on its neighbours.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from attrs import evolve, frozen
from torch import Tensor

from ...core.batch import SampleBatch
from ...core.output import SampleOutput
from ...core.ports import Sampler
from ...core.sampling_params import SamplingParams
from ...core.sampling_tensors import SamplingTensors
from .case import Case
from .findings import Difference, Findings
from .inputs import Inputs
from .judge import judge_sample
from .moved import stacked
from .poison import memory
from .untouched import Snapshot


@frozen(eq=False)
class Drawn:
    """The tokens of one draw, and what comparing them gave."""

    token_ids: Tensor
    findings: Findings


def draw(
    case: Case,
    batch: SampleBatch,
    wishes: Sequence[SamplingParams],
    sampler: Sampler,
) -> Drawn:
    """Draw, compare with the oracle, and perhaps draw again in another order."""
    params = stacked(wishes, batch.logits.device)
    snapshot = Snapshot.of(batch, params)
    output = sampler.sample(batch, params)
    modified = tuple(snapshot.differences())
    judged = judge_sample(batch, params, output)
    twisted: tuple[Difference, ...] = ()
    if case.twist != "none" and judged.is_well_formed:
        twisted = tuple(_draw_again(case, batch, wishes, output, sampler))
    return Drawn(output.token_ids, judged + Findings(differences=modified + twisted))


def draw_once(batch: SampleBatch, params: SamplingTensors, sampler: Sampler) -> Drawn:
    """Draw, and compare with the oracle."""
    output = sampler.sample(batch, params)
    return Drawn(output.token_ids, judge_sample(batch, params, output))


def plain_batch(inputs: Inputs) -> SampleBatch:
    """The target's own draw at each request's first row."""
    return SampleBatch(
        logits=inputs.target_logits[inputs.cu_num_logits[:-1].long()],
        positions=inputs.positions,
        slot_ids=inputs.slot_ids,
        token_counts=inputs.token_counts,
    )


def draft_batch(case: Case, inputs: Inputs, place: int) -> SampleBatch:
    """The draft's draw at a place of all requests."""
    return SampleBatch(
        logits=inputs.draft_logits[inputs.slot_ids.long(), place - 1],
        positions=inputs.positions + (place - 1),
        draft_index=place,
        draft_stream=case.policy.draft_stream,
        draft_to_target=inputs.draft_to_target,
        target_vocab_size=None if inputs.draft_to_target is None else case.vocab_size,
    )


def drawn_again(case: Case) -> list[int]:
    """Which requests a twisted case draws a second time, and in which order."""
    if case.twist == "none":
        return []
    num_reqs = len(case.num_draft_tokens)
    rng = np.random.default_rng((case.seed, 3))
    count = int(rng.integers(num_reqs + 1))
    chosen: list[int] = rng.permutation(num_reqs)[:count].tolist()
    return chosen


def _draw_again(
    case: Case,
    batch: SampleBatch,
    wishes: Sequence[SamplingParams],
    output: SampleOutput,
    sampler: Sampler,
) -> Iterator[Difference]:
    chosen = drawn_again(case)
    order = torch.tensor(chosen, dtype=torch.int64, device=batch.logits.device)
    slots = None if batch.slot_ids is None else batch.slot_ids[order]
    again = evolve(
        batch, logits=batch.logits[order], positions=batch.positions[order], slot_ids=slots
    )
    their_params = stacked([wishes[request] for request in chosen], batch.logits.device)
    with memory(poisoned=case.twist == "repeat"):
        repeated = sampler.sample(again, their_params).token_ids.tolist()
    expected = output.token_ids[order].tolist()
    for request, want, got in zip(chosen, expected, repeated, strict=True):
        if want != got:
            what = "drawn token in another batch"
            yield Difference(request, 0, what, str(want), str(got), float("inf"))
