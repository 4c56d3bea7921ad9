"""Later calls of a kind launch what Triton would launch, without asking it; others do ask.

In processes of their own: they take the place of Triton's driver.
"""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

SETUP = """
import torch
from kit.triton_launches import Counter, launches
from acceptor.backends.triton_backend import TritonSampler, sampler as module
from acceptor.core import *

# Samplers that are compared must not invert the same map into different memory.
inverses = module.InverseMaps()
module.InverseMaps = lambda: inverses

def recipe(seed, **wishes):
    return SamplingParams(seed=seed, **{"temperature": 0.8, **wishes})

def moved(tensor, by=1):
    storage = tensor.new_zeros(tensor.numel() + by)
    return storage[by:].view(tensor.shape)

def verify(R=2, K=3, V=1024, policy=Probabilistic(), logits=torch.bfloat16, ids=torch.int64,
        positions=torch.int64, slots=None, drafts=True, draft_V=None, draft_stride=0, mapped=False,
        counts=False, rows=0, pad=0, ids_pad=0, recipes=(), words=0, change=None, **wishes):
    counted = TokenCounts.empty(R, V) if counts else None
    given = dict(target_logits=torch.zeros(R * (K + 1) + rows, V + pad, dtype=logits)[:, :V],
        cu_num_logits=torch.arange(R + 1, dtype=torch.int32) * (K + 1),
        draft_token_ids=torch.zeros(R, K + ids_pad, dtype=ids)[:, :K],
        positions=torch.zeros(R, dtype=positions),
        slot_ids=None if slots is None else torch.arange(R, dtype=slots), token_counts=counted)
    if drafts:
        size = draft_V or V
        given["draft_logits"] = torch.zeros(R, K + draft_stride, size, dtype=logits)
        given["draft_to_target"] = torch.arange(size) if mapped else None
    params = SamplingTensors.stack(
        [recipe(i, **{**wishes, **dict(recipes[i:i + 1] and recipes[i])}) for i in range(R)])
    if change is not None:
        given[change] = moved(given[change])
    batch = VerifyBatch(**given)
    sampler = TritonSampler(launch=lambda *_, **__: None)
    out = sampler.verify(batch, params, policy)
    size = sampler.verify_workspace_size(batch, params, policy) + 4 * words
    return "verify", (batch, params, policy), dict(workspace=torch.zeros(size).byte(), out=out)

def sample(R=2, V=1024, logits=torch.bfloat16, index=None, stream=Stream.DRAFT, target_V=None,
        change=None, **wishes):
    given = dict(logits=torch.zeros(R, V, dtype=logits), positions=torch.zeros(R, dtype=int))
    if change is not None:
        given[change] = moved(given[change])
    batch = SampleBatch(draft_index=index, draft_stream=stream, target_vocab_size=target_V,
        draft_to_target=None if target_V is None else torch.arange(V), **given)
    params = SamplingTensors.stack([recipe(i, **wishes) for i in range(R)])
    sampler = TritonSampler(launch=lambda *_, **__: None)
    out = sampler.sample(batch, params)
    size = sampler.sample_workspace_size(batch, params)
    return "sample", (batch, params), dict(workspace=torch.zeros(size).byte(), out=out)

def launched(sampler, call):
    name, args, kept = call
    launches.clear()
    getattr(sampler, name)(*args, **kept)
    return list(launches)
"""

