"""A case held to the contract from end to end: drawn, drafted, verified, and compared."""

from collections.abc import Callable
from functools import partial

from attrs import define, field
from torch import Tensor

from ...core.batch import SampleBatch
from ...core.output import Output
from ...core.sampling_tensors import SamplingTensors
from .calls import Watched
from .case import Case
from .compare import in_another_batch
from .findings import Findings
from .inputs import make_inputs
from .judge import judge_sample, judge_verify
from .requests import Inputs
from .variations import varied


@define
class Check:
    """One case for one or more backends; all verify the drafts that the first one drew.

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
        """Draw plainly, draft, verify, and compare everything.

        Raises:
            UnavailableError: the backend lacks the case's policy.
        """
        check_sample(self.inputs, Inputs.plain_batch, backend)
        must_be_drawn = _must_be_drawn(self.case)
        drafted = self._draft(backend) if must_be_drawn else self.inputs.with_arbitrary_drafts()
        self._drafted = self._drafted or drafted
        check_verify(self._drafted, backend)

    def _draft(self, backend: Watched) -> Inputs:
        places = range(1, max(self.case.num_draft_tokens, default=0) + 1)
        columns = [
            check_sample(self.inputs, partial(Inputs.draft_batch, place=place), backend).tolist()
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


def check_verify(inputs: Inputs, backend: Watched) -> None:
    """Verify a batch, compare with the oracle, and perhaps verify a variation of it."""
    batch, params = inputs.verify_batch(), SamplingTensors.stack(inputs.params)
    output = backend.verify(batch, params, inputs.case.policy)
    found = judge_verify(batch, params, inputs.case.policy, output)

    def again(other: Inputs) -> Output:
        batch, params = other.verify_batch(), other.params_by_slot()
        return backend.verify(batch, params, other.case.policy, is_variation=True)

    backend.findings += found + _differences(inputs, output, found, again)


def check_sample(
    inputs: Inputs, batch_of: Callable[[Inputs], SampleBatch], backend: Watched
) -> Tensor:
    """The tokens that are drawn, compared with the oracle and perhaps with a variation's."""
    batch, params = batch_of(inputs), SamplingTensors.stack(inputs.params)
    output = backend.sample(batch, params)
    found = judge_sample(batch, params, output)

    def again(other: Inputs) -> Output:
        params = other.params_by_slot()
        return backend.sample(batch_of(other), params, is_variation=True)

    backend.findings += found + _differences(inputs, output, found, again)
    return output.token_ids


def _differences(
    inputs: Inputs, output: Output, found: Findings, again: Callable[[Inputs], Output]
) -> Findings:
    """What the case's variation shows, if the output can be looked at."""
    name = inputs.case.variation
    if name == "none" or not found.is_well_formed:
        return Findings()
    other, origins = varied(inputs)
    differences = in_another_batch(output, again(other), origins, name)
    return Findings(differences=(*differences,))
