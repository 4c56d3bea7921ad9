"""The CUDA kernels, built by g++ and run on the CPU, conform, for adversarial logits, too."""

import math
import random
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor

from acceptor.backends import load_sampler
from acceptor.backends.conformance import Case, Generator, judge_verify, run_case
from acceptor.backends.conformance.case import CROWDS
from acceptor.backends.conformance.inputs import make_inputs
from acceptor.core import POLICIES, LogprobsMode, Policy, Probabilistic, RelaxedTopN, Typical
from acceptor.core.allowed_tokens import pack_allowed
from acceptor.core.batch import SampleBatch, VerifyBatch
from acceptor.core.output import Status
from acceptor.core.sampling_params import SamplingParams
from acceptor.core.sampling_tensors import BiasTensors, SamplingTensors
from acceptor.core.token_counts import TokenCounts
from kit.batches import dense, stacked
from kit.cuda_on_host import GXX
from kit.cupy_on_host import HostSampler

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GXX is None, reason="builds the kernels with g++"),
]
REFERENCE, CPU = load_sampler("reference"), torch.device("cpu")
FILTERS = frozenset(("temperature", "min-p", "top-k", "top-p"))
FORBIDDEN = 3_070
Call = tuple[VerifyBatch, SamplingTensors, Policy]


def assert_conformant(case: Case, **how: int) -> None:
    found = run_case(case, HostSampler(**how), CPU)
    assert not found.unexplained, "\n".join(map(str, found.unexplained))


def verification(case: Case, **changed: Any) -> Call:
    inputs = make_inputs(case).with_arbitrary_drafts()
    params = [evolve(one, **changed) for one in inputs.params]
    return inputs.verify_batch(), SamplingTensors.stack(params), case.policy


def assert_right(call: Call, **how: Any) -> None:
    found = judge_verify(*call, HostSampler(**how).verify(*call))
    assert not found.unexplained, "\n".join(map(str, found.unexplained))


@pytest.mark.parametrize("policy", POLICIES)
def test_any_batch_is_verified_and_drawn_as_the_contract_says(policy: str) -> None:
    torch.set_num_threads(1)
    cases = Generator((policy,), 4096).cases(0, 16)
    # A crowd takes the host minutes.
    small = (case for case in cases if len(case.num_draft_tokens) < CROWDS[0])
    for number, case in enumerate(small):
        # Threads and CTAs in any order; long pieces of rows, and short ones.
        assert_conformant(case, room=(1, 1000)[number % 2], schedule=number % 3)
    assert_conformant(Case(policy=POLICIES[policy], num_draft_tokens=()))


@pytest.mark.parametrize("policy", [Typical(), RelaxedTopN(3, 0.6)])
def test_a_draft_may_end_at_any_time_while_rows_behind_are_judged(policy: Policy) -> None:
    case = Case(seed=1, vocab_size=33, num_draft_tokens=(3,) * 4, policy=policy)
    for schedule in range(1, 41):
        assert_right(verification(case), schedule=schedule)


def test_a_draft_may_end_at_any_time_while_rows_behind_are_searched() -> None:
    shape: dict[str, Any] = {"vocab_size": 6_400, "num_draft_tokens": (3,) * 3}
    features = FILTERS | {"allowed tokens"}
    case = Case(seed=1, dtype="float16", logits="ties", features=features, **shape)
    for schedule in range(1, 13):
        assert_right(verification(case), schedule=schedule)


@pytest.mark.parametrize("logits", ["lm", "zipf", "flat", "sharp", "ties", "constant", "masked"])
def test_rows_of_many_blocks_are_filtered(logits: str) -> None:
    features = FILTERS | ({"masked"} if logits == "masked" else set())
    kind = "lm" if logits == "masked" else logits
    shape: dict[str, Any] = {"vocab_size": 20_001, "num_draft_tokens": (1, 1, 0)}
    case = Case(policy=Probabilistic(), dtype="bfloat16", logits=kind, features=features, **shape)
    assert_conformant(case)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("schedule", range(4))
