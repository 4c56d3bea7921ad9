"""A draft model with its own vocabulary: which of its tokens the target has, too.

Only shared tokens are drafted: the draft model's logits are cut to them before a token is drawn and
before they are kept for verification, so both use the same law. Whatever the model reads, the law
stays consistent, so a target token that it lacks may be read as any other.
"""

from collections.abc import Mapping

import torch
from attrs import frozen
from torch import Tensor

from ..adapters.error_text import unfit
from ..core import InvalidInputError
from ..core.checks import check_integers
from ..core.policies.parameters import derived


@frozen(eq=False, kw_only=True)
class DraftVocabulary:
    """The tokens that a draft model and its target share.

    Attributes:
        draft_ids: [num_shared] int64, their ids in the draft model.
        draft_to_target: [num_shared] int64, their ids in the target, in the same order.
        target_to_draft: [target_vocab_size] int64, the id that the draft model reads for each
            token of the target.
    """

    draft_ids: Tensor
    draft_to_target: Tensor
    target_to_draft: Tensor
    target_vocab_size: int = derived(lambda self: len(self.target_to_draft))

    @classmethod
    def of(
        cls,
        target_ids: Mapping[int, int],
        target_vocab_size: int,
        *,
        unknown_id: int = 0,
        device: torch.device | None = None,
    ) -> "DraftVocabulary":
        """Map the vocabulary of a draft model.

        Args:
            target_ids: draft id -> target id of every token that both have.
            unknown_id: the draft id that stands for tokens that the draft model lacks.

        Raises:
            InvalidInputError: no token is shared, or two share a target id, or an id is not in the
                target's vocabulary.
        """
        different = set(target_ids.values())
        if not target_ids or len(different) < len(target_ids):
            expected = "one target id for each of at least one draft id"
            got = f"{len(target_ids)} draft ids and {len(different)} target ids"
            raise unfit("target_ids", expected, got, InvalidInputError)
        check_integers("target_ids", tuple(different), 0, target_vocab_size - 1)
        draft_ids, shared = torch.tensor(sorted(target_ids.items())).T.contiguous()
        target_to_draft = torch.full((target_vocab_size,), unknown_id)
        target_to_draft[shared] = draft_ids
        return cls(
            draft_ids=draft_ids.to(device),
            draft_to_target=shared.to(device),
            target_to_draft=target_to_draft.to(device),
        )


def shared_target_ids(draft: Mapping[str, int], target: Mapping[str, int]) -> dict[int, int]:
    """Draft id -> target id of each token that two vocabularies, token -> id, spell alike."""
    return {draft[token]: target[token] for token in draft.keys() & target.keys()}
