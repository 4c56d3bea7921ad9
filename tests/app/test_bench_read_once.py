"""The kernel of the floor reads every word exactly once."""

import pytest
import torch

pytestmark = pytest.mark.gpu


def test_every_word_is_read_once() -> None:
    from acceptor.app.bench.kernels.read_once import SHAPES, ReadOnce  # noqa: PLC0415, has Triton

    words = torch.arange(20_001, dtype=torch.int32, device="cuda")
    for shape in SHAPES:
        maxima = [int(part.max()) for part in words.split(shape[0])]
        assert ReadOnce(words, shape)().tolist() == maxima
