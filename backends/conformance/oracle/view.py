"""One request as the contract sees it: where its draft ends, its laws, its draws, all on demand."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from attrs import frozen

from ....core.output import Status
from ....core.sampling_params import Recipe
from .filters import Flags, Floats
from .law import Adjustments, Integers, Law, adjust, forbid, is_usable, law_of, one_hot, place
from .race import TARGET, Draw, Noise, per_row

NO_DRAFT = np.zeros(0, dtype=np.int64)


@frozen(eq=False, kw_only=True)
class RequestView:
    """One request's share of a batch. A plain draw is a verification without a draft.

    Attributes:
        target_logits: [K + 1, V], raw.
        target_ids: [V], what the entries of a row stand for; None for their places.
        vocab_size: how many ids those belong to.
        draft_token_ids: [K] as they came, bad ones too.
        draft_logits: [K, draft V], raw; None if the draft is one-hot or nobody looks at them.
        draft_to_target: [draft V], the target id of each draft id.
        first_position, first_index: position and draft index of the first row's noise.
        stream: of the noise of tokens that are drawn from a row.
        seed: 64 bits.
        recipe, draft_recipe: from logits to p and q.
        adjustments: bias and penalties.
        in_prompt, output_counts: [V], what penalties count.
        allowed: the mask of each row, [V]; None for a row without one.
        logprobs_processed: whether logprobs are those of the recipe's law.
        invalid: the status of a row that cannot be used.
        bonus_name: what the token behind an accepted draft is called.
    """

    target_logits: Floats
    vocab_size: int
    first_position: int
    seed: int
    recipe: Recipe
    draft_recipe: Recipe
    adjustments: Adjustments
    in_prompt: Flags
    output_counts: Integers
    allowed: Sequence[Flags | None]
    logprobs_processed: bool
    target_ids: Integers | None = None
    draft_token_ids: Integers = NO_DRAFT
    draft_logits: Floats | None = None
    draft_to_target: Integers = NO_DRAFT
    first_index: int = 1
    stream: int = TARGET
    invalid: Status = Status.TARGET_LOGITS_INVALID
    bonus_name: str = "bonus token"

    @cached_property
    def named_drafts(self) -> list[int]:
        """The draft up to its first id that is no token."""
        named: list[int] = []
        for token_id in self.draft_token_ids.tolist():
            if not 0 <= token_id < self.vocab_size:
                break
            named.append(token_id)
        return named

    @cached_property
    def drafts(self) -> list[int]:
        """The named drafts up to the first row that cannot be used."""
        usable = 0
        while usable < len(self.named_drafts) and self._is_row_usable(usable):
            usable += 1
        return self.named_drafts[:usable]

    @property
    def id_status(self) -> Status:
        """What is wrong with the draft's ids."""
        rest = self.draft_token_ids[len(self.named_drafts) :].tolist()
        return Status.DRAFT_TOKEN_INVALID if rest and rest[0] != -1 else Status.OK

    @cached_property
    def stop(self) -> Status:
        """Why nothing can be drawn behind the draft; OK if it can."""
        row = len(self.drafts)
        if not is_usable(self.target_rows[row]):
            nothing = self.allowed[row] is not None and (self.target_rows[row] == -np.inf).all()
            return Status.NOTHING_ALLOWED if nothing else self.invalid
        return Status.OK if row == len(self.named_drafts) else Status.DRAFT_LOGITS_INVALID

    def _is_row_usable(self, row: int) -> bool:
        draft = self._draft_row(row)
        return is_usable(self.target_rows[row]) and (draft is None or is_usable(draft))

    @per_row
    def target_rows(self, row: int) -> Floats:
        """Logits after bias, penalties, which count the drafts before the row, and masks."""
        counts = self.output_counts.copy()
        np.add.at(counts, self.named_drafts[:row], 1)
        raw, wanted = self.target_logits[row], self.adjustments
        return forbid(adjust(raw, wanted, self.in_prompt, counts), self.allowed[row])

    @per_row
    def target_laws(self, row: int) -> Law:
        """p at each row."""
        law = law_of(self.target_rows[row], self.recipe)
        return law if self.target_ids is None else place(law, self.target_ids, self.vocab_size)

    @per_row
    def draft_laws(self, row: int) -> Law:
        """q at each row, in target ids."""
        logits = self._draft_row(row)
        if logits is None:
            return one_hot(self.named_drafts[row], self.vocab_size)
        return place(law_of(logits, self.draft_recipe), self.draft_to_target, self.vocab_size)

    @per_row
    def samples(self, row: int) -> Draw:
        """The target's own sample at each row."""
        return self.draw(self.target_laws[row], self.stream, row)

    @cached_property
    def uniforms(self) -> Floats:
        """What the drafts are tested with."""
        return Noise(self.seed).uniforms(self.first_position, len(self.drafts))

    def draw(self, law: Law, stream: int, row: int) -> Draw:
        """One token for a row."""
        key = (stream, self.first_position + row, self.first_index + row)
        return Draw(law, Noise(self.seed), key)

    def _draft_row(self, row: int) -> Floats | None:
        # A greedy draft is one-hot at what it drafted: its logits are not looked at.
        if self.draft_logits is None or self.draft_recipe.is_greedy:
            return None
        logits: Floats = self.draft_logits[row]
        return logits
