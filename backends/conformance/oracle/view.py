"""One request as the contract sees it: where its draft ends, its laws, its draws, all on demand."""

from functools import cached_property

import numpy as np
from attrs import field, frozen

from ....core.output import Status
from .inputs import RequestInputs
from .law import Law, adjust, is_usable, law_of, one_hot, place
from .noise import Floats, Noise
from .race import Draw, PerRow


@frozen
class RequestView:
    """What can be verified of one request.

    Attributes:
        inputs: what the models said.
        uses_draft_law: whether the policy looks at the draft's logits at all.
    """

    inputs: RequestInputs = field(eq=False)
    uses_draft_law: bool

    @cached_property
    def named_drafts(self) -> list[int]:
        """The draft up to its first id that is no token."""
        named: list[int] = []
        for token_id in self.inputs.draft_token_ids.tolist():
            if not 0 <= token_id < self.inputs.vocab_size:
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
        rest = self.inputs.draft_token_ids[len(self.named_drafts) :].tolist()
        return Status.DRAFT_TOKEN_INVALID if rest and rest[0] != -1 else Status.OK

    @cached_property
    def stop(self) -> Status:
        """Why nothing can be drawn behind the draft; OK if it can."""
        row = len(self.drafts)
        if not is_usable(self.target_rows[row]):
            return self.inputs.invalid
        return Status.OK if row == len(self.named_drafts) else Status.DRAFT_LOGITS_INVALID

    def _is_row_usable(self, row: int) -> bool:
        draft = self._draft_row(row)
        return is_usable(self.target_rows[row]) and (draft is None or is_usable(draft))

    @cached_property
    def target_rows(self) -> PerRow[Floats]:
        """Logits after bias and penalties, which count the drafts before the row."""
        return PerRow(self._adjusted)

    @cached_property
    def target_laws(self) -> PerRow[Law]:
        """p at each row."""
        return PerRow(self._target_law)

    @cached_property
    def draft_laws(self) -> PerRow[Law]:
        """q at each row, in target ids."""
        return PerRow(self._draft_law)

    @cached_property
    def samples(self) -> PerRow[Draw]:
        """The target's own sample at each row."""
        return PerRow(lambda row: self.draw(self.target_laws[row], self.inputs.stream, row))

    @cached_property
    def uniforms(self) -> Floats:
        """What the drafts are tested with."""
        return self.noise.uniforms(self.inputs.first_position, len(self.drafts))

    @property
    def noise(self) -> Noise:
        """The request's random numbers."""
        return Noise(self.inputs.seed)

    def draw(self, law: Law, stream: int, row: int) -> Draw:
        """One token for a row."""
        inputs = self.inputs
        key = (stream, inputs.first_position + row, inputs.first_index + row)
        return Draw(law, self.noise, key)

    def _adjusted(self, row: int) -> Floats:
        inputs = self.inputs
        counts = inputs.output_counts.copy()
        np.add.at(counts, self.named_drafts[:row], 1)
        return adjust(inputs.target_logits[row], inputs.adjustments, inputs.in_prompt, counts)

    def _target_law(self, row: int) -> Law:
        law, ids = law_of(self.target_rows[row], self.inputs.recipe), self.inputs.target_ids
        return law if ids is None else place(law, ids, self.inputs.vocab_size)

    def _draft_law(self, row: int) -> Law:
        inputs, logits = self.inputs, self._draft_row(row)
        if logits is None:
            return one_hot(self.named_drafts[row], inputs.vocab_size)
        law = law_of(logits, inputs.draft_recipe)
        return place(law, inputs.draft_to_target, inputs.vocab_size)

    def _draft_row(self, row: int) -> Floats | None:
        # A greedy draft is one-hot at what it drafted: its logits are not looked at.
        one_hot_draft = self.inputs.draft_logits is None or self.inputs.draft_recipe.is_greedy
        if one_hot_draft or not self.uses_draft_law:
            return None
        assert self.inputs.draft_logits is not None
        logits: Floats = self.inputs.draft_logits[row]
        return logits
