"""Triton's kernels in its interpreter beside the reference: `python -m kit.triton_on_host CHECK`.

A process of its own with `TRITON_INTERPRET=1`: the interpreter must be chosen before Triton is
imported. Programs run one after the other there, so nothing here says anything about races.
"""

import math
import sys
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import torch
from attrs import evolve
from torch import Tensor

from acceptor.app.bench.kernels.inputs import MIXED
from acceptor.backends.conformance import Case, run_case
from acceptor.backends.conformance.case import FEATURES
from acceptor.backends.conformance.inputs import make_inputs, target_rows
from acceptor.backends.conformance.run import in_another_batch
from acceptor.backends.reference import ReferenceSampler
from acceptor.backends.reference.statistics import adjust_logits
from acceptor.backends.reference.thresholds import log_probs
from acceptor.backends.triton_backend import TritonSampler, groups, launch, plan
from acceptor.backends.triton_backend.arguments import Call, stage_kernel
from acceptor.backends.triton_backend.launch import Launch, decision_launches, statistics_launches
from acceptor.backends.triton_backend.queue import MOST_ROUNDS
from acceptor.backends.triton_backend.thresholds.touched import MOST_NEAR, MOST_TOUCHED
from acceptor.backends.triton_backend.workspace import Layout
from acceptor.core import POLICIES, Block, Fly, Policy, RelaxedTopN, Synthetic, Typical
from acceptor.core.batch import SampleBatch, VerifyBatch
from acceptor.core.output import VerifyOutput
from acceptor.core.sampling_params import SamplingParams
from acceptor.core.sampling_tensors import SamplingTensors
from acceptor.core.token_counts import TokenCounts

ASKED = {"synthetic": Synthetic((0.9, 0.4)), "relaxed": RelaxedTopN(3, 0.9), "fly": Fly(0.1, 1)}
NUM_REQS, NUM_DRAFTS, VOCAB_SIZE, GUARD = 4, 2, 1304, 64
RECIPES: tuple[dict[str, Any], ...] = (
    {"temperature": 0.8, "top_p": 0.9},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 0.8, "top_k": 50, "top_p": 0.9},
    {"temperature": 1.0, "top_k": 1100, "top_p": 0.95},
    {"temperature": 0.7, "top_p": 1e-6},
    {"temperature": 1.5, "min_p": 0.05, "top_k": 200, "top_p": 0.99},
    {"temperature": 1.0, "min_p": 1.0},
    {"temperature": 2.0, "min_p": 1e-3, "top_p": 0.7},
    {"temperature": 1.0, "min_p": 0.02},
    {"temperature": 1e-4, "top_p": 0.3},
)
BAD = ("bad ids", "bad target rows")
ASKING = Case(
    vocab_size=VOCAB_SIZE,
    num_draft_tokens=(NUM_DRAFTS,) * NUM_REQS,
    logits="mixed",
    dtype="bfloat16",
    draft_dtype="bfloat16",
    features=frozenset(("temperature", "min-p", "top-k", "top-p", "greedy", *BAD)),
)


def rows(vocab_size: int, noise: torch.Generator) -> Mapping[str, Tensor]:
    """A row of each kind, float32."""
    standard = torch.randn((1, vocab_size), generator=noise)
    normal = 2 * standard[0]
    rare = torch.where(torch.arange(vocab_size) % 97 == 0, normal, -math.inf)
    # Logits at both ends of a half, few of them at one.
    ends, few = 2 + standard[0].abs() / 4096, torch.arange(vocab_size) % 20 == 0
    return {
        **{name: target_rows(name, standard, noise)[0] for name in MIXED},
        "sorted": normal.sort(descending=True).values,
        "equal": -torch.zeros(vocab_size),
        "rare": rare,
        "huge": normal * 1e30,
        "tiny": normal * 1e-3,
        "powers": -torch.logspace(-4, 1.5, vocab_size),
        "bottom": torch.where(few, ends + 1 / 80, ends),
        "top": torch.where(few, ends, ends + 1 / 80),
    }


def check_thresholds() -> Iterator[str]:
    """What is kept of every kind of row, of every dtype."""
    noise = torch.Generator().manual_seed(7)
    for vocab_size in (1300, 2600):
        for number, (kind, row) in enumerate(rows(vocab_size, noise).items()):
            dtype = (torch.bfloat16, torch.float32, torch.float16)[(number + vocab_size) % 3]
            yield from _wrong_thresholds(f"{kind} of {vocab_size}", row.to(dtype))
    yield from _wrong_thresholds("above a guess", torch.full((2600,), 62 + 2**-10))


