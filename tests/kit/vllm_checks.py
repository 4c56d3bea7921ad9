"""The plug-in inside vLLM's own sampler, in the process that test_vllm_plugin.py starts for it."""

from typing import Any

import pytest
import torch
from torch import Tensor
from vllm.sampling_params import SamplingParams
from vllm.v1.worker.gpu.sample import gumbel
from vllm.v1.worker.gpu.spec_decode import rejection_sampler, speculator
from vllm.v1.worker.gpu.spec_decode.dspark import speculator as dspark

from acceptor.app.vllm_plugin.registration import plugin_settings
from acceptor.core.errors import ConfigError
from kit.chi_square import assert_follows
from kit.vllm_engine import (
    DEVICE,
    NUM_SPEC_TOKENS,
    OWN,
    PROMPT_LENGTH,
    VOCAB_SIZE,
    Engine,
    speculation,
)

NUM_DRAWS, TOTAL_VARIATION = 1000, 0.15
"""How many draws find a law that is so far off."""
NAMES = ("probabilistic", "block", "strict", "strict-coupled")
POLICIES: dict[str, Any] = {"vLLM's method": {}, **{n: {"policy": {"name": n}} for n in NAMES}}
NOISE = torch.Generator().manual_seed(3)
TARGET = 1.5 * torch.randn(VOCAB_SIZE, generator=NOISE)
DRAFT = TARGET + torch.randn(VOCAB_SIZE, generator=NOISE)


def verify(params: list[SamplingParams], method: str = "standard", **changes: Any) -> Any:
    """One step of requests whose every row is TARGET, with drafts drawn from DRAFT."""
    engine = Engine(params, speculation(method))
    count = len(params)
    temperature = torch.tensor([p.temperature or 1.0 for p in params])
    drafted = changes.get("drafted", draws_of_draft(temperature))
    draft_logits = DRAFT.expand(count, NUM_SPEC_TOKENS, -1) if changes.get("dense", True) else None
    logits = changes.get("logits", TARGET.expand(count, NUM_SPEC_TOKENS + 1, -1))
    return engine.step(logits, drafted, draft_logits)


def draws_of_draft(temperature: Tensor) -> Tensor:
    """Token ids [num_reqs, K], at each request's temperature."""
    law = (DRAFT / temperature[:, None]).softmax(1)
    return law.multinomial(NUM_SPEC_TOKENS, replacement=True, generator=NOISE)


def first_tokens_follow(output: Any, law: Tensor) -> None:
    counts = output.sampled_token_ids[:, 0].bincount(minlength=VOCAB_SIZE)
    assert_follows(counts, law.double(), detects=TOTAL_VARIATION)


def test_engines_that_do_not_name_acceptor_keep_their_sampler(configured: Any) -> None:
    configured.clear()
    assert type(Engine([SamplingParams()]).rejection_sampler) is OWN


def test_nothing_is_allocated_with_the_weights() -> None:
    """An engine that sleeps at level 2 loses it."""
    made = Engine([SamplingParams()]).rejection_sampler
    kept = [*vars(made).values(), *vars(made.parameters).values(), *vars(made.processing).values()]
    assert not [value for value in kept if isinstance(value, Tensor)]


@pytest.mark.parametrize("name", POLICIES)
def test_first_tokens_follow_the_target(name: str, configured: Any) -> None:
    configured["acceptor"] |= POLICIES[name]
    output = verify([SamplingParams(temperature=0.7, seed=seed) for seed in range(NUM_DRAWS)])
    first_tokens_follow(output, (TARGET / 0.7).softmax(0))
    assert set(output.num_sampled.tolist()) == {1, 2, 3}


def test_what_vllm_refuses_beside_drafts_is_honoured() -> None:
    bias = {0: 1.0, 5: -100.0}
    params = [
        SamplingParams(temperature=0.9, min_p=0.05, logit_bias=bias, seed=seed)
        for seed in range(NUM_DRAWS)
    ]
    law = TARGET.clone()
    law[0] += 1
    law[5] -= 100
    law = (law / 0.9).softmax(0)
    first_tokens_follow(verify(params), torch.where(law >= 0.05 * law.max(), law, 0))


def test_penalties_count_accepted_drafts() -> None:
    """Of rows that are all alike, so that only what came before sets them apart."""
    logits = 0.1 * TARGET
    ranked = logits.argsort(descending=True)
    output = verify(
        [SamplingParams(temperature=0.0, presence_penalty=2.0)],
        logits=logits.expand(1, NUM_SPEC_TOKENS + 1, -1),
        drafted=ranked[None, :NUM_SPEC_TOKENS],
    )
    assert output.sampled_token_ids.tolist() == [ranked[: NUM_SPEC_TOKENS + 1].tolist()]


def test_every_slot_is_verified_by_its_own_parameters() -> None:
    params = [SamplingParams(temperature=0.0), *[SamplingParams(top_k=1, seed=s) for s in (1, 2)]]
    params += [SamplingParams(allowed_token_ids=[token]) for token in range(VOCAB_SIZE)]
    first = verify(params).sampled_token_ids[:, 0].tolist()
    assert first == [int(TARGET.argmax())] * 3 + [*range(VOCAB_SIZE)]


