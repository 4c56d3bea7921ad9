"""Bad logits and a device without memory end one request, say why, and leave its neighbours."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch
from attrs import define, evolve, field
from hypothesis import given, settings
from hypothesis import strategies as st

from acceptor.app import wiring
from acceptor.app.config import Config, DecodingConfig, ModelsConfig
from acceptor.app.decode import DecodeStep
from acceptor.app.engine import loop, out_of_memory
from acceptor.app.engine.engine import Engine
from acceptor.app.engine.parts import Limits, MemoryPlan, num_bytes
from acceptor.app.frontier import Running
from acceptor.app.request import FinishReason
from acceptor.app.wiring import wire
from acceptor.backends import load_sampler
from acceptor.core import (
    Block,
    OutOfMemoryError,
    Policy,
    Probabilistic,
    Status,
    Strict,
    TokenCounts,
)
from kit.toy_pair import NUM_CONTEXTS, Pair, TableModel, engine_of, engine_with, run
from kit.toy_requests import ask

BATCH = [
    ask(1, seed=0, max_tokens=12),
    ask(2, seed=1, temperature=0.0, max_tokens=12),
    ask(3, seed=2, top_p=0.8, max_tokens=12),
]


def poisoned(model: TableModel, rows: Iterable[int], value: float) -> TableModel:
    table = model.table.clone()
    table[list(rows)] = value
    return evolve(model, table=table)


def context_of(*known: int) -> int:
    """The row of a table that a `TableModel` looks up after these tokens."""
    total = sum((token_id + 1) * place**2 for place, token_id in enumerate(known, start=1))
    return total % NUM_CONTEXTS


@pytest.mark.parametrize("side", ["target", "draft"])
@pytest.mark.parametrize("policy", [Strict(), Strict(coupled=True), Probabilistic(), Block()])
@settings(max_examples=6)
@given(
    rows=st.sets(st.integers(0, 96), min_size=1, max_size=5),
    value=st.sampled_from([torch.nan, torch.inf, -torch.inf]),
    num_spec_tokens=st.integers(0, 6),
)
def test_bad_logits_end_a_request_where_they_are_needed(
    pair: Pair, side: str, policy: Policy, rows: set[int], value: float, num_spec_tokens: int
) -> None:
    sick = evolve(pair, **{side: poisoned(getattr(pair, side), rows, value)})
    healthy = pair.decoder(policy, num_spec_tokens).generate(BATCH)
    decoder = sick.decoder(policy, num_spec_tokens)
    for request, result, whole in zip(BATCH, decoder.generate(BATCH), healthy, strict=True):
        assert decoder.generate([request]) == [result]
        if result.finish_reason is FinishReason.ERROR:
            assert result.status is Status[f"{side.upper()}_LOGITS_INVALID"]
            # It ends exactly where a model fails, not at an earlier, rejected draft.
            assert context_of(*request.prompt_token_ids, *result.token_ids) in rows
        else:
            assert (result.status, result.finish_reason) == (Status.OK, whole.finish_reason)
        # Block judges a place by later ones, so a shorter draft may end elsewhere.
        if policy != Block():
            assert result.token_ids == whole.token_ids[: len(result.token_ids)]
            assert side == "draft" or result.status or result == whole


def test_what_lies_behind_a_stop_is_not_an_error(pair: Pair) -> None:
    (healthy,) = pair.decoder(Strict(), 0).generate(BATCH[:1])
    third = healthy.token_ids[2]
    assert third not in healthy.token_ids[:2]
    # The row that decides the sixth token is bad, and the drafts up to there are all accepted.
    context = context_of(*BATCH[0].prompt_token_ids, *healthy.token_ids[:5])
    target = poisoned(pair.target, [context], torch.nan)
    decoder = evolve(pair, target=target, draft=pair.target).decoder(Strict(coupled=True), 8)
    failed, stopped = decoder.generate([BATCH[0], evolve(BATCH[0], stop_token_ids=[third])])
    assert failed.token_ids == healthy.token_ids[:5]
    assert (failed.finish_reason, failed.status) == ("error", Status.TARGET_LOGITS_INVALID)
    assert stopped.token_ids == healthy.token_ids[:3]
    assert (stopped.finish_reason, stopped.status) == ("stop", Status.OK)


FULL = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB"


@define(eq=False)
class Allocator:
    """Replaces a device's allocator: full at these calls, counted from one."""

    full_at: Sequence[int]
    num_calls: int = field(default=0, init=False)

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.num_calls += 1
            if self.num_calls in self.full_at:
                raise torch.OutOfMemoryError(FULL)
            return function(*args, **kwargs)

        return call


@pytest.mark.parametrize("full_at", [[1], [2], [4], [7], [6, 7], range(3, 6)], ids=str)
def test_a_step_that_finds_no_memory_ends_one_request_and_the_others_get_theirs(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, full_at: Sequence[int]
) -> None:
    requests = [ask(1, seed, seed=seed, max_tokens=9) for seed in range(5)]
    alone = pair.decoder(Probabilistic(), 4).generate(requests)
    engine = engine_of(pair)
    monkeypatch.setattr(loop.Loop, "_step", Allocator(full_at).before(loop.Loop._step))
    results = engine.generate(requests)
    failed = [result for result in results if result.finish_reason is FinishReason.ERROR]
    assert len(failed) == len(full_at)
    for result, whole in zip(results, alone, strict=True):
        if result in failed:
            assert result.error == (
                "request: expected 2.00 GiB on cpu, got less; lower num_slots or max_len, or ask "
                "for less at once"
            )
            assert result.token_ids == whole.token_ids[: len(result.token_ids)]
        else:
            assert result == whole
    assert engine.generate(requests) == alone


