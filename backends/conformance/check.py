"""One case held to the contract from end to end; refuses to stop at the first difference."""

import torch

from ...core.batch import VerifyBatch
from ...core.ports import Sampler
from .case import Case
from .drafting import drafted_batch
from .findings import Difference, Findings
from .inputs import Inputs, make_inputs
from .judge import judge_verify
from .sampling import draw, plain_batch
from .twists import judge_twist
from .untouched import Snapshot


def check(case: Case, sampler: Sampler, device: torch.device) -> Findings:
    """Draw plainly, draft, verify, and compare everything.

    Raises:
        UnavailableError: the backend lacks the case's policy.
    """
    inputs = make_inputs(case, device)
    plain = draw(case, inputs, sampler, plain_batch(inputs))
    drafted = drafted_batch(case, inputs, sampler)
    verified = check_verify(case, inputs, drafted.batch, sampler)
    return plain.findings + drafted.findings + verified


def check_verify(case: Case, inputs: Inputs, batch: VerifyBatch, sampler: Sampler) -> Findings:
    """Verify a batch, compare with the oracle, and verify it again in another arrangement."""
    snapshot = Snapshot.of(batch, inputs.params)
    output = sampler.verify(batch, inputs.params, case.policy)
    modified = tuple(snapshot.differences())
    judged = judge_verify(batch, inputs.params, case.policy, output)
    twisted: tuple[Difference, ...] = ()
    if judged.is_well_formed:
        twisted = tuple(judge_twist(case, batch, inputs.wishes, output, sampler))
    return judged + Findings(differences=modified + twisted)
