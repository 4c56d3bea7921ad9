"""The drafts of a step, and the decisions about them, which are read back from the device once."""

from collections.abc import Iterable, Sequence
from itertools import repeat

import torch
from attrs import frozen
from torch import Tensor

from ..core import PADDING_TOKEN_ID, Logprobs, Status, VerifyOutput
from .request import TokenKind, TokenLogprobs

FATAL = Status.TARGET_LOGITS_INVALID | Status.DRAFT_LOGITS_INVALID | Status.NOTHING_ALLOWED
"""The status bits that end a request."""


@frozen(eq=False)
class Draft:
    """The drafts of one step, cut to useful lengths, as the target reads them.

    Attributes:
        chain: [num_reqs, num_tokens + 1] int64, the last known token and then the draft.
        positions: [num_reqs, num_tokens + 1] int64, the position of each token of the chain.
        status: [num_reqs, num_tokens] int32; this and the other fields are as in `Drawn`.
    """

    chain: Tensor
    positions: Tensor
    status: Tensor
    logits: Tensor | None = None
    draft_to_target: Tensor | None = None

    @property
    def token_ids(self) -> Tensor:
        """[num_reqs, num_tokens] int64, a view; -1 ends a draft early."""
        return self.chain[:, 1:]


@frozen
class Verdict:
    """The decision of one step about one request.

    Attributes:
        token_ids: accepted draft tokens, then the token that follows them unless it failed.
        logprobs: one entry per token; empty if not requested.
        total_variation: one value per token; empty if the policy reports none.
    """

    token_ids: Sequence[int]
    num_draft_tokens: int
    num_accepted: int
    status: Status = Status.OK
    logprobs: Sequence[TokenLogprobs] = ()
    total_variation: Sequence[float] = ()

    def kind(self, place: int) -> TokenKind:
        """The kind of the token at this place."""
        if place < self.num_accepted:
            return TokenKind.ACCEPTED
        if self.num_draft_tokens == 0:
            return TokenKind.PLAIN
        all_accepted = self.num_accepted == self.num_draft_tokens
        return TokenKind.BONUS if all_accepted else TokenKind.RECOVERED


def pack(draft: Draft, output: VerifyOutput) -> Tensor:
    """Pack all integers of a step that the host needs, so that it reads once.

    Returns:
        [num_reqs, 3 * num_tokens + 3] int32: the number accepted and the status, draft token ids
        and their status, and emitted token ids.
    """
    numbers = (output.num_accepted[:, None], output.status[:, None])
    return torch.cat((*numbers, draft.token_ids.int(), draft.status, output.token_ids.int()), 1)


def read_verdicts(packed: Tensor, output: VerifyOutput) -> list[Verdict]:
    """One verdict per request; waits, and reads again if the output is not completely packed."""
    on_host, variation = packed.tolist(), output.total_variation
    logprobs = repeat(()) if output.logprobs is None else _read_logprobs(output.logprobs)
    variations = repeat(()) if variation is None else variation.tolist()
    return list(map(_verdict, on_host, logprobs, variations))


def _verdict(
    row: list[int], logprobs: Sequence[TokenLogprobs], total_variation: Sequence[float]
) -> Verdict:
    num_accepted, status, *tokens = row
    num_tokens = len(tokens) // 3
    drafted, token_ids = tokens[:num_tokens], tokens[2 * num_tokens :]
    num_drafted, num_emitted = _num_before_padding(drafted), _num_before_padding(token_ids)
    broke_off = tokens[num_tokens + num_drafted] if num_drafted < num_tokens else 0
    if broke_off and num_accepted == num_drafted:
        # The sampler saw a shorter draft and drew a token after it; the request must stop there.
        num_emitted, status = num_drafted, status | broke_off
    return Verdict(
        token_ids=token_ids[:num_emitted],
        num_draft_tokens=num_drafted,
        num_accepted=num_accepted,
        # Making a flag costs more than all else here, and nearly all are OK.
        status=Status(status) if status else Status.OK,
        logprobs=logprobs,
        total_variation=total_variation,
    )


def _num_before_padding(token_ids: list[int]) -> int:
    return token_ids.index(PADDING_TOKEN_ID) if PADDING_TOKEN_ID in token_ids else len(token_ids)


def _read_logprobs(logprobs: Logprobs) -> Iterable[list[TokenLogprobs]]:
    parts = (logprobs.emitted, logprobs.top_token_ids, logprobs.top)
    requests = zip(*(part.tolist() for part in parts), strict=True)
    return [
        [
            TokenLogprobs(emitted, tuple(zip(token_ids, values, strict=True)))
            for emitted, token_ids, values in zip(*request, strict=True)
        ]
        for request in requests
    ]
