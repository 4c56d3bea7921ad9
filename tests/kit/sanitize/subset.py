"""`python -m kit.sanitize.subset BACKEND`: small calls of every kind, to be watched by a tool."""

import sys
from collections.abc import Iterator, Sequence
from itertools import product

import torch
from attrs import frozen

from acceptor.backends import load_sampler
from acceptor.core import (
    POLICIES,
    Policy,
    Probabilistic,
    SampleBatch,
    SamplingParams,
    SamplingTensors,
    Strict,
    UnavailableError,
    VerifyBatch,
)

KINDS = tuple(policy for policy in POLICIES.values() if policy != Strict(coupled=True))
"""Coupled drafts are verified as others are."""

RECIPES: tuple[dict[str, float], ...] = (
    {"temperature": 0.8},
    {"temperature": 0.8, "top_k": 20, "top_p": 0.9},
    {"temperature": 0.0},
    {"temperature": 1.2, "top_p": 0.8, "min_p": 0.001},
)
NUM_DRAFTS = 2
NUM_BY_PIECES = 168
NUM_BY_REQUEST = 208
"""Filtered rows of so many are read by a CTA a request on an H200, through shared memory."""

MANY: tuple[tuple[type[Policy], int, tuple[dict[str, float], ...]], ...] = (
    (Strict, NUM_BY_PIECES, (RECIPES[0], RECIPES[2])),
    (Strict, NUM_BY_PIECES, RECIPES[2:3]),
    (Probabilistic, NUM_BY_PIECES, (RECIPES[0], RECIPES[2])),
    (Probabilistic, NUM_BY_PIECES, RECIPES),
    (Probabilistic, NUM_BY_REQUEST, RECIPES),
)


@frozen(eq=False)
class Inputs:
    """One batch's numbers, on the host."""

    target: torch.Tensor
    draft: torch.Tensor
    drafts: torch.Tensor
    params: tuple[SamplingParams, ...]

    @classmethod
    def random(
        cls, num_reqs: int, vocab_size: int, recipes: tuple[dict[str, float], ...]
    ) -> "Inputs":
        """Flat enough rows that filters have something to do."""
        noise = torch.Generator().manual_seed(vocab_size)
        target = 3 * torch.randn(num_reqs, NUM_DRAFTS + 1, vocab_size, generator=noise)
        draft = target[:, :-1] + 0.7 * torch.randn(
            num_reqs, NUM_DRAFTS, vocab_size, generator=noise
        )
        params = tuple(
            SamplingParams(seed=i, **recipes[i % len(recipes)])  # type: ignore[arg-type]
            for i in range(num_reqs)
        )
        return cls(target.bfloat16(), draft.bfloat16(), draft.argmax(-1), params)

    def verify_batch(self, device: str) -> VerifyBatch:
        """The batch on a device."""
        return VerifyBatch.dense(
            target_logits=self.target.to(device),
            draft_token_ids=self.drafts.to(device),
            positions=torch.arange(len(self.params), device=device),
            draft_logits=self.draft.to(device),
        )

    def sample_batch(self, device: str) -> SampleBatch:
        """Its first rows."""
        return SampleBatch(
            logits=self.target[:, 0].contiguous().to(device),
            positions=torch.arange(len(self.params), device=device),
        )


def all_inputs() -> Iterator[Inputs]:
    """Few and many requests, which are launched otherwise; plain, filtered, greedy."""
    yield Inputs.random(4, 4096, RECIPES[:1])
    yield Inputs.random(4, 1025, RECIPES)
    yield Inputs.random(60, 1025, RECIPES)


def all_calls(policies: Sequence[Policy]) -> Iterator[tuple[Inputs, Policy]]:
    """Every policy on all inputs; some also on many requests, whose rows are read otherwise."""
    yield from product(all_inputs(), policies)
    for kind, num_reqs, recipes in MANY:
        for policy in policies:
            if isinstance(policy, kind):
                yield Inputs.random(num_reqs, 17_160, recipes), policy


def run(backend: str, policies: Sequence[Policy]) -> tuple[int, int]:
    """Run everything; how many calls there were, and how many differ from the reference's."""
    sampler, reference = load_sampler(backend), load_sampler("reference")
    num_calls = different = 0
    for inputs, policy in all_calls(policies):
        on_host, on_device = (SamplingTensors.stack(inputs.params, d) for d in ("cpu", "cuda"))
        try:
            got = sampler.verify(inputs.verify_batch("cuda"), on_device, policy)
        except UnavailableError:
            continue
        expected = reference.verify(inputs.verify_batch("cpu"), on_host, policy)
        pairs = [(got.token_ids, expected.token_ids)]
        if policy == KINDS[0]:
            drawn = sampler.sample(inputs.sample_batch("cuda"), on_device)
            want = reference.sample(inputs.sample_batch("cpu"), on_host)
            pairs.append((drawn.token_ids, want.token_ids))
        num_calls += len(pairs)
        different += sum(not torch.equal(got.cpu(), want) for got, want in pairs)
    torch.cuda.synchronize()
    return num_calls, different


def main(backend: str, *names: str) -> int:
    """Run the policies of these names, or all; 0 if nothing differs."""
    policies = [policy for policy in KINDS if not names or policy.name in names]
    num_calls, different = run(backend, policies)
    sys.stdout.write(f"{num_calls} calls, {different} differ\n")
    return min(different, 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
