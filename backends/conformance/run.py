"""Runs a case on one backend or two: draws, drafts, verifies and compares.

It also finds the smallest case that fails.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from attrs import Factory, define, evolve
from torch import Tensor

from ...core import SampleBatch, Sampler, SamplingTensors, UnavailableError, VerifyBatch
from ...core.output import Output, VerifyOutput
from ...core.tensor_fields import named_tensors
from .calls import Watched
from .case import Case
from .findings import Difference, Findings, Found
from .inputs import make_inputs, varied
from .judge import judge_sample, judge_verify
from .requests import Inputs

PLAIN = Case()

BatchOf = Callable[[Inputs], VerifyBatch | SampleBatch]
Trial = Callable[[Watched], object]
"""Calls a backend, and adds what it finds to the backend's findings."""

NUMBERS, NUMBERS_TOLERANCE = ("logprobs.emitted", "total_variation"), 1e-4
"""Logprobs and total variations, [num_reqs, any]; their sums may run in another order."""


@define
class Check:
    """One case for one or more backends; all verify the drafts that the first one drew.

    Attributes:
        case: what to check.
        inputs: the case's requests, before drafts are made.
    """

    case: Case
    inputs: Inputs = Factory(lambda self: make_inputs(self.case), takes_self=True)
    _drafted: Inputs | None = None

    def __call__(self, backend: Watched) -> None:
        """Draw plainly, draft, verify, and compare everything."""
        check_call(self.inputs, Inputs.plain_batch, backend)
        must_be_drawn = _must_be_drawn(self.case)
        drafted = self._draft(backend) if must_be_drawn else self.inputs.with_arbitrary_drafts()
        self._drafted = self._drafted or drafted
        check_call(self._drafted, Inputs.verify_batch, backend)

    def _draft(self, backend: Watched) -> Inputs:
        columns = [
            check_call(self.inputs, partial(Inputs.draft_batch, place=place), backend).tolist()
            for place in range(1, max(self.case.num_draft_tokens, default=0) + 1)
        ]
        rows = [*zip(*columns, strict=True)] if columns else [()] * len(self.inputs.requests)
        return self.inputs.with_drafts(rows)


def _must_be_drawn(case: Case) -> bool:
    # Where both models are certain of one token, only an arbitrary draft can be rejected: then
    # p - q is nothing but rounding, and there is no right answer.
    certain = case.logits in ("sharp", "large", "huge", "mixed") or case.has("extremes")
    # The same holds where the models differ in little but the mask.
    close = case.has("equal drafter") or case.has("close drafter")
    certain |= close and case.has("allowed tokens")
    return case.drafter != "one-hot" and (certain or not case.has("arbitrary drafts"))


def check_call(inputs: Inputs, batch_of: BatchOf, backend: Watched) -> Tensor:
    """Call the backend, compare with the oracle and perhaps a variation, and return the tokens."""
    policy, variation = inputs.case.policy, inputs.case.variation
    batch, params = batch_of(inputs), SamplingTensors.stack(inputs.params)
    output: Any = backend.call(batch, params, policy)
    if isinstance(batch, VerifyBatch):
        found = judge_verify(batch, params, policy, output)
    else:
        found = judge_sample(batch, params, output)
    # Differences of no single request concern shapes and dtypes: then values cannot be compared.
    is_well_formed = all(difference.request >= 0 for difference in found.differences)
    if variation != "none" and is_well_formed:
        other, origins = varied(inputs)
        again = backend.call(batch_of(other), other.params_by_slot(), policy, is_variation=True)
        differences = in_another_batch(output, again, origins, variation)
        found += Findings(differences=(*differences,))
    backend.findings += found
    token_ids: Tensor = output.token_ids
    return token_ids


def run_case(case: Case, sampler: Sampler, device: torch.device) -> Findings:
    """Run a case. A crash is a difference; a policy that the backend lacks is counted."""
    return run_all(Check(case), [Watched(sampler, device)])[0].shown_by(case.to_json())


def run_all(check: Trial, backends: Sequence[Watched]) -> Found:
    """The findings of each backend and, if there are two, of comparing them with each other."""
    found = tuple(_guarded(check, backend) for backend in backends)
    if len(backends) == 1:
        return found
    if any(each.num_unsupported for each in found):
        return (*found, Findings(num_unsupported=1))
    # The numbers of requests and decisions are the first backend's.
    return (*found, evolve(found[0], differences=tuple(between(*backends))))


def _guarded(check: Trial, backend: Watched) -> Findings:
    try:
        check(backend)
    except UnavailableError:
        return Findings(num_unsupported=1)
    except Exception as error:  # noqa: BLE001 whatever a backend raises is a finding
        backend.note("call", "an output", f"{type(error).__name__}: {error}")
    return backend.findings + Findings(num_batches=1)


