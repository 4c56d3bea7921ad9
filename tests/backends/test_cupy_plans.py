"""A remembered plan packs, byte for byte, what a new job for the same batch would pack."""

from collections.abc import Iterator

import pytest
import torch

from acceptor.backends.cupy_backend.arguments import place, verify_job
from acceptor.backends.cupy_backend.params import pack
from acceptor.backends.cupy_backend.plan import Plan, Plans
from acceptor.backends.cupy_backend.shape import LaunchShape
from acceptor.backends.cupy_backend.workspace import Workspace
from acceptor.backends.inverse_maps import InverseMaps
from acceptor.core import (
    Block,
    Policy,
    Probabilistic,
    SamplingParams,
    SamplingTensors,
    Strict,
    Synthetic,
    Typical,
    VerifyBatch,
)
from acceptor.core.output import VerifyOutput

POLICIES = (Strict(), Probabilistic(), Block(), Synthetic([0.5, 0.25]), Typical())
SHAPE = LaunchShape(group=2, num_ctas=4)
CPU = torch.device("cpu")


def batches() -> Iterator[VerifyBatch]:
    """Every second one looks like an earlier one, but lies elsewhere."""
    id_map = torch.arange(40)
    for turn in range(24):
        num_reqs, vocab_size = 1 + turn // 2 % 2, 64 + turn // 4 % 2
        draft = torch.zeros(num_reqs, 3, 40)
        yield VerifyBatch.dense(
            target_logits=torch.zeros(num_reqs, 3, vocab_size),
            draft_token_ids=torch.zeros(num_reqs, 2, dtype=torch.int64),
            positions=torch.zeros(num_reqs, dtype=(torch.int32, torch.int64)[turn // 2 % 2]),
            draft_logits=None if turn // 8 == 1 else draft.to(torch.bfloat16),
            slot_ids=torch.arange(num_reqs) if turn // 2 % 3 == 0 else None,
            draft_to_target=id_map if turn >= 16 else None,
        )


def empty_output(batch: VerifyBatch) -> VerifyOutput:
    size = (batch.num_reqs, batch.max_spec_len + 1)
    integers = torch.zeros(2, batch.num_reqs, dtype=torch.int32)
    return VerifyOutput(
        torch.zeros(size, dtype=torch.int64), integers[0], integers[1], None, torch.zeros(size)
    )


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_a_plan_packs_what_a_job_would(policy: Policy) -> None:
    plans, inverses, found = Plans(), InverseMaps(), 0
    recipes = [
        SamplingTensors.stack([SamplingParams(seed=i, temperature=t) for i in range(n)])
        for n in (1, 2)
        for t in (0.0, 0.8)
    ]
    for batch in batches():
        for params in recipes[2 * batch.num_reqs - 2 : 2 * batch.num_reqs]:
            draft_map = inverses.of(batch.draft_to_target, batch.vocab_size)
            out, job = empty_output(batch), verify_job(batch, params, policy, draft_map)
            workspace = Workspace.for_extent(job.extent, CPU)
            plan = plans.find(batch, params, policy)
            found += plan is not None
            if plan is None:
                plan = Plan.of(job, SHAPE)
                plans.keep(batch, params, policy, plan)
            place(job.fields, job.extent, workspace)
            job.fields.update(SHAPE.fields(job.extent))
            job.fields["token_ids"] = out.token_ids.data_ptr()
            job.fields["num_accepted"] = out.num_accepted.data_ptr()
            job.fields["status"] = out.status.data_ptr()
            assert out.total_variation is not None
            job.fields["variation"] = out.total_variation.data_ptr()
            expected = pack(job.fields, job.numbers, job.rates)
            words = plan.argument(batch, draft_map, out, workspace)
            assert words.tobytes() == expected + bytes(8)
    assert found >= 20


def test_parameters_are_recognised_as_objects() -> None:
    plans, batch = Plans(), next(batches())
    params = [SamplingTensors.stack([SamplingParams(seed=1)]) for _ in range(2)]
    job = verify_job(batch, params[0], Probabilistic(), None)
    plans.keep(batch, params[0], Probabilistic(), Plan.of(job, SHAPE))
    assert plans.find(batch, params[0], Probabilistic()) is not None
    assert plans.find(batch, params[1], Probabilistic()) is None
    assert plans.find(batch, params[0], Block()) is None
