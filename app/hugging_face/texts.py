"""A batch in the layout of transformers: left-padded prompts in one tensor, and their outputs.

Under speculation the rows grow unequally. Readers of a step's ids see, length by length, a prefix
of the whole batch, in which shorter rows end with padding.
"""

from collections import defaultdict
from collections.abc import Sequence

import torch
from attrs import define, field
from torch import Tensor

from ...adapters.error_text import unfit
from ...core import PADDING_TOKEN_ID, AcceptanceStatistics, InvalidInputError
from ...core.checks import check_integer, check_integers, check_tensor


@define(eq=False)
class Row:
    """One text.

    Attributes:
        index: its place in the batch, and its slot.
        num_padding: how many pad tokens precede it.
        token_ids: prompt and output.
    """

    index: int
    num_padding: int
    token_ids: list[int]
    statistics: AcceptanceStatistics = field(factory=AcceptanceStatistics)
    is_finished: bool = False

    @property
    def width(self) -> int:
        """Its length, padding included."""
        return self.num_padding + len(self.token_ids)


@define(eq=False)
class Texts:
    """The rows of a batch, on the host and in a tensor.

    Attributes:
        prompt_width: the prompts' width, padding included.
        pad_token_id: fills places without a token.
        token_ids: [num_rows, room] int64.
        kept: "logits", raw, or "scores", processed, for each step [num_rows, vocab_size] float32;
            0 for rows that have ended.
    """

    rows: Sequence[Row]
    prompt_width: int
    pad_token_id: int
    token_ids: Tensor
    kept: dict[str, list[Tensor]] = field(factory=lambda: defaultdict(list), init=False)

    @classmethod
    def of(
        cls, input_ids: Tensor, attention_mask: Tensor | None, room: int, pad_token_id: int
    ) -> "Texts":
        """Put prompts into a tensor that is `room` wide.

        Args:
            input_ids: [num_rows, prompt_width] int64.
            attention_mask: the same shape, zeros before each prompt; None for all ones.
            room: the tensor's width.
            pad_token_id: fills places without a token.

        Raises:
            InvalidInputError: there is no prompt, an id is negative, or padding is not on the left.
        """
        num_rows, width = input_ids.shape
        check_integer("input_ids.shape[0]", num_rows, 1)
        check_integer("input_ids.shape[1]", width, 1)
        padding = [0] * num_rows
        if attention_mask is not None:
            padding = _padding(attention_mask, input_ids)
        token_ids = input_ids.new_full((num_rows, room), pad_token_id)
        token_ids[:, :width] = input_ids
        known = zip(padding, input_ids.tolist(), strict=True)
        rows = [Row(index, before, ids[before:]) for index, (before, ids) in enumerate(known)]
        for row in rows:
            check_integers("input_ids", row.token_ids, 0)
        return cls(rows, width, pad_token_id, token_ids)

    def check_positions(self, position_ids: Tensor | None) -> None:
        """Raise `InvalidInputError` unless a prompt's tokens are at 0, 1, 2, …, as None means."""
        if position_ids is None:
            return
        padding = position_ids.new_tensor([[row.num_padding] for row in self.rows])
        # Without padding `generate` makes one row of positions for all.
        padding = padding if padding.any() else padding[:1]
        places = torch.arange(self.prompt_width, device=padding.device) - padding
        is_fit = position_ids.dim() == 2 and position_ids.shape[1] == self.prompt_width
        if not is_fit or bool(((position_ids != places) & (places >= 0)).any()):
            expected = "the place of each token behind the padding"
            raise unfit("position_ids", expected, "others", InvalidInputError)

    @property
    def unfinished(self) -> list[Row]:
        """Rows that have not ended."""
        return [row for row in self.rows if not row.is_finished]

    @property
    def width(self) -> int:
        """The longest row's width."""
        return max(row.width for row in self.rows)

    def prefix(self, width: int) -> Tensor:
        """[num_rows, width], a copy that its reader may keep."""
        return self.token_ids[:, :width].contiguous()

    def keep(self, name: str, row: Row, scores: Tensor) -> None:
        """Keep the logits or scores of a row's next tokens, [num_tokens, vocab_size]."""
        steps = self.kept[name]
        for step, one in enumerate(scores, row.width - self.prompt_width):
            if step == len(steps):
                steps.append(one.new_zeros((len(self.rows), len(one)), dtype=torch.float32))
            steps[step][row.index] = one

    def write(self, rows: Sequence[Row], token_ids: Tensor) -> None:
        """Write drafts after rows without appending them: [len(rows), num_tokens], -1 for none."""
        ids = token_ids.masked_fill(token_ids == PADDING_TOKEN_ID, self.pad_token_id)
        index = torch.tensor([[row.index] for row in rows], device=ids.device)
        first = torch.tensor([[row.width] for row in rows], device=ids.device)
        self.token_ids[index, first + torch.arange(ids.shape[1], device=ids.device)] = ids

    def end(self, row: Row, width: int) -> None:
        """End a row at a width, and drop its tokens after that."""
        del row.token_ids[width - row.num_padding :]
        for steps in self.kept.values():
            for step in steps[width - self.prompt_width :]:
                step[row.index] = 0
        self.token_ids[row.index, width:] = self.pad_token_id
        row.is_finished = True


def _padding(attention_mask: Tensor, input_ids: Tensor) -> list[int]:
    dtypes = (torch.int64, torch.int32, torch.bool)
    check_tensor("attention_mask", attention_mask, input_ids.shape, dtypes, input_ids.device)
    mask = attention_mask != 0
    padding: list[int] = (~mask).sum(1).tolist()
    is_left = (mask.int().diff(dim=1) >= 0).all()
    if not is_left or max(padding) == input_ids.shape[1]:
        raise InvalidInputError(
            "attention_mask: expected zeros on the left of each prompt and ones for its tokens, "
            f"got {mask.int().tolist()}"
        )
    return padding
