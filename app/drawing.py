"""Drawing draft tokens from raw logits, and keeping those for verification."""

from attrs import field, frozen
from torch import Tensor

from ..core.batch import SampleBatch
from ..core.output import SampleOutput
from ..core.policies import Policy
from ..core.ports import Sampler
from .drafter import Drawn
from .frontier import Frontier
from .workspace import Workspace


@frozen(eq=False, kw_only=True)
class Drawing:
    """How one draft is drawn, place after place.

    Attributes:
        sampler: draws.
        policy: names the stream that it draws with.
        frontier: of the requests.
        decided: [num_tokens, num_reqs] int64, the positions of the draft tokens.
        logits: [num_slots, num_spec_tokens, draft_vocab_size], where raw logits are kept; None
            where the policy does not ask for them.
        workspace: of the sampler.
        draft_to_target: [draft_vocab_size] int64, see `SampleBatch`.
        target_vocab_size: see `SampleBatch`.
        drawn: what has been drawn so far.
    """

    sampler: Sampler
    policy: Policy
    frontier: Frontier
    decided: Tensor
    logits: Tensor | None
    workspace: Workspace
    draft_to_target: Tensor | None = None
    target_vocab_size: int | None = None
    drawn: list[SampleOutput] = field(factory=list, init=False)

    def draw(self, logits: Tensor) -> None:
        """Draw the next token of each request from [num_reqs, draft_vocab_size]."""
        place, params = len(self.drawn), self.frontier.params
        if self.logits is not None:
            self.logits[self.frontier.slot_ids, place] = logits
        batch = SampleBatch(
            logits=logits,
            positions=self.decided[place],
            draft_index=place + 1,
            draft_stream=self.policy.draft_stream,
            draft_to_target=self.draft_to_target,
            target_vocab_size=self.target_vocab_size,
        )
        num_bytes = self.sampler.sample_workspace_size(batch, params)
        with self.workspace.for_call(num_bytes, logits.device) as workspace:
            self.drawn.append(self.sampler.sample(batch, params, workspace=workspace))

    @property
    def last_token_ids(self) -> Tensor:
        """[num_reqs, 1] int64, what was drawn last, for a model to read."""
        # A token that was not drawn is -1: read as any other, as nothing behind it counts.
        return self.drawn[-1].token_ids[:, None].clamp(min=0)

    def finish(self) -> Drawn:
        """All of the draft."""
        return Drawn(
            token_ids=[output.token_ids for output in self.drawn],
            status=[output.status for output in self.drawn],
            logits=self.logits,
            draft_to_target=self.draft_to_target,
        )
