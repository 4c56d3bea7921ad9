"""What the kernels between a step's forwards leave, beside what torch's operations do.

`TRITON_INTERPRET=1 python -m kit.step_pieces` prints what differs, in Triton's interpreter. A
process of its own, because the interpreter must be chosen before Triton is imported.
"""

import sys
from collections.abc import Iterator

import torch
from torch import Tensor

from acceptor.adapters.few_tokens.step import REQUESTS, StepKernels
from acceptor.app.step_pieces import PLAIN_PIECES, StepPieces
from acceptor.core.batch import PADDING_TOKEN_ID

LIMIT = 40


def results(pieces: StepPieces, num_reqs: int, num_tokens: int, device: str) -> list[Tensor]:
    """Of all three, one after the other; the same for the same sizes."""
    generator = torch.Generator().manual_seed(num_reqs + num_tokens)

    def integers(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator)

    def drawn(low: int, high: int, dtype: torch.dtype) -> list[Tensor]:
        return [integers(low, high, num_reqs).to(device, dtype) for _ in range(num_tokens)]

    numbers = integers(1, 60, 7, num_reqs)
    numbers[2] = integers(1, LIMIT + 2, num_reqs)
    numbers[3] = integers(0, num_tokens + 2, num_reqs)
    numbers[5] = integers(0, 2, num_reqs)
    numbers = numbers.to(device)
    last, lengths, rooms = numbers[:2].t()[:, 1], numbers[2], numbers[3]
    fed, decided = pieces.places_to_draft(lengths, num_tokens, LIMIT)
    ids, bits = drawn(PADDING_TOKEN_ID, 60, torch.int64), drawn(0, 4, torch.int32)
    chain, positions, status = pieces.chain(ids, bits, last, lengths, rooms, LIMIT)
    emitted = integers(PADDING_TOKEN_ID, 60, num_reqs, num_tokens + 1).to(device)
    counts = integers(0, num_tokens + 1, 2, num_reqs).to(device, torch.int32)
    packed = pieces.hand_over(numbers, chain[:, 1:], status, emitted, *counts)
    return [fed, decided, chain, positions, status, packed, numbers]


def different(device: str) -> Iterator[str]:
    """Sizes at which kernels and operations differ."""
    for num_reqs in (1, 3, 16, REQUESTS + 5):
        for num_tokens in (0, 1, 3, 5):
            sizes = num_reqs, num_tokens, device
            pairs = zip(results(PLAIN_PIECES, *sizes), results(StepKernels(), *sizes), strict=True)
            places = [place for place, pair in enumerate(pairs) if not torch.equal(*pair)]
            if places:
                yield f"{num_reqs} requests, {num_tokens} tokens: results {places}\n"


def main() -> int:
    """All sizes; the number of those that differ."""
    found = list(different("cpu"))
    sys.stdout.writelines(found)
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
