"""Filters and lossy policies of the Triton kernels, interpreted, over several blocks of tokens.

In processes of their own: the interpreter must be chosen before Triton is imported.
"""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

FILTERS = """
import torch
from acceptor.backends.reference import ReferenceSampler
from acceptor.backends.reference.thresholds import log_probs
from acceptor.backends.triton_backend import TritonSampler
from acceptor.backends.triton_backend.plan import plan_sample
from acceptor.core import *

V = 1300
noise = torch.Generator().manual_seed(7)
normal = 2 * torch.randn(V, generator=noise)
peaked = normal.clone()
peaked[torch.randint(V, (8,), generator=noise)] += torch.arange(6.0, 20.0, 1.75)
rare = torch.full((V,), -torch.inf)
rare[::97] = normal[::97]
rows = {
    "flat": normal * 0.02, "normal": normal, "peaked": peaked, "rounded": normal.round(),
    "equal": torch.zeros(V), "rare": rare, "huge": normal * 1e30,
}
recipes = [Recipe(temperature=t, **filters) for t, filters in (
    (1.0, dict(top_k=1)), (0.8, dict(top_k=50, top_p=0.9)), (0.8, dict(top_p=0.9)),
    (1.0, dict(top_k=V, top_p=0.5)), (1.0, dict(top_k=V - 1)), (0.7, dict(top_p=1e-6)),
    (1.5, dict(min_p=0.05, top_k=200, top_p=0.99)), (1.0, dict(min_p=1.0)),
    (2.0, dict(min_p=1e-3, top_p=0.7)), (1.0, dict(top_k=1100, top_p=0.95)),
)]
for number, (name, row) in enumerate(rows.items()):
    dtype = (torch.float32, torch.bfloat16)[number % 2]
    params = SamplingTensors.stack([
        SamplingParams(seed=i, temperature=r.temperature, min_p=r.min_p, top_k=r.top_k,
            top_p=r.top_p) for i, r in enumerate(recipes)])
    batch = SampleBatch(logits=row.to(dtype).repeat(len(recipes), 1),
        positions=torch.arange(len(recipes)))
    layout = plan_sample(batch, params, params.target).layout
    numbers = torch.zeros(layout.size)
    got = TritonSampler().sample(batch, params, workspace=numbers.view(torch.uint8)).token_ids
    start, _ = layout.parts["thresholds"]
    kept = batch.logits.float() >= numbers[start:start + len(recipes), None]
    law = log_probs(batch.logits.double(), params.target, torch.arange(len(recipes)))
    for i, recipe in enumerate(recipes):
        wanted = law[i] > -torch.inf
        assert torch.equal(kept[i] & (batch.logits[i] > -torch.inf), wanted), (
            name, dtype, recipe, int(kept[i].sum()), int(wanted.sum()))
    assert got.tolist() == ReferenceSampler().sample(batch, params).token_ids.tolist(), name
"""

OPEN_ROWS = """
import torch, triton.language as tl
from acceptor.backends.reference.thresholds import log_probs
from acceptor.backends.triton_backend import TritonSampler, filters, launch
from acceptor.backends.triton_backend.plan import plan_sample
from acceptor.core import *

V = 2600
noise = torch.Generator().manual_seed(7)
normal = 2 * torch.randn(V, generator=noise)
pairs = normal.clone()
pairs[torch.tensor([3, 4, 600, 601, 602, 2000, 2599])] = torch.tensor([12.0, 11, 11, 10, 13, 9, 9])
ties = normal.clone()
ties[::2] = 2.5
half, brain = torch.float16, torch.bfloat16
rows = [(normal, brain), (normal, half), (normal - 40, brain), (pairs, brain), (pairs, half),
    (ties, None), (ties, brain), (torch.zeros(V), brain), (normal * 1e-3, half),
    (normal * 1e-3, None), (normal * 1e30, brain), (normal * 1e30, None),
    (-torch.zeros(V), brain)]
recipes = [Recipe(temperature=t, **filters) for t, filters in (
    (0.8, dict(top_p=0.9)), (0.8, dict(top_k=50, top_p=0.9)), (1.0, dict(top_k=2500, top_p=0.999)),
    (1.5, dict(min_p=0.05, top_k=200, top_p=0.8)), (0.8, dict(min_p=1e-3)),
)]
params = SamplingTensors.stack([SamplingParams(seed=i, temperature=r.temperature, min_p=r.min_p,
    top_k=r.top_k, top_p=r.top_p) for i, r in enumerate(recipes)])
listed = []

def count_listed(kernel, grid, *args, **options):
    kernel[grid](*args, **options)
    if kernel.fn.__name__ == "filter_kernel":
        listed.append(int(args[6].listing[0]))

for row, dtype in rows:
    logits = row.to(dtype or torch.float32)
    batch = SampleBatch(logits=logits.repeat(len(recipes), 1), positions=torch.arange(len(recipes)))
    layout = plan_sample(batch, params, params.target).layout
    kept = {}
    for num_programs, most_copied in (1, 2), (99, 9):
        launch.OPEN_ROWS_PROGRAMS = num_programs
        filters.MOST_COPIED = tl.constexpr(most_copied)
        numbers = torch.zeros(layout.size)
        TritonSampler(count_listed).sample(batch, params, workspace=numbers.view(torch.uint8))
        assert not numbers[: layout.front_size].any()
        kept[num_programs] = [numbers[start:start + size].clone() for start, size in (
            layout.parts[part] for part in ("thresholds", "statistics", "summaries"))]
    assert all(map(torch.equal, kept[1], kept[99])), (row, dtype)
    law = log_probs(batch.logits.double(), params.target, torch.arange(len(recipes)))
    reached = batch.logits.float() >= kept[1][0][:len(recipes), None]
    assert torch.equal(reached & (batch.logits > -torch.inf), law > -torch.inf), (row, dtype)
    totals = torch.where(law > -torch.inf, batch.logits.float().sub(logits.max()), -torch.inf)
    totals = totals.div(params.target.temperature[:, None]).logsumexp(1)
    assert torch.allclose(kept[1][2].view(-1, 2)[:len(recipes), 1], totals, atol=1e-5), (row, dtype)
assert listed[:2] == [5, 5] and listed[6] < 5, listed
"""

