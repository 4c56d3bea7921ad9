"""Bugs planted on purpose, most of them once shipped by somebody, and the check that sees each.

A mutant replaces one part of the reference backend or of a policy while it lives.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from attrs import frozen

from acceptor.core import Block, Policy, Probabilistic, Stream
from kit.proof import bugs_in_laws, bugs_in_noise
from kit.proof.checks import CHECKS, Evidence

Patch = pytest.MonkeyPatch


@frozen
class Mutant:
    """One planted bug.

    Attributes:
        name: what is wrong.
        plant: puts it into the code.
        check: the name of the check that must fail.
        policy: the policy whose frequencies a sample shows it in; None if no sample would.
    """

    name: str
    plant: Callable[[Patch], None]
    check: str
    policy: Policy | None = None

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Let it live for a while."""
        with pytest.MonkeyPatch.context() as patch:
            self.plant(patch)
            yield

    def evidence(self) -> Evidence:
        """What its check measures while it lives."""
        with self.planted():
            return CHECKS[self.check].measure()


_PROBABILISTIC, _BLOCK = "exact law: probabilistic, {}", "exact law: block, {}"

MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant(name, plant, check, policy)
    for name, plant, check, policy in (
        (
            "recovered token drawn with the draft's noise",
            bugs_in_noise.recover_with(Stream.DRAFT),
            _PROBABILISTIC.format("draft model"),
            Probabilistic(),
        ),
        (
            "recovered token drawn with the acceptance's noise",
            bugs_in_noise.recover_with(Stream.ACCEPT),
            _PROBABILISTIC.format("draft model"),
            None,
        ),
        (
            "block drafts with the target's noise",
            bugs_in_noise.draft_with_target_noise,
            _BLOCK.format("draft model"),
            Block(),
        ),
        (
            "one acceptance uniform for the whole draft",
            bugs_in_noise.one_uniform_per_draft,
            _PROBABILISTIC.format("draft model"),
            Probabilistic(),
        ),
        (
            "noise keyed without the draft index",
            bugs_in_noise.without_draft_index,
            _BLOCK.format("draft model"),
            Block(),
        ),
        ("noise keyed by slot", bugs_in_noise.keyed_by_slot, "edge: slots", None),
        (
            "residual = p",
            bugs_in_laws.residual_is_target,
            _PROBABILISTIC.format("draft model"),
            Probabilistic(),
        ),
        (
            "residual = p where p > q, without the − q",
            bugs_in_laws.residual_without_subtraction,
            _PROBABILISTIC.format("draft model"),
            Probabilistic(),
        ),
        (
            "residual as if the draft were one-hot",
            bugs_in_laws.residual_as_if_one_hot,
            _PROBABILISTIC.format("draft model"),
            Probabilistic(),
        ),
        (
            "accepts if u < p/q or equal to the target's sample",
            bugs_in_laws.accepts_equal_samples_too,
            _PROBABILISTIC.format("draft model"),
            Probabilistic(),
        ),
        (
            "raw q, processed drafts",
            bugs_in_laws.raw_draft_probs,
            _PROBABILISTIC.format("other recipe"),
            None,
        ),
        (
            "q left in draft ids",
            bugs_in_laws.draft_ids_unmapped,
            _PROBABILISTIC.format("mapped"),
            None,
        ),
        (
            "target cut to the draft's vocabulary",
            bugs_in_laws.target_cut_to_the_draft,
            _PROBABILISTIC.format("narrower"),
            None,
        ),
        (
            "target rows off by one",
            bugs_in_laws.off_by_one_row,
            _PROBABILISTIC.format("draft model"),
            Probabilistic(),
        ),
        (
            "bonus token without filters",
            bugs_in_laws.bonus_without_filters,
            _PROBABILISTIC.format("other recipe"),
            None,
        ),
        (
            "penalties forget the draft",
            bugs_in_laws.penalties_forget_drafts,
            _PROBABILISTIC.format("penalties"),
            None,
        ),
        (
            "block stops at the first failure",
            bugs_in_laws.stops_at_the_first_failure,
            _BLOCK.format("draft model"),
            Block(),
        ),
        (
            "block's residual without the running product",
            bugs_in_laws.block_forgets_the_product,
            _BLOCK.format("draft model"),
            Block(),
        ),
        (
            "−log u in float32 instead of −log1p(−u)",
            bugs_in_noise.coarse_tail,
            "edge: rare exponentials, V = 151,936",
            None,
        ),
        (
            "exponentials from 23 bits",
            bugs_in_noise.short_tail,
            "edge: rare exponentials, V = 151,936",
            None,
        ),
        ("u ≤ p/q with u = 0", bugs_in_noise.accepts_at_zero, "edge: lowest uniform", None),
        ("u rounds to 1", bugs_in_noise.uniform_reaches_one, "edge: highest uniform", None),
        ("last index wins a tie", bugs_in_laws.last_of_ties, "edge: ties", None),
    )
)
