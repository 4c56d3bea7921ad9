"""The equivalence run's forms hold what they promise, and the reference passes them."""

import torch

from acceptor.backends import load_sampler
from acceptor.backends.conformance import Case, run_chunk
from acceptor.backends.conformance.run import each_case
from kit.equivalence.forms import POLICIES, forms


def test_a_form_fixes_what_kernels_are_compiled_for() -> None:
    form = [*forms(1)][2]
    seen: list[Case] = []

    def keep(case: Case) -> None:
        seen.append(case)

    each_case(keep, 0, 30, form.cases)
    assert len(seen) == 30
    assert {case.policy for case in seen} == {form.policy}
    assert {case.dtype for case in seen} == {form.dtype}
    assert {case.features for case in seen} == {form.features}
    assert {max(case.num_draft_tokens) for case in seen} == {form.max_spec_len}
    assert len({case.seed for case in seen}) > 20


def test_every_policy_has_its_forms_and_they_stay_the_same() -> None:
    assert [form.policy for form in forms(2)] == [p for p in POLICIES for _ in range(2)]
    assert [*forms(3)] == [*forms(3)]


def test_the_reference_passes_them() -> None:
    for number, form in enumerate(forms(1)):
        found = run_chunk(load_sampler("reference"), torch.device("cpu"), number, 4, form.cases)
        assert found.num_batches == 4
        assert found.failures == []