@pytest.mark.parametrize(
    ("owner", "name"), [(DecodeStep, "enter"), (TokenCounts, "empty"), (Running, "stack")]
)
def test_a_request_that_cannot_be_let_in_ends_alone(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    engine, fit = engine_of(pair), ask(1, 2, seed=1, max_tokens=9)
    before = engine.add_request(fit)
    engine.step()
    monkeypatch.setattr(owner, name, Allocator([1]).before(getattr(owner, name)))
    unlucky = engine.add_request(evolve(fit, params=evolve(fit.params, presence_penalty=0.5)))
    ends = {p.request_index: p.result for p in run(engine) if p.result is not None}
    assert "expected 2.00 GiB on cpu" in ends[unlucky].error
    assert ends[before] == pair.decoder(Probabilistic(), 4).generate([fit])[0]


def test_a_request_that_joins_the_next_step_outlives_one_that_had_begun_without_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_with(pair.decoder(Probabilistic(), 4), lambda action: action)
    fit = ask(1, seed=1, max_tokens=30)
    ids = [engine.add_request(fit) for _ in range(2)]
    engine.step()
    assert engine.loop.has_begun
    monkeypatch.setattr(loop.Loop, "_step", Allocator([1]).before(loop.Loop._step))
    ids.append(engine.add_request(fit))
    ends = {p.request_index: p.result for p in run(engine) if p.result is not None}
    assert [bool(ends[one].error) for one in ids] == [False, True, False]


def test_requests_with_penalties_end_with_the_step_that_may_have_counted_them(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = ask(1, seed=1, max_tokens=9)
    penalised = evolve(plain, params=evolve(plain.params, presence_penalty=0.5))
    monkeypatch.setattr(loop.Loop, "_step", Allocator([2]).before(loop.Loop._step))
    results = engine_of(pair).generate([penalised, plain, plain])
    assert [bool(result.error) for result in results] == [True, False, True]


def test_caches_too_large_say_what_to_lower(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (3 * 2**29, 80 * 2**30))
    on_gpu = evolve(pair, target=evolve(pair.target, device=torch.device("cuda", 1)))
    monkeypatch.setattr(type(pair.target), "new_cache", Allocator([1]).before(pytest.fail))
    with pytest.raises(OutOfMemoryError) as caught:
        Engine.of(on_gpu.decoder(Probabilistic(), 4), Limits(num_slots=64, max_len=512))
    assert str(caught.value) == (
        "caches of 64 slots of 512 tokens: expected 2.00 GiB on cuda:1, got 1.50 GiB free of "
        "80.00 GiB; lower num_slots or max_len"
    )


@pytest.mark.parametrize(
    ("error", "got"),
    [
        (torch.OutOfMemoryError(FULL), "expected 2.00 GiB on cuda, got 0 bytes free of 79.00 GiB"),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors"), "expected more memory on"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), "expected more mem"),
    ],
)
def test_weights_that_do_not_fit_end_in_one_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, got: str
) -> None:
    """As on a GPU that other processes have filled."""

    def load(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(wiring, "load_any_model", load)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (0, 79 * 2**30))
    remedy = "choose a smaller model or dtype, or free the device"
    with pytest.raises(OutOfMemoryError, match=rf"^.*{got}.*{remedy}.*\Z"):
        wire(Config(models=ModelsConfig(device="cuda")))


def test_a_full_device_that_cannot_even_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(torch.cuda, "mem_get_info", fail)
    assert out_of_memory.free_memory(torch.device("cuda")) == "less than a CUDA context takes"


@pytest.mark.parametrize("backend", ["reference", "triton"])
def test_the_workspace_of_the_largest_step_is_planned(backend: str) -> None:
    decoder = evolve(wire(Config()).decoder, sampler=load_sampler(backend))
    plan, vocab_size = MemoryPlan.of(decoder, 8, 64), decoder.target.vocab_size
    # The reference needs none.
    assert (plan.step > 8 * 5 * vocab_size * 4) == (backend == "triton")
    # Memory that cannot be allocated can still be planned.
    assert MemoryPlan.of(decoder, 20_000, None).total > 2**35


@pytest.mark.parametrize("num_spec_tokens", [0, 3])
def test_the_plan_is_what_is_allocated(num_spec_tokens: int) -> None:
    decoder = wire(Config(decoding=DecodingConfig(num_spec_tokens=num_spec_tokens))).decoder
    engine = Engine.of(decoder, Limits(num_slots=3, max_len=40))
    plan, memory = engine.memory_plan, engine.loop.decode_step
    assert plan.target_cache == num_bytes(memory.target_cache)
    assert plan.draft_memory == num_bytes(memory.draft_memory)
    vocab_size = decoder.target.vocab_size
    assert plan.token_counts == num_bytes(TokenCounts.empty(4, vocab_size, torch.device("cpu")))
    assert plan.step >= 3 * (num_spec_tokens + 1) * vocab_size * 4
    assert plan.graphs == 0
    # Both models in float32; the draft only where it drafts.
    assert plan.weights > (13_017_184 if num_spec_tokens else 0) * 2 - 10**6
    assert str(plan).startswith(out_of_memory.in_words(plan.total) + ": weights ")
