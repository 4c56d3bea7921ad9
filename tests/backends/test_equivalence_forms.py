"""The equivalence run's forms hold what they promise, and the reference passes them."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import nullcontext
from itertools import product
from multiprocessing import active_children

import pytest
import torch
from attrs import evolve

from acceptor.backends import load_sampler
from acceptor.backends.conformance import Case, Tally, run_chunk
from acceptor.backends.conformance.case import DRAFTERS, FEATURES
from acceptor.backends.conformance.corners import corners
from acceptor.backends.conformance.random_params import all_params
from acceptor.backends.conformance.run import each_case
from acceptor.backends.conformance.sampling import drawn_again
from acceptor.backends.conformance.strategies import FLOAT_DTYPES
from acceptor.core import SamplingParams, SamplingTensors
from kit.equivalence import campaign
from kit.equivalence.asking import asking_for_all, asks_for_all
from kit.equivalence.campaign import Campaign
from kit.equivalence.compare import Found
from kit.equivalence.forms import POLICIES, SIZES, Form, forms
from kit.equivalence.plan import TURN, Chunk


def test_a_form_fixes_what_kernels_are_compiled_for() -> None:
    form = [*forms(1)][2]
    seen = cases_of(form, 0, 30)
    assert len(seen) == 30
    assert {case.policy for case in seen} == {form.policy}
    assert {case.dtype for case in seen} == {form.dtype}
    assert {case.features for case in seen} == {form.features}
    assert {max(case.num_draft_tokens) for case in seen} == {form.max_spec_len}
    assert len({case.seed for case in seen}) > 20


def cases_of(form: Form, number: int, count: int) -> list[Case]:
    seen: list[Case] = []

    def keep(case: Case) -> None:
        seen.append(case)

    each_case(keep, number, count, form.cases)
    return seen


def test_no_batch_lacks_what_its_form_has() -> None:
    """Otherwise it would take kernels that are compiled for hardly any other batch."""
    seen = 0
    for number, form in enumerate(forms(2)):
        cases = cases_of(form, number, 12)
        for case in cases:
            wishes, again = all_params(case), drawn_again(case)
            flags = [flags_of(some) for some in (wishes, [wishes[i] for i in again]) if some]
            assert {*flags} <= {flags_of_form(form.features, *greedy) for greedy in EITHER}, case
            seen += len(flags) > 1
        assert len({case.seed for case in cases}) > 6
    assert seen > 50


EITHER = [*product((True, False), repeat=2)]


def flags_of(wishes: Sequence[SamplingParams]) -> tuple[object, ...]:
    """What is there, and the filters of both models' recipes unless all requests are greedy."""
    params = SamplingTensors.stack(wishes)
    there = [part is not None for part in (params.bias, params.penalties, params.num_logprobs)]
    filters = [
        None if some.all_greedy else (some.any_min_p, some.any_top_k, some.any_top_p)
        for some in (params.target, params.draft)
    ]
    return *there, *filters


def flags_of_form(features: frozenset[str], *greedy: bool) -> tuple[object, ...]:
    """All that it has, where the target's requests are all greedy, the draft's, both or neither."""
    filters = tuple(name in features for name in ("min-p", "top-k", "top-p"))
    there = [name in features for name in ("bias", "penalties", "logprobs")]
    return *there, *(None if all_are else filters for all_are in greedy)


def test_a_case_keeps_everything_but_its_seed() -> None:
    case = Case(num_draft_tokens=(1, 2), features=frozenset({"top-k", "bias"}), twist="repeat")
    asking = asking_for_all(case)
    assert asks_for_all(asking)
    assert not asks_for_all(case)
    assert evolve(asking, seed=case.seed) == case
    assert asking_for_all(asking) == asking


def test_every_policy_has_its_forms_and_they_stay_the_same() -> None:
    assert [form.policy for form in forms(2)] == [p for p in POLICIES for _ in range(2)]
    assert [*forms(3)] == [*forms(3)]