def test_a_mixed_batch_gives_each_request_what_it_gets_alone() -> None:
    params = [SamplingParams(temperature=0.5 + seed / 10, seed=seed) for seed in range(6)]
    drafted = torch.arange(12).view(6, 2) % VOCAB_SIZE
    together = verify(params, drafted=drafted).sampled_token_ids
    for place, wanted in enumerate(params):
        alone = verify([wanted], drafted=drafted[place : place + 1])
        num = int(alone.num_sampled)
        assert together[place, :num].tolist() == alone.sampled_token_ids[0, :num].tolist()


def test_greedy_requests_get_what_vllms_kernels_give(configured: Any) -> None:
    logits = torch.randn(40, NUM_SPEC_TOKENS + 1, VOCAB_SIZE, generator=NOISE)
    drafted = logits[:, :-1].argmax(2)
    drafted[::3, 0] = 1
    drafted[::4, 1] = 2
    params = [SamplingParams(temperature=0.0)] * 40
    ours = verify(params, logits=logits, drafted=drafted, dense=False)
    configured.clear()
    theirs = verify(params, logits=logits, drafted=drafted, dense=False)
    assert torch.equal(ours.num_sampled, theirs.num_sampled)
    assert torch.equal(ours.num_rejected, theirs.num_rejected)
    for row, other, num in zip(
        ours.sampled_token_ids, theirs.sampled_token_ids, ours.num_sampled, strict=True
    ):
        assert torch.equal(row[:num], other[:num])


@pytest.mark.parametrize("name", POLICIES)
def test_drafts_that_a_grammar_forbids_leave_the_law(name: str, configured: Any) -> None:
    configured["acceptor"] |= POLICIES[name]
    params = [SamplingParams(temperature=1.0, seed=seed) for seed in range(NUM_DRAWS)]
    forbidden = torch.zeros(VOCAB_SIZE, dtype=torch.bool)
    forbidden[DRAFT.topk(2).indices] = True
    masked = TARGET.masked_fill(forbidden, -torch.inf)
    drafted = draws_of_draft(torch.ones(NUM_DRAWS))
    # As a scheduler validates them: nothing from the first forbidden token on.
    invalid = forbidden[drafted].long().cumsum(1) > 0
    output = Engine(params).step(
        masked.expand(NUM_DRAWS, NUM_SPEC_TOKENS + 1, -1),
        drafted,
        DRAFT.expand(NUM_DRAWS, NUM_SPEC_TOKENS, -1),
        invalid=torch.nn.functional.pad(invalid, (1, 0)),
    )
    first_tokens_follow(output, masked.softmax(0))


def test_lossy_policies_accept_nothing_that_is_forbidden(configured: Any) -> None:
    configured["acceptor"]["policy"] = {"name": "synthetic", "rates": [1.0, 1.0]}
    drafted = torch.tensor([[3, 5], [5, 3], [3, 3]])
    output = verify(
        [SamplingParams(seed=seed, allowed_token_ids=[3]) for seed in range(3)], drafted=drafted
    )
    assert output.num_sampled.tolist() == [2, 1, 3]
    assert output.sampled_token_ids[:, 0].tolist() == [3] * 3


def test_synthetic_rates_are_vllms() -> None:
    params = [SamplingParams(seed=seed) for seed in range(NUM_DRAWS)]
    output = verify(params, method="synthetic")
    accepted = output.num_sampled - 1
    assert float((accepted >= 1).float().mean()) == pytest.approx(0.75, abs=0.08)
    assert float((accepted >= 2).float().mean()) == pytest.approx(0.5, abs=0.08)


def draw_drafts(engine: Engine, logits: Tensor, slots: Tensor, position: int) -> Tensor:
    """As vLLM's speculators call it."""
    states = engine.sampler.sampling_states
    drawn: Tensor = speculator.gumbel_sample(
        logits.to(DEVICE),
        slots.to(DEVICE),
        states.temperature.gpu,
        states.seeds.gpu,
        torch.full((len(slots),), position, device=DEVICE),
        apply_temperature=True,
        is_drafting=True,
        logits_cache=None,
        logits_cache_col=torch.tensor(0),
        use_fp64=False,
    )
    return drawn.cpu()


def test_coupled_drafts_are_drawn_with_the_targets_noise(configured: Any) -> None:
    configured["acceptor"]["policy"] = {"name": "strict-coupled"}
    count = 50
    engine = Engine([SamplingParams(temperature=0.7, seed=seed) for seed in range(count)])
    assert dspark.gumbel_sample is speculator.gumbel_sample
    slots, rows = torch.tensor(engine.slots), TARGET.expand(count, -1)
    places = range(PROMPT_LENGTH, PROMPT_LENGTH + NUM_SPEC_TOKENS)
    drafted = torch.stack([draw_drafts(engine, rows, slots, place) for place in places], dim=1)
    output = engine.step(TARGET.expand(count, NUM_SPEC_TOKENS + 1, -1), drafted, None)
    assert output.num_sampled.tolist() == [NUM_SPEC_TOKENS + 1] * count