def test_greedy_batches_take_the_first_of_the_largest_logits(dtype: str, schedule: int) -> None:
    changes: list[set[str]] = [set(), {"allowed tokens"}, {"bias", "penalties"}]
    features = frozenset(changes[schedule % 3] | {"bad target rows", "bad ids"})
    # Rows that are read by whole vectors, and others.
    vocab_size, logits = (20_000, 3_001)[schedule % 2], ("ties", "constant", "lm")[schedule % 3]
    shape: dict[str, Any] = {"vocab_size": vocab_size, "num_draft_tokens": (40, 3, 0, 1)}
    case = Case(seed=schedule, dtype=dtype, logits=logits, features=features, **shape)
    batch, params, _policy = verification(case, temperature=0.0)
    batch.draft_token_ids[0] = batch.target_logits[:40].argmax(-1)
    assert_right((batch, params, Probabilistic()), room=(1, 1000)[schedule % 2], schedule=schedule)


# Rows that are read by whole vectors, and end in the first half of a block.
SHORT: dict[str, Any] = {"vocab_size": 3_080, "num_draft_tokens": (3,) * 3}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("features", [FILTERS, {"penalties"}, {"penalties", "allowed tokens"}])
def test_a_block_may_hold_hundreds_of_biases(features: Any, dtype: str, temperature: float) -> None:
    biases = {i: i % 7 - 3.0 for i in range(900, 480, -1)}
    case = Case(dtype=dtype, logits="flat", features=frozenset(features), **SHORT)
    batch, params, strict = verification(case, temperature=temperature, logit_bias=biases)
    batch.draft_token_ids.copy_(torch.arange(480, 1010, 60).view(3, 3))
    for policy in (strict, Probabilistic()):
        assert_right((batch, params, policy), room=1)


