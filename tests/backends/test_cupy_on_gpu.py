"""The CuPy backend on a GPU, at the sizes of real vocabularies, against the reference."""

import pytest
import torch

from acceptor.backends import load_sampler
from acceptor.core import (
    Block,
    Policy,
    Probabilistic,
    SamplingParams,
    SamplingTensors,
    Strict,
    VerifyBatch,
)

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("filters", [{}, {"top_k": 50, "top_p": 0.9}, {"top_p": 0.95}])
@pytest.mark.parametrize("policy", [Probabilistic(), Strict(), Block()], ids=lambda p: p.name)
@pytest.mark.parametrize("vocab_size", [151_936, 50_257])
def test_tokens_are_the_reference_s(
    policy: Policy, filters: dict[str, float], vocab_size: int
) -> None:
    noise = torch.Generator(device="cuda").manual_seed(vocab_size)
    num_reqs, num_spec_tokens = 8, 3
    target = 3 * torch.randn(
        num_reqs, num_spec_tokens + 1, vocab_size, device="cuda", generator=noise
    )
    draft = target[:, :-1] + 0.7 * torch.randn(
        num_reqs, num_spec_tokens, vocab_size, device="cuda", generator=noise
    )
    drawn = torch.multinomial(draft.flatten(0, 1).softmax(-1), 1, generator=noise)
    batch = VerifyBatch.dense(
        target_logits=target.bfloat16(),
        draft_token_ids=drawn.view(num_reqs, num_spec_tokens),
        positions=torch.arange(num_reqs, device="cuda"),
        draft_logits=draft.bfloat16(),
    )
    params = SamplingTensors.stack(
        [SamplingParams(seed=i, temperature=0.8, **filters) for i in range(num_reqs)],  # type: ignore[arg-type]
        "cuda",
    )
    expected = load_sampler("reference").verify(batch, params, policy)
    got = load_sampler("cupy").verify(batch, params, policy)
    assert torch.equal(got.token_ids, expected.token_ids)
    assert torch.equal(got.num_accepted, expected.num_accepted)


def test_a_graph_replays_with_new_logits() -> None:
    sampler = load_sampler("cupy")
    logits = torch.zeros(2, 3, 1000, device="cuda")
    batch = VerifyBatch.dense(
        target_logits=logits,
        draft_token_ids=torch.full((2, 2), 7, device="cuda"),
        positions=torch.zeros(2, dtype=torch.int64, device="cuda"),
    )
    params = SamplingTensors.stack([SamplingParams(seed=i, temperature=0) for i in (0, 1)], "cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        sampler.verify(batch, params, Probabilistic())
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        output = sampler.verify(batch, params, Probabilistic())
    logits[:, :, 7] = 1.0
    graph.replay()
    torch.cuda.synchronize()
    assert output.token_ids.tolist() == [[7, 7, 7], [7, 7, 7]]
