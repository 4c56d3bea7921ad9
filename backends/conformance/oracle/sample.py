"""One draw from one row once more: plain sampling and drafting."""

from functools import cached_property

from attrs import field, frozen

from ....core.batch import SampleBatch
from ....core.output import Status
from ....core.sampling_params import Recipe
from ....core.sampling_tensors import SamplingTensors
from .inputs import adjustments_of, floats, id_map, recipes_of, seeds_of, seen, slots_of
from .law import Integers, Law, adjust, is_usable, law_of, place
from .logprobs import RowLogprobs
from .noise import Floats, Noise
from .race import Draw


@frozen
class SampleOracle:
    """What the contract says about one row.

    Attributes:
        raw_logits: [V] as they came.
        logits: after bias and penalties, which only a target draw has.
        recipe: the target's or the draft's.
        token_ids: [V], what the entries stand for.
        vocab_size: how many ids those belong to.
        stream, position, draft_index, seed: the key of the noise.
        invalid: the status of a row that cannot be used.
    """

    raw_logits: Floats = field(eq=False)
    logits: Floats = field(eq=False)
    recipe: Recipe
    token_ids: Integers = field(eq=False)
    vocab_size: int
    stream: int
    position: int
    draft_index: int
    seed: int
    invalid: Status

    @property
    def status(self) -> Status:
        """Whether anything can be drawn."""
        return Status.OK if is_usable(self.logits) else self.invalid

    @cached_property
    def draw(self) -> Draw | None:
        """The token, or None if nothing can be drawn."""
        if self.status is not Status.OK:
            return None
        key = (self.stream, self.position, self.draft_index)
        return Draw(self._law, Noise(self.seed), key)

    def row_logprobs(self, *, processed: bool) -> RowLogprobs:
        """Logprobs of the row."""
        return RowLogprobs.of(self.raw_logits, self.logits, self.recipe, processed=processed)

    @cached_property
    def _law(self) -> Law:
        return place(law_of(self.logits, self.recipe), self.token_ids, self.vocab_size)


def split_sample(batch: SampleBatch, params: SamplingTensors) -> list[SampleOracle]:
    """The rows of a batch, in its order."""
    is_target, width = batch.draft_index is None, batch.logits.shape[1]
    recipes = recipes_of(params.target if is_target else params.draft)
    adjustments, slots = adjustments_of(params), slots_of(batch.slot_ids, batch.num_reqs)
    token_ids, seeds = id_map(batch.draft_to_target, width), seeds_of(params)
    positions = batch.positions.tolist()
    rows = []
    for request, raw in enumerate(floats(batch.logits)):
        logits = raw
        if is_target:
            counts = seen(batch.token_counts, slots[request], width)
            logits = adjust(raw, adjustments[request], *counts)
        rows.append(
            SampleOracle(
                raw_logits=raw,
                logits=logits,
                recipe=recipes[request],
                token_ids=token_ids,
                vocab_size=batch.target_vocab_size or width,
                stream=int(batch.stream),
                position=positions[request],
                draft_index=batch.draft_index or 0,
                seed=seeds[request],
                invalid=Status.TARGET_LOGITS_INVALID if is_target else Status.DRAFT_LOGITS_INVALID,
            )
        )
    return rows