def test_a_bias_may_have_any_place_in_its_row_and_any_id() -> None:
    token_ids = torch.full((2, 2**21 + 8), -1).index_fill(1, torch.tensor(2**21), 7)
    # No token, but where the next request's seventh would be, as rows end with their blocks.
    token_ids[0] = token_ids[0].where(token_ids[0] < 0, 2 * 512 + 7)
    bias = BiasTensors(token_ids=token_ids, values=torch.where(token_ids == 7, 40.0, 0.0))
    batch = dense(torch.zeros(2, 2, 600), [[7], [7]])
    assert_right((batch, evolve(stacked(2), bias=bias), Probabilistic()), schedule=1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_masks_hide_neither_nan_nor_infinity(dtype: str) -> None:
    features = frozenset(("allowed tokens", *FILTERS))
    for seed, value in enumerate((0.0, math.nan, math.inf)):
        case = Case(seed=seed, policy=Probabilistic(), dtype=dtype, features=features, **SHORT)
        batch, params, policy = verification(case)
        assert batch.allowed_tokens is not None
        batch.target_logits[0, FORBIDDEN] = value
        batch.allowed_tokens[0, FORBIDDEN // 32] = 0
        assert_right((batch, params, policy), room=1)
        status = HostSampler(room=1).verify(batch, params, policy).status[0]
        assert bool(status & Status.TARGET_LOGITS_INVALID) == (value != 0.0)


@pytest.mark.parametrize("policy", ["probabilistic", "block", "fly"])
def test_a_workspace_serves_batches_of_any_size_in_turn(policy: str) -> None:
    calls = [verification(case) for case in Generator((policy,), 4096).cases(2, 2)]
    sampler = HostSampler()
    size = max(sampler.verify_workspace_size(*call) for call in calls)
    workspace = torch.zeros(size + 320, dtype=torch.uint8)
    for call in (*calls, *reversed(calls)):
        found = judge_verify(*call, sampler.verify(*call, workspace=workspace))
        assert not found.unexplained


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_temperatures_tell_logits_apart_that_share_a_count(dtype: torch.dtype) -> None:
    noise = torch.Generator().manual_seed(0)
    for temperature in (1e-30, 1e-27, 1.0):
        logits = (1e-27 * torch.rand(2, 600, generator=noise)).to(dtype)
        requests = [SamplingParams(temperature=temperature, top_p=0.9, seed=i) for i in range(2)]
        assert_drawn_alike(logits, requests)


def test_a_share_may_end_among_the_smallest_magnitudes() -> None:
    rows = torch.tensor([[0.0, -9984.0], [-3e-30, 0.0], [0.0, 0.0], [1e-20, -1e-20]])
    wanted = [SamplingParams(seed=s, temperature=1e6, min_p=0.9999, top_p=0.5) for s in range(4)]
    assert_drawn_alike(rows.bfloat16(), wanted)


@pytest.mark.parametrize("small", [[0.0], [-0.0, 0.0, 0.0], [1e-6], [-1e-6], [1e-6, 0.0, -1e-6]])
def test_a_row_may_have_logits_near_zero_that_weigh_most(small: list[float]) -> None:
    noise = torch.Generator().manual_seed(len(small))
    rows = -1.1 * (2 + torch.rand(24, 2_000, generator=noise) * 2_000).log()
    rows[:, 700 : 700 + len(small)] = torch.tensor(small)
    recipes = [{"top_p": 0.9}, {"top_p": 0.05}, {"top_k": 2}, {"min_p": 0.99}]
    recipes += [{"top_k": 5, "top_p": 0.7}, {"min_p": 0.2, "top_p": 0.5}]
    wanted = [SamplingParams(seed=s, **recipes[s % 6]) for s in range(24)]  # type: ignore[arg-type]
    assert_drawn_alike(rows.bfloat16(), wanted)


def test_a_share_may_end_where_a_guess_began() -> None:
    noise = torch.Generator().manual_seed(0)
    row = 8 + torch.randint(0, 8, (24_000,), generator=noise) / 16
    row += 1e-3 * torch.rand(row.shape, generator=noise)
    wanted = [SamplingParams(seed=s, top_p=0.7933540344238281) for s in range(40)]
    assert_drawn_alike(row.repeat(40, 1), wanted)


def assert_drawn_alike(logits: torch.Tensor, wanted: list[SamplingParams]) -> None:
    batch = SampleBatch(logits=logits, positions=torch.arange(len(logits)))
    params = SamplingTensors.stack(wanted)
    got, expected = HostSampler().sample(batch, params), REFERENCE.sample(batch, params)
    assert torch.equal(got.token_ids, expected.token_ids)


def accepted_of_one_draft(row: list[float], draft: int, policy: Policy) -> list[list[int]]:
    """By the kernels and by the reference."""
    batch = dense(torch.tensor([[row, [0.0] * len(row)]]), [[draft]])
    samplers = (HostSampler(), REFERENCE)
    return [s.verify(batch, stacked(1), policy).num_accepted.tolist() for s in samplers]


def test_logits_rank_tokens_whose_probabilities_tie() -> None:
    for top_n, accepted in ((3, 1), (2, 0)):
        policy = RelaxedTopN(top_n, 0.5)
        assert accepted_of_one_draft([1e-30, 0.0, -1e-30], 2, policy) == [[accepted]] * 2


@pytest.mark.parametrize("policy", [RelaxedTopN(2, 1.0), Typical(0.0, 0.3)])
def test_what_weighs_less_than_any_float_may_be_accepted(policy: Policy) -> None:
    assert accepted_of_one_draft([0.0, -200.0, -300.0], 1, policy) == [[1], [1]]
    assert accepted_of_one_draft([0.0, -torch.inf, -torch.inf], 1, policy) == [[0], [0]]


NUM_REQS = 2
KINDS = ("flat", "huge", "near", "nearer", "wide", "low", "few", "two", "peaks", "zeros", "small")


def rows_of(kind: str, vocab_size: int, noise: torch.Generator) -> Tensor:
    x = torch.randn(NUM_REQS, vocab_size, generator=noise)
    share = torch.rand(x.shape, generator=noise)
    kinds = {
        "flat": x,
        "huge": 1000 * x,
        "near": 20 + 1e-3 * x,
        "nearer": 5 + 1e-6 * x,
        "wide": x.sign() * 10 ** (9.5 * share - 8),
        "low": 3 * x - 50,
        "few": x.masked_fill(share < 0.7, -math.inf),
        "two": torch.where(x > 0, 1.0, 1.0000001),
        "peaks": -2 * share.log(),
        "zeros": x.clamp(max=0),
        "small": torch.where(share < 0.01, 1e-5 * (100 * share) ** 40 * x, x - 4),
    }
    return kinds[kind]


def params_of(rnd: random.Random, vocab_size: int) -> SamplingParams:
    wanted: dict[str, Any] = {"temperature": rnd.choice([1.0, 0.8, 0.05, 1e-3, 3.0])}
    if rnd.random() < 0.6:
        wanted["top_p"] = rnd.choice([0.9, 0.5, 0.1, 0.99, 0.999, 0.3])
    if rnd.random() < 0.4:
        wanted["top_k"] = rnd.choice([1, 5, 256, 257, 600, 2000])
    if rnd.random() < 0.3:
        wanted["min_p"] = rnd.choice([0.5, 0.05, 1e-3, 0.9])
    if rnd.random() < 0.4:
        wanted["repetition_penalty"] = rnd.choice([1.1, 0.9, 1e6, 1e-6])
    if rnd.random() < 0.3:
        wanted |= {"frequency_penalty": rnd.choice([0.3, -0.2]), "presence_penalty": 0.25}
    if rnd.random() < 0.3:
        # So few that no ids are marked before rows are read, or more.
        ids = (rnd.randrange(vocab_size) for _ in range(rnd.choice([2, 40])))
        wanted["logit_bias"] = {i: rnd.choice([1.5, -2.0]) for i in ids}
    mode = rnd.choice(list(LogprobsMode))
    return SamplingParams(seed=rnd.getrandbits(60), logprobs=3, logprobs_mode=mode, **wanted)


def draws_of(kind: str, seed: int) -> tuple[SampleBatch, SamplingTensors]:
    rnd, noise = random.Random(f"{kind}{seed}"), torch.Generator().manual_seed(seed)  # noqa: S311
    # The last block is not whole; a CTA marks eight.
    vocab_size = rnd.choice([700, 3000, 17_000])
    dtype = rnd.choice([torch.float32, torch.float32, torch.float16, torch.bfloat16])
    counts = TokenCounts.empty(NUM_REQS, vocab_size)
    seen = rnd.choice([0.02, 1.0])
    shape = NUM_REQS, vocab_size
    counts.prompt_mask.copy_(torch.rand(shape, generator=noise) < seen)
    often = torch.randint(1, 40, shape, generator=noise)
    counts.output_counts.copy_(often * (torch.rand(shape, generator=noise) < seen / 2))
    allowed = torch.rand(shape, generator=noise) < 0.6
    batch = SampleBatch(
        logits=rows_of(kind, vocab_size, noise).to(dtype),
        positions=torch.arange(NUM_REQS) + seed,
        token_counts=counts,
        allowed_tokens=pack_allowed(allowed) if rnd.random() < 0.3 else None,
    )
    return batch, SamplingTensors.stack([params_of(rnd, vocab_size) for _ in range(NUM_REQS)])


@pytest.mark.parametrize("kind", KINDS)
def test_searches_find_what_the_reference_keeps(kind: str) -> None:
    torch.set_num_threads(1)
    for seed in range(12):
        batch, params = draws_of(kind, seed)
        expected = REFERENCE.sample(batch, params)
        assert expected.logprobs is not None
        # All of a row's CTAs look at once, or one alone.
        for room in (1000, 1):
            got = HostSampler(room=room, schedule=seed % 3).sample(batch, params)
            assert torch.equal(got.token_ids, expected.token_ids), (seed, room)
            assert torch.equal(got.status, expected.status)
            assert got.logprobs is not None
            torch.testing.assert_close(
                got.logprobs.emitted, expected.logprobs.emitted, rtol=1e-5, atol=1e-4
            )
