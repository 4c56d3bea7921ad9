"""One request as the contract sees it: the end of its draft, its laws and its draws, on demand.

`split_verify` and `split_sample` take a batch apart into such requests.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise, takewhile

import numpy as np
import torch
from attrs import astuple, evolve, fields_dict, frozen
from torch import Tensor

from ....core import Recipe, RecipeTensors, SampleBatch, SamplingTensors, Status, VerifyBatch
from ....core.token_counts import TokenCounts
from .filters import Flags, Floats
from .law import Adjustments, Integers, Law, adjust, forbid, is_usable, law_of, one_hot, place
from .race import TARGET, Draw, uniforms

NO_DRAFT = np.zeros(0, dtype=np.int64)


@frozen(eq=False, kw_only=True)
class RequestView:
    """One request's share of a batch. A plain draw is a verification without a draft.

    Attributes:
        target_logits: [K + 1, V], raw.
        target_ids: [V], the id of each entry of a row; None if entry i is id i.
        vocab_size: the size of the vocabulary that those ids belong to.
        draft_token_ids: [K], unchanged, bad ones included.
        draft_logits: [K, draft V], raw; None if the draft is one-hot or the policy ignores them.
        draft_to_target: [draft V], the target id of each draft id.
        first_position, first_index: position and draft index of the first row's noise.
        stream: the stream that a row's tokens are drawn with.
        seed: 64 bits.
        recipe, draft_recipe: turn logits into p and q.
        adjustments: bias and penalties.
        in_prompt, output_counts: [V], the tokens that penalties count.
        allowed: the mask of each row, [V]; None for a row without one.
        logprobs_processed: whether logprobs are those of the recipe's law.
        invalid: the status of an unusable row.
        bonus_name: what to call the token after a fully accepted draft.
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
        """The draft up to its first id that is not a token."""
        ids = self.draft_token_ids.tolist()
        return [*takewhile(lambda token_id: 0 <= token_id < self.vocab_size, ids)]

    @cached_property
    def drafts(self) -> list[int]:
        """`named_drafts` up to the first unusable row."""
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
        """Why no token can be drawn after the draft; OK if one can."""
        row = len(self.drafts)
        if not is_usable(self.target_rows[row]):
            nothing = self.allowed[row] is not None and (self.target_rows[row] == -np.inf).all()
            return Status.NOTHING_ALLOWED if nothing else self.invalid
        return Status.OK if row == len(self.named_drafts) else Status.DRAFT_LOGITS_INVALID

    @cached_property
    def target_rows(self) -> list[Floats]:
        """Logits after bias, penalties and masks; penalties count the drafts before the row."""
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
        """The acceptance uniforms of the draft tokens."""
        return uniforms(self.seed, self.first_position, len(self.drafts))

    def draw(self, law: Law, stream: int, row: int) -> Draw:
        """Draw one token for a row."""
        key = (self.seed, stream, self.first_position + row, self.first_index + row)
        return Draw(law, key)

    @property
    def _draft_rows(self) -> Floats | None:
        # A greedy draft is one-hot at its token: its logits are not read.
        return None if self.draft_recipe.is_greedy else self.draft_logits


def split_verify(batch: VerifyBatch, params: SamplingTensors) -> list[RequestView]:
    """The requests of a batch, in its order."""
    logits, drafted = _floats(batch.target_logits), _integers(batch.draft_token_ids)
    draft = None if batch.draft_logits is None else _floats(batch.draft_logits)
    width = batch.vocab_size if draft is None else draft.shape[-1]
    slots, entries = (
        range(batch.num_reqs) if ids is None else ids.tolist()
        for ids in (batch.slot_ids, params.slot_ids)
    )
    counts = batch.token_counts or TokenCounts.empty(max(slots, default=-1) + 1, batch.vocab_size)
    of_requests = zip(pairwise(batch.cu_num_logits.tolist()), slots, entries, strict=True)
    return [
        RequestView(
            target_logits=logits[start:end],
            vocab_size=batch.vocab_size,
            first_position=int(batch.positions[request]),
            # Undo the two's complement.
            seed=int(params.seeds[entry]) % 2**64,
            recipe=_recipe(params.target, entry),
            draft_recipe=_recipe(params.draft, entry),
            adjustments=_adjustments(params, entry),
            in_prompt=counts.prompt_mask[slot].numpy(),
            output_counts=_integers(counts.output_counts[slot]),
            allowed=[_mask(batch, row) for row in range(start, end)],
            logprobs_processed=bool(params.logprobs_processed[entry]),
            draft_token_ids=drafted[request, : end - start - 1],
            draft_logits=None if draft is None else draft[slot, : end - start - 1],
            draft_to_target=_id_map(batch.draft_to_target, width),
        )
        for request, ((start, end), slot, entry) in enumerate(of_requests)
    ]


def split_sample(batch: SampleBatch, params: SamplingTensors) -> list[RequestView]:
    """The rows of a batch, in its order, each as a verification of an empty draft."""
    names = ("positions", "slot_ids", "token_counts", "allowed_tokens", "allowed_rows")
    rows = VerifyBatch(
        target_logits=batch.logits,
        cu_num_logits=torch.arange(batch.num_reqs + 1),
        draft_token_ids=torch.zeros(batch.num_reqs, 0, dtype=torch.int64),
        **{name: getattr(batch, name) for name in names},
    )
    drawn = [evolve(view, bonus_name="drawn token") for view in split_verify(rows, params)]
    if batch.draft_index is None:
        return drawn
    # A draft draw has its own recipe and ids, and neither bias nor penalties.
    return [
        evolve(
            view,
            vocab_size=batch.vocab_size,
            target_ids=_id_map(batch.draft_to_target, view.vocab_size),
            first_index=batch.draft_index,
            stream=int(batch.stream),
            recipe=view.draft_recipe,
            adjustments=Adjustments(),
            invalid=Status.DRAFT_LOGITS_INVALID,
        )
        for view in drawn
    ]


def _floats(tensor: Tensor) -> Floats:
    return tensor.detach().to("cpu", torch.float64).numpy()


def _integers(tensor: Tensor) -> Integers:
    return tensor.cpu().numpy().astype(np.int64)


def _mask(batch: VerifyBatch, row: int) -> Flags | None:
    """The mask of a row of logits."""
    masks, rows = batch.allowed_tokens, batch.allowed_rows
    place = row if rows is None else int(rows[row])
    if masks is None or place < 0:
        return None
    # Lowest bit and lowest byte first, on machines of any byte order.
    words = masks[place].numpy().astype("<i4")
    flags = np.unpackbits(words.view(np.uint8), count=batch.vocab_size, bitorder="little")
    return flags.astype(bool)


def _id_map(draft_to_target: Tensor | None, draft_vocab_size: int) -> Integers:
    """The target id of each draft id."""
    return np.arange(draft_vocab_size) if draft_to_target is None else _integers(draft_to_target)


def _recipe(recipes: RecipeTensors, request: int) -> Recipe:
    """A request's recipe, with its numbers as float32 tensors hold them."""
    return Recipe(**{name: getattr(recipes, name)[request].item() for name in fields_dict(Recipe)})


def _adjustments(params: SamplingTensors, request: int) -> Adjustments:
    bias = {}
    if params.bias is not None:
        pairs = zip(*(rows[request].tolist() for rows in astuple(params.bias)), strict=True)
        bias = {token_id: value for token_id, value in pairs if token_id >= 0}
    penalties = () if params.penalties is None else astuple(params.penalties)
    return Adjustments(bias, *(values[request].item() for values in penalties))
