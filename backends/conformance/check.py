"""One case held against the oracle from end to end; refuses to stop at the first difference."""

import torch

from ...core.batch import SampleBatch
from ...core.ports import Sampler
from .case import Case
from .drafting import draft
from .findings import Findings
from .inputs import Inputs, make_inputs
from .judge import judge_sample, judge_verify


def check(case: Case, sampler: Sampler, device: torch.device) -> Findings:
    """Draft, draw plainly, verify, and compare everything.

    Raises:
        UnavailableError: the backend lacks the case's policy.
    """
    inputs = make_inputs(case, device)
    drafted = draft(case, inputs, sampler)
    output = sampler.verify(drafted.batch, inputs.params, case.policy)
    judged = judge_verify(drafted.batch, inputs.params, case.policy, output)
    return drafted.findings + _check_plain_draw(inputs, sampler) + judged


def _check_plain_draw(inputs: Inputs, sampler: Sampler) -> Findings:
    batch = SampleBatch(
        logits=inputs.target_logits[inputs.cu_num_logits[:-1].long()],
        positions=inputs.positions,
        slot_ids=inputs.slot_ids,
        token_counts=inputs.token_counts,
    )
    return judge_sample(batch, inputs.params, sampler.sample(batch, inputs.params))
