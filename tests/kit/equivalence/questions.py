"""What backends are asked, what they answer, and what the oracle says of it; refuses to compare."""

from typing import Any

from attrs import define, field, frozen

from acceptor.backends.conformance import Findings, judge_sample, judge_verify
from acceptor.backends.conformance.oracle import RequestOracle, split_sample, split_verify
from acceptor.backends.conformance.oracle.logprobs import RowLogprobs
from acceptor.core import (
    Policy,
    SampleBatch,
    SampleOutput,
    Sampler,
    SamplingTensors,
    VerifyBatch,
    VerifyOutput,
)
from kit.no_workspace import NoWorkspace

Answer = tuple[tuple[int, ...] | int, ...]
"""One request's tokens, how many of them it accepted, and its status; a draw accepts nothing."""


@frozen(eq=False)
class Verified:
    """A verification and what came back."""

    batch: VerifyBatch
    params: SamplingTensors
    policy: Policy
    output: VerifyOutput

    def judge(self) -> Findings:
        """Against the oracle."""
        return judge_verify(self.batch, self.params, self.policy, self.output)

    def row_logprobs(self, request: int, place: int) -> RowLogprobs:
        """The oracle's, of the row that decides a place."""
        oracle = RequestOracle(split_verify(self.batch, self.params)[request], self.policy)
        return RowLogprobs.of(
            oracle.inputs.target_logits[place],
            oracle.view.target_rows[place],
            oracle.inputs.recipe,
            processed=bool(self.params.logprobs_processed[request]),
        )


@frozen(eq=False)
class Sampled:
    """A draw and what came back."""

    batch: SampleBatch
    params: SamplingTensors
    output: SampleOutput

    def judge(self) -> Findings:
        """Against the oracle."""
        return judge_sample(self.batch, self.params, self.output)

    def row_logprobs(self, request: int, _: int) -> RowLogprobs:
        """The oracle's, of the only row."""
        oracle = split_sample(self.batch, self.params)[request]
        processed = bool(self.params.logprobs_processed[request])
        return RowLogprobs.of(oracle.raw_logits, oracle.row, oracle.recipe, processed=processed)


Asked = Verified | Sampled


def answers(output: VerifyOutput | SampleOutput) -> list[Answer]:
    """Request by request."""
    tokens, status = output.token_ids.tolist(), output.status.tolist()
    if isinstance(output, SampleOutput):
        return [*zip(tokens, status, strict=True)]
    return [*zip(map(tuple, tokens), output.num_accepted.tolist(), status, strict=True)]


@define
class Heard(NoWorkspace):
    """A sampler that keeps the first answer to each question of one batch.

    Later answers are to the same question in another arrangement of the batch, where a backend must
    say the same anyway.

    Attributes:
        sampler: who answers.
        asked: the verification, the plain draw, and the draft's draw at each place.
    """

    sampler: Sampler
    asked: dict[str, Asked] = field(factory=dict)

    def verify(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy, **memory: Any
    ) -> VerifyOutput:
        """See `Sampler.verify`."""
        output = self.sampler.verify(batch, params, policy, **memory)
        self.asked.setdefault("verify", Verified(batch, params, policy, output))
        return output

    def sample(self, batch: SampleBatch, params: SamplingTensors, **memory: Any) -> SampleOutput:
        """See `Sampler.sample`."""
        output = self.sampler.sample(batch, params, **memory)
        place = "plain" if batch.draft_index is None else batch.draft_index
        self.asked.setdefault(f"sample {place}", Sampled(batch, params, output))
        return output
