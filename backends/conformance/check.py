"""A case held to the contract from end to end: drawn, drafted, verified, and compared."""

from collections.abc import Sequence

from attrs import define, evolve, field
from torch import Tensor

from ...core.batch import SampleBatch
from ...core.sampling_params import SamplingParams
from ...core.sampling_tensors import SamplingTensors
from .calls import Watched
from .case import Case
from .findings import Difference, Findings
from .inputs import make_inputs
from .judge import judge_sample, judge_verify
from .requests import Inputs
from .variations import differences_in_variation


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
        check_sample(self.case, self.inputs.plain_batch(), self.inputs.params, backend)
        must_be_drawn = _must_be_drawn(self.case)
        drafted = self._draft(backend) if must_be_drawn else self.inputs.with_arbitrary_drafts()
        self._drafted = self._drafted or drafted
        check_verify(self._drafted, backend)

    def _draft(self, backend: Watched) -> Inputs:
        columns = list[list[int]]()
        for place in range(1, max(self.case.num_draft_tokens, default=0) + 1):
            batch = self.inputs.draft_batch(place)
            # The other places differ in nothing that another batch could change.
            case = self.case if place == 1 else Case()
            columns.append(check_sample(case, batch, self.inputs.params, backend).tolist())
        rows = [*zip(*columns, strict=True)] if columns else [()] * len(self.inputs.requests)
        return self.inputs.with_drafts(rows)


def _must_be_drawn(case: Case) -> bool:
    # Where both models are certain of one token, a rejection is impossible, unless the draft was
    # arbitrary: then p - q is nothing but rounding, and there is no right answer.
    certain = case.logits in ("sharp", "large", "huge", "mixed") or case.has("extremes")
    return case.drafter != "one-hot" and (certain or not case.has("arbitrary drafts"))


def check_verify(inputs: Inputs, backend: Watched) -> None:
    """Verify a batch, compare with the oracle, and perhaps verify a variation of it."""
    batch, params = inputs.verify_batch(), SamplingTensors.stack(inputs.params)
    output = backend.verify(batch, params, inputs.case.policy)
    found = judge_verify(batch, params, inputs.case.policy, output)
    if inputs.case.variation != "none" and found.is_well_formed:
        found += Findings(differences=(*differences_in_variation(inputs, output, backend),))
    backend.findings += found


def check_sample(
    case: Case, batch: SampleBatch, wanted: Sequence[SamplingParams], backend: Watched
) -> Tensor:
    """The tokens that are drawn, compared with the oracle and perhaps with another order's."""
    params = SamplingTensors.stack(wanted)
    output = backend.sample(batch, params)
    found = judge_sample(batch, params, output)
    if case.variation != "none" and found.is_well_formed:
        expected = output.token_ids.tolist()
        got = _drawn_backwards(batch, wanted, backend)
        found += Findings(
            differences=tuple(
                Difference(request, 0, "drawn token in another order", str(want), str(token))
                for request, (want, token) in enumerate(zip(expected, got, strict=True))
                if want != token
            )
        )
    backend.findings += found
    return output.token_ids


def _drawn_backwards(
    batch: SampleBatch, wanted: Sequence[SamplingParams], backend: Watched
) -> list[int]:
    """Each request's token where the last one comes first."""
    backwards = evolve(
        batch,
        logits=batch.logits.flip(0),
        positions=batch.positions.flip(0),
        slot_ids=None if batch.slot_ids is None else batch.slot_ids.flip(0),
    )
    output = backend.sample(backwards, SamplingTensors.stack(wanted[::-1]), is_variation=True)
    token_ids: list[int] = output.token_ids.flip(0).tolist()
    return token_ids