PAIRS = """
greedy = dict(temperature=0.0)
penal = dict(presence_penalty=0.5, counts=True)
kinds = [(verify, wishes) for wishes in (
    {}, dict(policy=Block()), dict(policy=Strict()), dict(policy=Synthetic((0.5, 0.5))),
    dict(policy=Synthetic((0.5, 0.25))), dict(policy=Typical()), dict(policy=Typical(0.09, 0.5)),
    dict(policy=RelaxedTopN()), dict(policy=Fly()), dict(policy=Fly(window=1)),
    dict(R=1), dict(R=16), dict(K=0), dict(K=1), dict(K=2), dict(V=1), dict(V=1000), dict(V=1008),
    dict(V=513), dict(V=2048), dict(pad=16), dict(pad=1), dict(ids_pad=1), dict(ids_pad=13),
    dict(logits=torch.float16), dict(logits=torch.float32), dict(ids=torch.int32),
    dict(positions=torch.int32), dict(slots=torch.int64), dict(slots=torch.int32),
    dict(drafts=False), dict(draft_V=1000), dict(draft_V=512), dict(draft_V=512, mapped=True),
    dict(mapped=True), dict(draft_stride=1), dict(draft_stride=16), dict(counts=True), penal,
    dict(penal, V=1000), dict(logit_bias={1: 2.0}), dict(logit_bias={1: 2.0, 3: 1.0}),
    dict(top_k=5), dict(top_p=0.9), dict(min_p=0.1), dict(top_k=5, top_p=0.9),
    dict(recipes=(greedy,)), greedy, dict(greedy, policy=Typical()), dict(logprobs=0),
    dict(logprobs=1), dict(logprobs=16), dict(words=4))]
kinds += [(sample, wishes) for wishes in (
    {}, dict(R=1), dict(V=1000), dict(logits=torch.float32), dict(index=1), dict(index=2),
    dict(index=1, stream=Stream.TARGET), dict(index=2, stream=Stream.TARGET),
    dict(index=1, target_V=2000), dict(index=1, target_V=2048), dict(top_k=3), greedy,
    dict(logprobs=2))]

everything = [make(**wishes) for make, wishes in kinds]
wanted = [launched(TritonSampler(), call) for call in everything]
again = [make(**wishes) for make, wishes in kinds]
wanted_again = [launched(TritonSampler(), call) for call in again]

for first, (make, wishes) in zip(everything, kinds):
    for second, want, others in zip(everything, wanted, kinds):
        counter = Counter()
        sampler = TritonSampler(launch=counter)
        launched(sampler, first)
        asked = counter.count
        assert launched(sampler, second) == want, (wishes, others)
        assert (counter.count == asked) == (first is second), (wishes, others)

counter = Counter()
sampler = TritonSampler(launch=counter)
for call, want in zip(everything, wanted):
    assert launched(sampler, call) == want
asked = counter.count
for call, want, other in zip(again, wanted_again, wanted):
    got = launched(sampler, call)
    assert got == want and got != other
assert counter.count == asked

assert launched(sampler, make_more := verify(rows=5)) == launched(TritonSampler(), make_more)
assert counter.count == asked, "rows that belong to nobody make no other kind"
"""

ALIGNMENT = """
names = "target_logits", "cu_num_logits", "draft_token_ids", "positions", "draft_logits"
for dtype in torch.bfloat16, torch.float32:
    for make, change in [*[(verify, name) for name in names], (sample, "logits")]:
        aligned, unaligned = make(logits=dtype), make(logits=dtype, change=change)
        want = [launched(TritonSampler(), call) for call in (aligned, unaligned)]
        assert want[0][0].kernel != want[1][0].kernel or want[0][-1].kernel != want[1][-1].kernel
        for calls in (aligned, unaligned), (unaligned, aligned):
            counter = Counter()
            sampler = TritonSampler(launch=counter)
            for number, call in enumerate(calls, 1):
                assert launched(sampler, call) == want[call is unaligned], change
                assert counter.count == number * len(want[0])
            launched(sampler, unaligned)
            launched(sampler, aligned)
            assert counter.count == 3 * len(want[0])
"""

HOOKS = """
from triton import knobs
counter = Counter()
sampler = TritonSampler(launch=counter)
call = verify()
want = launched(sampler, call)
listener = lambda *_: None
for hook in knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook:
    before = counter.count
    hook.add(listener)
    assert launched(sampler, call) == want and counter.count == before + len(want)
    hook.remove(listener)
    assert launched(sampler, call) == want and counter.count == before + len(want)
"""

