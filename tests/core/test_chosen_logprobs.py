"""Logprobs of chosen ids are those of the rows that the tokens came from."""

import pytest
import torch

from acceptor.backends import load_sampler
from acceptor.core import (
    InvalidInputError,
    LogprobsMode,
    Probabilistic,
    SamplingTensors,
    VerifyBatch,
    chosen_logprobs,
)
from kit.batches import stacked

LENGTHS, VOCAB_SIZE = [2, 0, 3, 1], 9
NOISE = torch.Generator().manual_seed(5)
STARTS = [0, 3, 4, 8, 10]
BATCH = VerifyBatch(
    target_logits=(3 * torch.randn(10, VOCAB_SIZE, generator=NOISE)).bfloat16(),
    cu_num_logits=torch.tensor(STARTS),
    draft_token_ids=torch.randint(VOCAB_SIZE, (4, 3), generator=NOISE),
    positions=torch.tensor([3, 4, 5, 6]),
)
CHOSEN = torch.tensor([[0, 8], [1, 1], [5, 2], [7, 3]])


def verified(**asked: object) -> tuple[SamplingTensors, torch.Tensor, torch.Tensor]:
    params = stacked(4, temperature=0.6, top_k=4, **asked)
    output = load_sampler("reference").verify(BATCH, params, Probabilistic())
    return params, output.token_ids, chosen_logprobs(BATCH, params, output, CHOSEN)


def test_they_are_the_rows_own() -> None:
    _, token_ids, chosen = verified(logprobs=0)
    rows = BATCH.target_logits.float().log_softmax(1)
    for request, start in enumerate(STARTS[:-1]):
        for place, token_id in enumerate(token_ids[request].tolist()):
            if token_id < 0:
                assert chosen[request, place].isnan().all()
            else:
                want = rows[start + place, CHOSEN[request]]
                torch.testing.assert_close(chosen[request, place], want, atol=2e-6, rtol=0)


def test_processed_logprobs_are_not_guessed() -> None:
    _, _, chosen = verified(logprobs=2, logprobs_mode=LogprobsMode.PROCESSED)
    assert chosen.isnan().all()


def test_requests_must_ask_for_logprobs() -> None:
    with pytest.raises(InvalidInputError, match=r"^logprobs: expected"):
        verified()
