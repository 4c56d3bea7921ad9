"""A case held to the contract from end to end: drawn, drafted, verified, and compared."""

from collections.abc import Callable
from functools import partial
from typing import Any

from attrs import define, field
from torch import Tensor

from ...core.batch import SampleBatch, VerifyBatch
from ...core.sampling_tensors import SamplingTensors
from .calls import Watched
from .case import Case
from .compare import in_another_batch
from .findings import Findings
from .inputs import make_inputs, varied
from .judge import judge_sample, judge_verify
from .requests import Inputs


@define
class Check:
    """One case for one or more backends; all verify the drafts that the first one drew.

    Its inputs are the requests before drafts are made.

    Attributes:
        case: what to check.
        inputs: its requests, before drafts are made.
    """

    case: Case
    inputs: Inputs = field()
    _drafted: Inputs | None = None

    @inputs.default
    def _make(self) -> Inputs:
        return make_inputs(self.case)

    def __call__(self, backend: Watched) -> None:
        """Draw plainly, draft, verify, and compare everything."""
        check_call(self.inputs, Inputs.plain_batch, backend)
        must_be_drawn = _must_be_drawn(self.case)
        drafted = self._draft(backend) if must_be_drawn else self.inputs.with_arbitrary_drafts()
        self._drafted = self._drafted or drafted
        check_call(self._drafted, Inputs.verify_batch, backend)

    def _draft(self, backend: Watched) -> Inputs:
        places = range(1, max(self.case.num_draft_tokens, default=0) + 1)
        columns = [
            check_call(self.inputs, partial(Inputs.draft_batch, place=place), backend).tolist()
            for place in places
        ]
        rows = [*zip(*columns, strict=True)] if columns else [()] * len(self.inputs.requests)
        return self.inputs.with_drafts(rows)


def _must_be_drawn(case: Case) -> bool:
    # Where both models are certain of one token, a rejection is impossible, unless the draft was
    # arbitrary: then p - q is nothing but rounding, and there is no right answer.
    certain = case.logits in ("sharp", "large", "huge", "mixed") or case.has("extremes")
    # The same holds where the models differ in little but the mask.
    close = case.has("equal drafter") or case.has("close drafter")
    certain |= close and case.has("allowed tokens")
    return case.drafter != "one-hot" and (certain or not case.has("arbitrary drafts"))


def check_call(
    inputs: Inputs, batch_of: Callable[[Inputs], VerifyBatch | SampleBatch], backend: Watched
) -> Tensor:
    """The tokens that a call gives, compared with the oracle and perhaps with a variation's."""
    policy, variation = inputs.case.policy, inputs.case.variation
    batch, params = batch_of(inputs), SamplingTensors.stack(inputs.params)
    output: Any = backend.call(batch, params, policy)
    if isinstance(batch, VerifyBatch):
        found = judge_verify(batch, params, policy, output)
    else:
        found = judge_sample(batch, params, output)
    if variation != "none" and found.is_well_formed:
        other, origins = varied(inputs)
        again = backend.call(batch_of(other), other.params_by_slot(), policy, is_variation=True)
        differences = in_another_batch(output, again, origins, variation)
        found += Findings(differences=(*differences,))
    backend.findings += found
    token_ids: Tensor = output.token_ids
    return token_ids
