"""A draft vocabulary's map is inverted and checked once, when it is first seen."""

import pytest
import torch

from acceptor.backends import inverse_maps, load_sampler
from acceptor.backends.inverse_maps import InverseMaps
from acceptor.core import InvalidInputError, Probabilistic, SampleBatch, VerifyBatch
from kit.batches import dense, stacked

WRONG = {
    "ids outside": ([0, 1, 12], r"expected integers in \[0, 11\], got 12"),
    "negative ids": ([0, 1, -1], r"expected integers in \[0, 11\], got -1"),
    "offsets": ([0, 2, 2], r"expected each target id once, not EAGLE's offsets .*, got 2 twice"),
}
PARAMS = stacked(1)


def verification(draft_to_target: torch.Tensor) -> VerifyBatch:
    draft_logits = torch.zeros(1, 1, 3)
    logits = torch.zeros(1, 2, 12)
    return dense(logits, draft_logits=draft_logits, draft_to_target=draft_to_target)


@pytest.mark.parametrize(("values", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_map_is_refused_wherever_it_is_first_seen(values: list[int], message: str) -> None:
    sampler, wrong = load_sampler("reference"), torch.tensor(values)
    draw = SampleBatch(
        logits=torch.zeros(1, 3),
        positions=torch.tensor([3]),
        draft_index=1,
        draft_to_target=wrong,
        target_vocab_size=12,
    )
    for _ in range(2):
        with pytest.raises(InvalidInputError, match=f"^draft_to_target: {message}"):
            InverseMaps().of(wrong, 12)
        with pytest.raises(InvalidInputError, match=f"^draft_to_target: {message}"):
            sampler.verify(verification(wrong), PARAMS, Probabilistic())
        with pytest.raises(InvalidInputError, match=f"^draft_to_target: {message}"):
            sampler.sample(draw, PARAMS)


def test_a_map_is_looked_at_once_for_each_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(inverse_maps, "check_map", lambda _, size: looks.append(size))
    inverses, id_map = InverseMaps(), torch.tensor([4, 0, 2])
    first = inverses.of(id_map, 5)
    assert inverses.of(id_map, 5) is first
    assert first is not None
    assert first.tolist() == [1, -1, 2, -1, 0]
    inverses.of(id_map, 6)
    assert looks == [5, 6]


def test_nothing_waits_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    inverses, wrong, right = InverseMaps(), torch.tensor([1, 1]), torch.tensor([1, 0])
    known = inverses.of(right, 2)
    with monkeypatch.context() as capturing:
        capturing.setattr(torch.Tensor, "is_cuda", True, raising=False)
        capturing.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        assert inverses.of(wrong, 2) is not None
        assert inverses.of(right, 2) is known
    with pytest.raises(InvalidInputError):
        inverses.of(wrong, 2)