def smallest_failure(case: Case, sampler: Sampler, device: torch.device) -> Case | None:
    """Make a case simpler while it still fails; None if it does not."""

    def fails(some: Case) -> bool:
        return bool(run_case(some, sampler, device).unexplained)

    smallest, simpler = None, case if fails(case) else None
    while simpler is not None:
        smallest, simpler = simpler, next(filter(fails, simpler_than(simpler)), None)
    return smallest


def simpler_than(case: Case) -> Iterator[Case]:
    """Cases that are a little simpler than this one, the largest steps first."""
    lengths = case.num_draft_tokens
    parts = [lengths[: len(lengths) // 2], lengths[len(lengths) // 2 :]]
    parts += [
        (*lengths[:place], *instead, *lengths[place + 1 :])
        for place, length in enumerate(lengths)
        for instead in ((), (0,), (length // 2,), (max(length - 1, 0),))
    ]
    parts = [part for part in dict.fromkeys(parts) if part != lengths]
    yield from (evolve(case, num_draft_tokens=part) for part in parts)
    for size in (1, 2, 3, case.vocab_size // 2, case.vocab_size - 1):
        if 0 < size < case.vocab_size:
            yield evolve(case, vocab_size=size)
    for name in ("logits", "drafter", "dtype", "draft_dtype", "id_dtype", "features", "variation"):
        if getattr(case, name) != getattr(PLAIN, name):
            yield evolve(case, **{name: getattr(PLAIN, name)})
    for feature in sorted(case.features):
        yield evolve(case, features=case.features - {feature})


def between(first: Watched, second: Watched) -> Iterator[Difference]:
    """Every request that got different answers in some call; excused if near-ties explain it.

    Only the oracle's judgement of both excuses a difference, never the other backend's answer.

    Args:
        first, second: both backends after the same calls, with the oracle's findings.
    """
    judged = (*first.findings.differences, *second.findings.differences)
    if len(first.outputs) != len(second.outputs):
        expected, got = (f"{len(watched.outputs)} calls" for watched in (first, second))
        yield Difference(-1, -1, "answers", expected, got)
    for mine, theirs in zip(first.outputs, second.outputs, strict=False):
        for request, (one, other) in enumerate(zip(_answers(mine), _answers(theirs), strict=True)):
            if one != other:
                without_cause = Difference(request, -1, "answer", str(one), str(other))
                # A finding about no single request concerns all of them.
                causes = [cause for cause in judged if cause.request in (-1, request)]
                causes = causes or [without_cause]
                yield evolve(
                    without_cause,
                    row=min(cause.row for cause in causes),
                    decision=causes[0].decision,
                    margin=max(cause.margin for cause in causes),
                    excused=all(cause.excused for cause in causes),
                )


def in_another_batch(
    output: Output, again: Output, origins: Sequence[int | None], name: str
) -> Iterator[Difference]:
    """Every request that got another answer; no near-tie excuses a backend's second run.

    Args:
        output: the first batch's.
        again: the other batch's.
        origins: for each request of the other batch, its index in the first; None for a stranger.
        name: the variation that the other batch is.
    """
    before, after = _answers(output), _answers(again)
    mine, theirs = dict(named_tensors(output)), dict(named_tensors(again))
    numbers = [(mine[name], theirs[name]) for name in NUMBERS if name in mine and name in theirs]
    for place, request in enumerate(origins):
        if request is None:
            continue
        shown = [before[request], after[place]]
        for one, other in numbers:
            width = min(one.shape[1], other.shape[1])
            rows = one[request, :width], other[place, :width]
            if not torch.allclose(*rows, rtol=0, atol=NUMBERS_TOLERANCE):
                shown = [(*answer, row.tolist()) for answer, row in zip(shown, rows, strict=True)]
        if shown[0] != shown[1]:
            yield Difference(request, -1, f"answer, {name}", str(shown[0]), str(shown[1]))


def _answers(output: Output) -> list[tuple[object, ...]]:
    """For each request: its tokens without padding, its status and how many were accepted.

    Lists of most likely tokens are left out: equally likely ones have no order, and the oracle
    judges each list alone.
    """
    rows = (np.atleast_1d(row) + 1 for row in output.token_ids.numpy())
    columns = [[(np.trim_zeros(row, "b") - 1).tolist() for row in rows], output.status.tolist()]
    if isinstance(output, VerifyOutput):
        columns.append(output.num_accepted.tolist())
    return [*zip(*columns, strict=True)]
