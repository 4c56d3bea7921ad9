"""One request as the contract sees it: where its draft ends, its laws, its draws, all on demand."""

from collections.abc import Sequence
from functools import cached_property
from itertools import takewhile

import numpy as np
from attrs import frozen

from ....core.output import Status
from ....core.sampling_params import Recipe
from .filters import Flags, Floats
from .law import Adjustments, Integers, Law, adjust, forbid, is_usable, law_of, one_hot, place
from .race import TARGET, Draw, uniforms

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
        ids = self.draft_token_ids.tolist()
        return [*takewhile(lambda token_id: 0 <= token_id < self.vocab_size, ids)]

    @cached_property
    def drafts(self) -> list[int]:
        """The named drafts up to the first row that cannot be used."""
        of_draft = self.target_rows if self._draft_rows is None else self._draft_rows
        rows = zip(self.target_rows, of_draft, strict=False)
        usable = [*takewhile(lambda both: all(map(is_usable, both)), rows)]
        return self.named_drafts[: len(usable)]

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

    @cached_property
    def target_rows(self) -> list[Floats]:
        """Logits after bias, penalties, which count the drafts before the row, and masks."""
        rows, counts = [], self.output_counts.copy()
        for row in range(len(self.named_drafts) + 1):
            raw, wanted = self.target_logits[row], self.adjustments
            rows.append(forbid(adjust(raw, wanted, self.in_prompt, counts), self.allowed[row]))
            counts[self.named_drafts[row : row + 1]] += 1
        return rows

    @cached_property
    def target_laws(self) -> list[Law]:
        """p at each row."""
        laws = [law_of(row, self.recipe) for row in self.target_rows[: len(self.drafts) + 1]]
        ids, vocab_size = self.target_ids, self.vocab_size
        return laws if ids is None else [place(law, ids, vocab_size) for law in laws]

    @cached_property
    def draft_laws(self) -> list[Law]:
        """q at each row, in target ids."""
        drafts, ids, vocab_size = self.drafts, self.draft_to_target, self.vocab_size
        if self._draft_rows is None:
            return [one_hot(token_id, vocab_size) for token_id in drafts]
        laws = (law_of(row, self.draft_recipe) for row in self._draft_rows[: len(drafts)])
        return [place(law, ids, vocab_size) for law in laws]

    @cached_property
    def samples(self) -> list[Draw]:
        """The target's own sample at each row."""
        return [self.draw(law, self.stream, row) for row, law in enumerate(self.target_laws)]

    @cached_property
    def uniforms(self) -> Floats:
        """What the drafts are tested with."""
        return uniforms(self.seed, self.first_position, len(self.drafts))

    def draw(self, law: Law, stream: int, row: int) -> Draw:
        """One token for a row."""
        key = (self.seed, stream, self.first_position + row, self.first_index + row)
        return Draw(law, key)

    @property
    def _draft_rows(self) -> Floats | None:
        # A greedy draft is one-hot at what it drafted: its logits are not looked at.
        return None if self.draft_recipe.is_greedy else self.draft_logits
