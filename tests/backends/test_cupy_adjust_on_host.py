"""Bias and penalties of the CUDA sources, built by g++, against the reference's, rounded once."""

import ctypes
from pathlib import Path

import pytest
import torch
from torch import Tensor

from acceptor.backends.cupy_backend.variant import KernelPolicy, Variant
from acceptor.backends.reference.statistics import SeenTokens, adjust_logits
from acceptor.core import SamplingParams, SamplingTensors
from acceptor.tests.kit.cuda_on_host import GXX, build_on_host

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GXX is None, reason="builds the kernels with g++"),
]
VOCAB_SIZE = 1300
NUM_BEFORE = 2
pointer, i64, i32, f32 = ctypes.c_void_p, ctypes.c_longlong, ctypes.c_int, ctypes.c_float


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return _build(tmp_path_factory.mktemp("adjust"))


def _build(directory: Path) -> ctypes.CDLL:
    library = build_on_host(
        "adjust_on_host", Variant(KernelPolicy.STRICT, torch.float32), directory
    )
    library.adjust.restype = None
    library.adjust.argtypes = [pointer, pointer, i32, pointer, pointer, f32, f32, f32]
    library.adjust.argtypes += [pointer, i32, i64, pointer, pointer]
    return library


def _adjust(
    library: ctypes.CDLL, logits: Tensor, params: SamplingTensors, seen: SeenTokens, drafts: Tensor
) -> tuple[Tensor, Tensor]:
    bias, penalties = params.bias, params.penalties
    assert bias is not None
    assert penalties is not None
    values = (penalties.repetition, penalties.presence, penalties.frequency)
    prompt, output = seen.in_prompt[0], seen.in_output[0].int()
    output[drafts[:NUM_BEFORE]] -= 1
    by_block, by_token = logits.clone(), logits.clone()
    library.adjust(
        bias.token_ids.data_ptr(),
        bias.values.data_ptr(),
        bias.token_ids.shape[1],
        prompt.data_ptr(),
        output.data_ptr(),
        *(float(value) for value in values),
        drafts.data_ptr(),
        NUM_BEFORE,
        VOCAB_SIZE,
        by_block.data_ptr(),
        by_token.data_ptr(),
    )
    return by_block, by_token


@pytest.mark.parametrize("seed", range(4))
def test_adjusted_logits_are_the_reference_s_rounded_once(library: ctypes.CDLL, seed: int) -> None:
    noise = torch.Generator().manual_seed(seed)
    logits = 6 * torch.randn(VOCAB_SIZE, generator=noise)
    biased = torch.randperm(VOCAB_SIZE, generator=noise)[:250].tolist()
    wanted = SamplingParams(
        seed=0,
        logit_bias={token: 0.1 * (token % 60 - 30) for token in biased},
        repetition_penalty=1.3,
        presence_penalty=0.7,
        frequency_penalty=0.1,
    )
    params = SamplingTensors.stack([wanted])
    drafts = torch.randperm(VOCAB_SIZE, generator=noise)[: NUM_BEFORE + 1]
    counts = torch.randint(-3, 4, (1, VOCAB_SIZE), generator=noise).clamp(min=0)
    counts[0, drafts[:NUM_BEFORE]] += 1
    seen = SeenTokens(torch.rand((1, VOCAB_SIZE), generator=noise) < 0.3, counts)
    expected = adjust_logits(logits[None], params, torch.tensor([0]), seen)[0].float()
    by_block, by_token = _adjust(library, logits, params, seen, drafts)
    assert torch.equal(by_block, expected)
    assert torch.equal(by_token, expected)