def test_the_draft_model_can_read_what_padding_and_broken_logits_draw(configured: Any) -> None:
    configured["acceptor"]["policy"] = {"name": "strict-coupled"}
    engine = Engine([SamplingParams(seed=1)])
    logits = torch.full((2, VOCAB_SIZE), torch.nan)
    slots = torch.tensor([engine.slots[0], -1])
    assert draw_drafts(engine, logits, slots, PROMPT_LENGTH).tolist() == [0, 0]


@pytest.mark.parametrize("after", [{}, {"acceptor": {"backend": "reference"}}])
def test_the_next_engine_draws_its_drafts_as_vllm(after: Any, configured: Any) -> None:
    configured["acceptor"]["policy"] = {"name": "strict-coupled"}
    Engine([SamplingParams()])
    configured.clear()
    configured.update(after)
    Engine([SamplingParams()])
    assert speculator.gumbel_sample is dspark.gumbel_sample is gumbel.gumbel_sample


def test_coupled_drafts_must_be_drawn() -> None:
    settings = plugin_settings({"acceptor": {"policy": {"name": "strict-coupled"}}})
    spec = speculation()
    spec.draft_sample_method = "greedy"
    assert settings is not None
    with pytest.raises(ConfigError, match="draft_sample_method: expected probabilistic"):
        settings.policy_for(spec)


def test_greedy_drafts_end_where_vllm_says() -> None:
    """Unequal drafts, one at a token that a grammar does not take, and one inside the prompt."""
    engine = Engine([SamplingParams(temperature=0.0)] * 5)
    engine.states.prefill_len.np[engine.slots[4]] = PROMPT_LENGTH + 1
    engine.states.apply_staged_writes()
    drafted = torch.full((5, NUM_SPEC_TOKENS), int(TARGET.argmax()))
    invalid = torch.zeros(5, NUM_SPEC_TOKENS + 1, dtype=torch.bool)
    invalid[3, 2] = True
    rows = TARGET.expand(5, NUM_SPEC_TOKENS + 1, -1)
    output = engine.step(rows, drafted, None, torch.tensor([0, 1, 2, 2, 2]), invalid)
    assert output.num_sampled.tolist() == [1, 2, 3, 2, 1]
    assert output.num_rejected.tolist() == [0, 0, 0, 1, 2]


@pytest.mark.parametrize("way", ["chunks", "adaptive"])
def test_how_a_batch_is_cut_changes_nothing(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 30
    params = [SamplingParams(seed=seed, min_p=0.01 * seed) for seed in range(count)]
    engine = Engine(params)
    drafted = torch.randint(VOCAB_SIZE, (count, NUM_SPEC_TOKENS), generator=NOISE)
    rows = TARGET.expand(count, NUM_SPEC_TOKENS + 1, -1)
    dense = DRAFT.expand(count, NUM_SPEC_TOKENS, -1)
    num_drafts = torch.arange(count) % (NUM_SPEC_TOKENS + 1)
    whole = engine.step(rows, drafted, dense, num_drafts)
    if way == "chunks":
        monkeypatch.setattr(rejection_sampler, "MAX_CHUNK_BYTES", 5 * VOCAB_SIZE * 4)
    else:
        engine.rejection_sampler.enable_adaptive_verification = True
    cut = engine.step(rows, drafted, dense, num_drafts)
    assert torch.equal(cut.num_sampled, whole.num_sampled)
    emitted = torch.arange(NUM_SPEC_TOKENS + 1) < whole.num_sampled[:, None]
    assert torch.equal(cut.sampled_token_ids[emitted], whole.sampled_token_ids[emitted])


def test_processed_logprobs_are_of_the_law_that_tokens_come_from() -> None:
    params = [SamplingParams(temperature=0.5, min_p=0.2, seed=s, logprobs=0) for s in range(20)]
    engine = Engine(params)
    engine.sampler.logprobs_mode = "processed_logprobs"
    drafted = torch.full((20, NUM_SPEC_TOKENS), int(TARGET.argmin()))
    output = engine.step(TARGET.expand(20, NUM_SPEC_TOKENS + 1, -1), drafted, None)
    law = (TARGET / 0.5).softmax(0)
    law = torch.where(law >= 0.2 * law.max(), law.log(), -torch.inf).log_softmax(0)
    assert output.num_sampled.tolist() == [1] * 20
    first = output.logprobs_tensors.logprobs[:: NUM_SPEC_TOKENS + 1, 0]
    torch.testing.assert_close(first, law[output.sampled_token_ids[:, 0]])


def test_broken_logits_stay_inside_the_vocabulary() -> None:
    logits = TARGET.expand(2, NUM_SPEC_TOKENS + 1, -1).clone()
    logits[0] = torch.nan
    output = verify([SamplingParams(temperature=0.7, seed=1)] * 2, logits=logits)
    assert output.sampled_token_ids.min() >= 0
    assert output.num_sampled.min() >= 1