def test_forms_of_every_size_have_all_features_and_dtypes_between_them() -> None:
    found = [*forms(3)]
    for size in SIZES:
        alike = [form for form in found if form.vocabularies == size.vocabularies]
        assert {form.policy for form in alike} == {*POLICIES}
        assert frozenset().union(*(form.features for form in alike)) == {*FEATURES}
    assert {form.dtype for form in found} == {form.draft_dtype for form in found}
    assert {form.dtype for form in found} == {*FLOAT_DTYPES}
    assert {form.drafter for form in found} == {*DRAFTERS}


def test_the_reference_passes_them() -> None:
    for number, form in enumerate(forms(1)):
        found = run_chunk(load_sampler("reference"), torch.device("cpu"), number, 4, form.cases)
        assert found.num_batches == 4
        assert found.failures == []


def test_parts_of_a_form_have_its_vocabularies_once() -> None:
    for form in forms(3):
        assert sum((part.vocab_sizes for part in form.parts), ()) == form.vocab_sizes


def test_some_sizes_keep_the_numbers_of_their_chunks() -> None:
    everything = {chunk.number: chunk for chunk in chunks_of((1, 10**9))}
    small, large = chunks_of((1, 10_000)), chunks_of((10_001, 10**9))
    assert {chunk.number for chunk in small + large} == {*everything}
    assert all(everything[chunk.number] == chunk for chunk in small + large)
    assert max(max(chunk.form.vocab_sizes) for chunk in small) == 5001
    assert min(min(chunk.form.vocab_sizes) for chunk in large) == 32_000


def chunks_of(vocab_sizes: tuple[int, int]) -> list[Chunk]:
    run = Campaign(("reference",), "cpu", 10, 3, 1, vocab_sizes=vocab_sizes)
    return run._first_turn()


def test_a_campaign_ends_at_its_deadline_whatever_workers_are_at() -> None:
    late = Campaign(("reference",), "cpu", 10**6, 1, 2, deadline=time.time())
    assert [*late.run()] == []
    for worker in active_children():
        worker.join()
        assert worker.exitcode != 0


def test_chunks_that_begin_behind_the_deadline_are_not_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing, something = Found.nothing(1), Found((Tally(num_batches=1),))
    monkeypatch.setattr(campaign, "_workers", lambda _: nullcontext(Here()))
    monkeypatch.setattr(campaign, "_run_corners", lambda *_: something)
    monkeypatch.setattr(campaign, "_compare", lambda _, chunk: (something, nothing)[chunk.number])
    few = [*next(iter(forms(1))).parts][:2]
    monkeypatch.setattr(campaign, "forms", lambda _: few)
    told = [number for number, _ in Campaign(("reference",), "cpu", 1, 1, 2).run()]
    assert sorted(told) == [0, *range(TURN - campaign.CORNER_PARTS, TURN)]


class Here(Executor):
    """Runs everything at once, in this process."""

    def submit(self, what: Callable[..., Found], /, *arguments: object) -> Future[Found]:  # type: ignore[override]
        future: Future[Found] = Future()
        future.set_result(what(*arguments))
        return future


def test_a_campaign_goes_on_until_enough_batches_were_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few, num_corners = [*next(iter(forms(1))).parts][:1], len([*corners()])
    monkeypatch.setattr(campaign, "forms", lambda _: few)
    run = Campaign(("reference",), "cpu", num_corners + 40, 1, 2, chunk=16).run()
    found = dict(run)
    compared = {number: some.compared.num_batches for number, some in found.items()}
    assert sum(compared.values()) >= num_corners + 40
    chunks = {number: count for number, count in compared.items() if number % TURN == 0}
    assert chunks == {0: 16, TURN: 16, 2 * TURN: 16}
    assert len({*found} - {*chunks}) == campaign.CORNER_PARTS