def check_touched() -> Iterator[str]:
    """What is kept where few logits are not bfloat16's, and where they are one too many to list."""
    noise = torch.Generator().manual_seed(8)
    row = torch.randn(2600, generator=noise).bfloat16()
    MOST_TOUCHED.value = 2048
    for least, MOST_NEAR.value in product((8.5, -4.0), (1024, 64)):
        tokens, more = torch.randperm(2600, generator=noise)[:100], torch.rand(100, generator=noise)
        bias = zip(tokens.tolist(), (least + 8 + more / 64).tolist(), strict=True)
        flat = torch.where(row > 1, -7.5, -8.0).bfloat16()
        yield from _wrong_thresholds(f"touched from {least}", flat, logit_bias=tuple(bias))
    for number in (MOST_TOUCHED.value, MOST_TOUCHED.value + 1):
        counts = TokenCounts.empty(len(RECIPES), 2600)
        counts.prompt_mask[:, torch.randperm(2600, generator=noise)[:number]] = True
        yield from _wrong_thresholds(f"{number} seen", row, counts, repetition_penalty=1.1)


def _wrong_thresholds(
    name: str, row: Tensor, counts: TokenCounts | None = None, **changes: Any
) -> Iterator[str]:
    recipes = [SamplingParams(seed=i, **recipe, **changes) for i, recipe in enumerate(RECIPES)]
    params, numbers = SamplingTensors.stack(recipes), torch.arange(len(recipes))
    raw = row.repeat(len(recipes), 1)
    batch = SampleBatch(logits=raw, positions=numbers, token_counts=counts)
    logits = adjust_logits(batch, params, numbers, raw)
    layout = plan.plan_of(batch, params).layout
    workspace = torch.zeros(layout.size, dtype=torch.uint8)
    got = TritonSampler().sample(batch, params, workspace=workspace)
    law = log_probs(logits, params.target, numbers)
    tails = _records(layout, workspace)[:, -20:]
    reached = (logits >= tails[:, 2:3]) & (logits > -math.inf)
    for number in range(len(recipes)):
        if not torch.equal(reached[number], law[number] > -math.inf):
            yield f"{name}, {RECIPES[number]}: {int(reached[number].sum())} are kept"
    below = logits.double() - logits.amax(1, keepdim=True).double()
    kept = torch.where(reached, below, -math.inf)
    totals = (kept / params.target.temperature[:, None]).logsumexp(1)
    if not torch.allclose(tails[:, 1].double(), totals, atol=1e-5):
        yield f"{name}: log masses {tails[:, 1].tolist()}, not {totals.tolist()}"
    if got.token_ids.tolist() != ReferenceSampler().sample(batch, params).token_ids.tolist():
        yield f"{name}: {got.token_ids.tolist()}"
    most = int(_part(layout, workspace, "queue").bincount(minlength=2)[1:].max()) + 1
    if most > MOST_ROUNDS.value // 4:
        yield f"{name}: {most} rounds"
    if workspace[: layout.front_size].any():
        yield f"{name}: the front is not zero"


def _part(layout: Layout, workspace: Tensor, name: str) -> Tensor:
    first, size, dtype = layout.parts[name]
    return workspace[first : first + size].view(dtype)


def _records(layout: Layout, workspace: Tensor) -> Tensor:
    return _part(layout, workspace, "records").view(-1, layout.record_words)


def step(seed: int, *features: str) -> tuple[VerifyBatch, SamplingTensors]:
    """A batch of rows of all kinds, some spoilt."""
    case = evolve(ASKING, seed=seed, features=ASKING.features | {*features})
    inputs = make_inputs(case).with_arbitrary_drafts()
    return inputs.verify_batch(), SamplingTensors.stack(inputs.params)


def check_policies() -> Iterator[str]:
    """Every policy where requests ask for everything."""
    how: dict[str, Any] = {"vocab_size": 700, "num_draft_tokens": (NUM_DRAFTS,) * NUM_REQS}
    how |= {"logits": "mixed", "dtype": "bfloat16", "features": frozenset(FEATURES)}
    for seed, policy in enumerate({**POLICIES, **ASKED}.values()):
        drafter = "one-hot" if seed % 2 else "same"
        yield from _wrong(
            Case(seed=seed, policy=policy, drafter=drafter, variation="in part", **how)
        )
    # Few tokens: many drafts are biased, or come again.
    few: dict[str, Any] = {"vocab_size": 9, "num_draft_tokens": (NUM_DRAFTS,) * 9}
    yield from _wrong(Case(seed=1, features=frozenset(("penalties", "bias")), **few))
    # A greedy draft is the lowest draft id of those tied, in whatever block.
    tied = frozenset(("greedy", "draft recipe", "equal drafter"))
    shape: dict[str, Any] = {"vocab_size": 1500, "num_draft_tokens": (1,) * 6}
    yield from _wrong(Case(logits="constant", drafter="permuted", features=tied, **shape))


