"""What the engine emits with Triton's sampler, in its interpreter, beside the reference's.

`TRITON_INTERPRET=1 python -m kit.triton_engine` fails where they differ, drafts that were accepted
included. A process of its own, because the interpreter must be chosen before Triton is imported.
"""

import sys

from attrs import evolve

from acceptor.app.decoder import Decoder
from acceptor.app.model_drafter import ModelDrafter
from acceptor.app.request import GenerationRequest
from acceptor.backends import load_sampler
from acceptor.core import Policy, Probabilistic, SamplingParams, Strict
from kit.toy_pair import Pair

REQUESTS = [
    GenerationRequest(
        prompt_token_ids=[seed + 1] * (seed + 1), params=SamplingParams(seed=seed), max_tokens=3
    )
    for seed in range(2)
]


def with_backend(pair: Pair, policy: Policy, backend: str) -> Decoder:
    """One sampler for drafts and for their verification."""
    decoder, sampler = pair.decoder(policy, 2), load_sampler(backend)
    assert isinstance(decoder.drafter, ModelDrafter)
    return evolve(decoder, sampler=sampler, drafter=evolve(decoder.drafter, sampler=sampler))


def main() -> int:
    """The number of policies under which they differ."""
    pair, num_different = Pair.make(), 0
    for policy in (Strict(coupled=True), Probabilistic()):
        want, got = (
            with_backend(pair, policy, backend).generate(REQUESTS)
            for backend in ("reference", "triton")
        )
        if want != got:
            sys.stdout.write(f"{policy.name}: {want} and {got}\n")
            num_different += 1
    return num_different


if __name__ == "__main__":
    sys.exit(main())