DRIVER = """
from kit.triton_launches import NoDevice, errors
counter = Counter()
sampler = TritonSampler(launch=counter)
call = verify()
want = launched(sampler, call)
for calls, refusal in enumerate((0, 201, 0, 201), 1):
    errors[:] = [refusal] * (refusal > 0)
    assert launched(sampler, call) == want, "a thread that has not met the driver"
    assert counter.count == len(want) * (1 + calls // 2)
errors[:] = 0, 700
try:
    launched(sampler, call)
except UnavailableError as error:
    assert "700" in str(error)
else:
    raise AssertionError("half a call went unnoticed")
asked = counter.count
NoDevice.get_current_stream = lambda self, device: 9
assert [launch.stream for launch in launched(sampler, call)] == [9] * len(want)
assert launched(sampler, verify()) != launched(sampler, call) and counter.count == asked
"""

ALLOCATED = """
counter = Counter()
sampler = TritonSampler(launch=counter)
for R in 2, 6000:
    name, args, _ = verify(R=R, K=1, V=4)
    first = sampler.verify(*args)
    asked = counter.count
    again = sampler.verify(*args)
    assert counter.count == asked and again.token_ids.data_ptr() != first.token_ids.data_ptr()
    assert again.token_ids.shape == (R, 2) and launches[-1].grid == (R, 1, 1)

name, args, kept = verify(R=6000, K=1, V=4)
sampler.verify(*args, **kept)
asked = counter.count
kept["workspace"].fill_(1)
sampler.verify(*args, **kept)
assert counter.count == asked and not kept["workspace"][:24000].any(), "a large front is cleared"

batch, params, policy = args
try:
    sampler.verify(*args, workspace=kept["workspace"][:-4].clone())
except InvalidInputError as error:
    assert "workspace" in str(error)
else:
    raise AssertionError("a short workspace was taken after a long one")
few = SamplingTensors.stack([recipe(0)])
try:
    sampler.verify(batch, few, policy)
except InvalidInputError as error:
    assert "params.seeds" in str(error)
else:
    raise AssertionError("parameters of another batch were taken")
"""

OVERLAP = """
from kit.triton_launches import NoDevice
usual = dict(top_p=0.9, logprobs=1)
stages = {
    "strict": (Strict(), {}, [False, True]),
    "probabilistic": (Probabilistic(), {}, [False, True]),
    "block": (Block(), usual, [False, True, True, True, True, False]),
    "typical": (Typical(), usual, [False, True, True, False, False, False]),
}
for capability in 80, 90, 100:
    NoDevice.capability = capability
    for policy, wishes, behind_another in stages.values():
        call = verify(policy=policy, **wishes)
        for overlap in False, True:
            counter = Counter()
            sampler = TritonSampler(launch=counter, overlap=overlap)
            for _ in range(2):
                got = [launch.behind_another for launch in launched(sampler, call)]
                can = overlap and capability >= 90
                assert got == [can and behind for behind in behind_another], (capability, policy)
            assert counter.count == len(behind_another)
            kernels = {launch.kernel for launch in launches}
            if overlap:
                assert bool(kernels - without) == can
            without = kernels
    from acceptor.backends.triton_backend import launch
    for name in "statistics", "filter", "open_rows", "block_residual", "draw":
        getattr(launch, name + "_kernel").device_caches.clear()
"""


EVERY_TENSOR = """
cut = dict(min_p=0.1, top_k=5, top_p=0.9)
call = verify(policy=Typical(), slots=torch.int64, draft_V=512, mapped=True, counts=True,
    repetition_penalty=1.5, logit_bias={1: 2.0}, logprobs=1, draft=Recipe(**cut), **cut)
counter = Counter()
sampler = TritonSampler(launch=counter)
first = launched(sampler, call)
asked = counter.count
assert launched(sampler, call) == first and counter.count == asked > 0
"""


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(PAIRS, id="pairs of kinds", marks=pytest.mark.slow),
        pytest.param(ALIGNMENT, id="alignment"),
        pytest.param(HOOKS, id="hooks"),
        pytest.param(DRIVER, id="driver"),
        pytest.param(ALLOCATED, id="allocated"),
        pytest.param(OVERLAP, id="overlap"),
        pytest.param(EVERY_TENSOR, id="every tensor"),
    ],
)
def test_later_calls_launch_what_triton_would(script: str) -> None:
    environment = {**os.environ, "PYTHONPATH": "tests", "OMP_NUM_THREADS": "1"}
    environment.pop("TRITON_INTERPRET", None)
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SETUP + script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