def _wrong(case: Case) -> Iterator[str]:
    yield from map(str, run_case(case, TritonSampler(), torch.device("cpu")).unexplained)


def _differences(name: str, got: VerifyOutput, want: VerifyOutput) -> Iterator[str]:
    yield from map(str, in_another_batch(want, got, range(NUM_REQS), name))
    if got.logprobs is not None and want.logprobs is not None:
        ids = got.logprobs.top_token_ids
        if not torch.equal(ids, want.logprobs.top_token_ids):
            yield f"{name}: {ids.tolist()} are most likely"


def check_shards() -> Iterator[str]:
    """Decisions from block statistics of two shards that do not align with blocks."""
    policy = Block()
    batch, params = step(11)
    want = TritonSampler().verify(batch, params, policy)
    made = plan.plan_of(batch, params, policy)
    call, out, records = _call(made, batch, params, want)
    shares = []
    for first, last in ((0, 700), (700, VOCAB_SIZE)):
        shard = evolve(
            batch,
            target_logits=_only(batch.target_logits, first, last),
            draft_logits=_only(batch.draft_logits, first, last),
        )
        of_shard, _out, its_records = _call(made, shard, params, want)
        _start(statistics_launches(made, 1), of_shard)
        shares.append(its_records)
    words = (made.layout.record_words - 20) // 2
    inverse = _inverses(made, params)
    largest = torch.maximum(*(share[:, :words] for share in shares))
    masses = [
        share[:, words : 2 * words]
        * ((share[:, :words] - largest.clamp(min=-1e38)) * inverse).exp()
        for share in shares
    ]
    records[:, :words] = largest
    records[:, words : 2 * words] = masses[0] + masses[1]
    _start(decision_launches(made, 1), call)
    yield from _differences(f"{policy.name} of shards", out, want)


def _start(launches: Iterator[Launch], call: Call) -> None:
    for stage, programs, rest, options in launches:
        launch.start(stage_kernel, (programs, 1, 1), call, rest, stage, **options)


def _only(logits: Tensor | None, first: int, last: int) -> Tensor:
    assert logits is not None
    inside = torch.arange(logits.shape[-1])
    # What makes a row useless does so in every shard.
    there = ((inside >= first) & (inside < last)) | logits.isnan()
    return torch.where(there, logits, -math.inf)


def _inverses(made: plan.Plan, params: SamplingTensors) -> Tensor:
    recipes = [params.target] * (NUM_DRAFTS + 1) + [params.draft] * NUM_DRAFTS
    temperatures = torch.stack([recipe.temperature for recipe in recipes], 1)
    inverses = 1 / torch.where(temperatures == 0, 1.0, temperatures)
    return inverses[:, : made.variant.num_rows].reshape(-1, 1)


def _call(
    made: plan.Plan, batch: VerifyBatch, params: SamplingTensors, like: VerifyOutput
) -> tuple[Call, VerifyOutput, Tensor]:
    workspace = torch.zeros(made.layout.size, dtype=torch.uint8)
    names = ("token_ids", "num_accepted", "status")
    sevens = {name: torch.full_like(getattr(like, name), 7) for name in names}
    out = evolve(like, logprobs=None, total_variation=None, **sevens)
    parts = groups.batch_part(batch), groups.params_part(params), groups.output_part(out)
    call = Call.of(groups.make_call(made, [part.groups for part in parts], workspace, None))
    return call, out, _records(made.layout, workspace)


def check_launches() -> Iterator[str]:
    """The same bits whatever the number of programs, in a kept workspace and not beside it."""
    policies: tuple[Policy, ...] = (Block(), Typical())
    for policy, programs in product(policies, (1, 5)):
        launch.PROGRAMS_PER_PROCESSOR = launch.COUNTS_PER_PROCESSOR = programs
        batch, params = step(21, "logprobs")
        sampler = TritonSampler()
        size = sampler.verify_workspace_size(batch, params, policy)
        memory = torch.full([size + 2 * GUARD], 7, dtype=torch.uint8)
        workspace = memory[GUARD : GUARD + size].zero_()
        outputs = [sampler.verify(batch, params, policy, workspace=workspace) for _ in range(2)]
        if not (memory[:GUARD] == 7).all() or not (memory[-GUARD:] == 7).all():
            yield f"{policy.name}: something was written beside the workspace"
        if programs == 1:
            first = outputs[0]
        for output in outputs:
            yield from _differences(f"{policy.name} by {programs}", output, first)


def main() -> int:
    wrong = list(globals()[f"check_{sys.argv[1]}"]())
    for line in wrong:
        sys.stdout.write(f"{line}\n")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