MANY_BLOCKS = """
import torch
from acceptor.backends.reference.thresholds import log_probs
from acceptor.backends.triton_backend import TritonSampler
from acceptor.backends.triton_backend.plan import plan_sample
from acceptor.core import *

V = 50_257
noise = torch.Generator().manual_seed(3)
logits = 2 * torch.randn(5, V, generator=noise)
logits[1, 777] = 13.0
logits[2, 9000:9003] = torch.tensor([16.0, 15.0, 15.5])
logits[3, [5, 40_000]] = torch.tensor([17.0, 16.5])
logits[4] -= 20
recipes = [dict(temperature=1.3, top_p=0.95)] * 3 + [dict(temperature=0.8, top_k=50, top_p=0.9)] * 2
params = SamplingTensors.stack([SamplingParams(seed=i, **r) for i, r in enumerate(recipes)])
batch = SampleBatch(logits=logits.bfloat16(), positions=torch.arange(5))
layout = plan_sample(batch, params, params.target).layout
numbers = torch.zeros(layout.size)
TritonSampler().sample(batch, params, workspace=numbers.view(torch.uint8))
thresholds = numbers[layout.parts["thresholds"][0]:][:5]
summaries = numbers[layout.parts["summaries"][0]:][:10].view(5, 2)
wanted = log_probs(batch.logits.double(), params.target, torch.arange(5)) > -torch.inf
assert torch.equal(batch.logits.float() >= thresholds[:, None], wanted), wanted.sum(1)
kept = torch.where(wanted, batch.logits.double(), -torch.inf)
kept = (kept - kept.amax(1, True)) / params.target.temperature[:, None]
assert torch.allclose(summaries[:, 1], kept.logsumexp(1).float(), atol=1e-5)
"""

LOSSY = """
import torch
from acceptor.backends.reference import ReferenceSampler
from acceptor.backends.triton_backend import TritonSampler
from acceptor.core import *

R, K, V = 3, 2, 600
noise = torch.Generator().manual_seed(3)
scales = torch.tensor([0.1, 1, 3])[:, None, None]
target_logits = scales * torch.randn(R, K + 1, V, generator=noise)
draft_logits = target_logits[:, :K] + 0.5 * torch.randn(R, K, V, generator=noise)
positions = torch.arange(R) * 10
accepted = 0
recipes = [dict(), dict(top_k=40, top_p=0.9), dict(temperature=0.0)]
params = SamplingTensors.stack(
    [SamplingParams(seed=i, **recipe) for i, recipe in enumerate(recipes)])
for policy in Typical(), Typical(0.0, 0.5), RelaxedTopN(3, 0.9), Fly(0.1, 1):
    drafts = [ReferenceSampler().sample(SampleBatch(logits=draft_logits[:, i], draft_index=i + 1,
        positions=positions + i, draft_stream=policy.draft_stream), params).token_ids
        for i in range(K)]
    for dense in (True, False) if policy.name == "typical" else (True,):
        batch = VerifyBatch.dense(target_logits=target_logits, positions=positions,
            draft_token_ids=torch.stack(drafts, 1), draft_logits=draft_logits if dense else None)
        want = ReferenceSampler().verify(batch, params, policy)
        got = TritonSampler(overlap=True).verify(batch, params, policy)
        assert got.token_ids.tolist() == want.token_ids.tolist(), policy
        assert got.num_accepted.tolist() == want.num_accepted.tolist(), policy
        assert torch.allclose(got.total_variation, want.total_variation, atol=1e-5), policy
        accepted += int(want.num_accepted.sum())
assert accepted > 3
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [FILTERS, OPEN_ROWS, MANY_BLOCKS, LOSSY],
    ids=["few blocks", "open rows", "many blocks", "lossy policies"],
)
def test_the_interpreted_kernels_agree_with_the_reference(script: str) -> None:
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
