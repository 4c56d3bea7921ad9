"""One case held to the contract from end to end; refuses to stop at the first difference."""

from collections.abc import Sequence

import torch

from ...core.batch import VerifyBatch
from ...core.ports import Sampler
from ...core.sampling_params import SamplingParams
from .case import Case
from .drafting import drafted_batch
from .findings import Difference, Findings
from .inputs import make_inputs
from .judge import judge_verify
from .moved import stacked
from .sampling import draw, plain_batch
from .twists import judge_twist
from .untouched import Snapshot


def check(case: Case, sampler: Sampler, device: torch.device) -> Findings:
    """Draw plainly, draft, verify, and compare everything.

    Raises:
        UnavailableError: the backend lacks the case's policy.
    """
    inputs = make_inputs(case, device)
    plain = draw(case, plain_batch(inputs), inputs.wishes, sampler)
    drafted = drafted_batch(case, inputs, sampler)
    verified = check_verify(case, drafted.batch, inputs.wishes, sampler)
    return plain.findings + drafted.findings + verified


def check_verify(
    case: Case, batch: VerifyBatch, wishes: Sequence[SamplingParams], sampler: Sampler
) -> Findings:
    """Verify a batch, compare with the oracle, and verify it again in another arrangement."""
    params = stacked(wishes, batch.target_logits.device)
    snapshot = Snapshot.of(batch, params)
    output = sampler.verify(batch, params, case.policy)
    modified = tuple(snapshot.differences())
    judged = judge_verify(batch, params, case.policy, output)
    twisted: tuple[Difference, ...] = ()
    if judged.is_well_formed:
        twisted = tuple(judge_twist(case, batch, wishes, output, sampler))
    return judged + Findings(differences=modified + twisted)
