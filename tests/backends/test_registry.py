"""Backends by name, including other distributions', and samplers that check values of calls."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve

from acceptor.backends import BACKENDS, Backend, inverse_maps, load_sampler, registry
from acceptor.backends.inverse_maps import InverseMaps
from acceptor.backends.reference import ReferenceSampler
from acceptor.core import (
    InvalidInputError,
    Probabilistic,
    SampleBatch,
    Sampler,
    SamplingParams,
    SamplingTensors,
    TokenCounts,
    UnavailableError,
    VerifyBatch,
)
from kit.batches import dense, stacked


def test_the_reference_is_always_there() -> None:
    assert isinstance(load_sampler("reference"), ReferenceSampler)
    assert BACKENDS["reference"].missing == ()


def test_an_unknown_name_lists_the_known_ones() -> None:
    known = ", ".join(BACKENDS)
    with pytest.raises(UnavailableError, match=f"^backend: expected one of {known}, got 'cuda'$"):
        load_sampler("cuda")


def test_what_is_missing_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Backend(
        name="imaginary",
        factory=".nowhere:Sampler",
        summary="needs what nobody has",
        requires=("torch", "no_such_module"),
        install="pip install no-such-module",
    )
    monkeypatch.setattr(registry, "BACKENDS", {"imaginary": entry})
    assert entry.missing == ("no_such_module",)
    with pytest.raises(UnavailableError) as caught:
        load_sampler("imaginary")
    said = "backend imaginary: needs no_such_module; install with: pip install no-such-module"
    assert str(caught.value) == said


def test_every_entry_says_what_it_is() -> None:
    for name, backend in BACKENDS.items():
        assert backend.name == name
        assert backend.summary
        assert bool(backend.requires) == bool(backend.install)


OTHER = """
from acceptor.backends.reference import ReferenceSampler

class OtherSampler(ReferenceSampler):
    pass

class FailingSampler:
    def __init__(self):
        raise RuntimeError("no\\n\\x1b[31m device")
"""


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Backend]:
    """The known backends when another distribution offers some."""
    info = tmp_path / "other_backend-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-backend\nVersion: 1.0\n")
    lines = (
        "other = other_backend:OtherSampler",
        "absent = no_such_module:Sampler",
        "lost = other_backend.kernels:Sampler",
        "failing = other_backend:FailingSampler",
        "damaged = damaged_backend:Sampler",
        "reference = other_backend:OtherSampler",
    )
    (info / "entry_points.txt").write_text("\n".join(("[acceptor.backends]", *lines)))
    (tmp_path / "other_backend.py").write_text(OTHER)
    (tmp_path / "damaged_backend.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    known = registry._known()
    monkeypatch.setattr(registry, "BACKENDS", known)
    return known


def test_other_distributions_offer_backends(other: Mapping[str, Backend]) -> None:
    assert [*other] == [*registry._OWN, "other", "absent", "lost", "failing", "damaged"]
    assert other["other"].summary == "from other-backend"
    assert type(load_sampler("other")).__name__ == "OtherSampler"
    assert type(load_sampler("reference")) is ReferenceSampler
    with pytest.raises(UnavailableError, match=r"^backend absent: expected no_such_module:Sampler"):
        load_sampler("absent")
    with pytest.raises(UnavailableError, match=r"^backend: expected one of .*other.*, got 'mine'"):
        load_sampler("mine")


def test_the_missing_module_of_another_distribution_is_named(other: Mapping[str, Backend]) -> None:
    assert other["absent"].missing == ("no_such_module",)
    assert other["lost"].missing == ("other_backend.kernels",)
    assert other["damaged"].missing == ()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("failing", r"other_backend:FailingSampler, got RuntimeError: no \x1b[31m device"),
        ("damaged", "damaged_backend:Sampler, got ZeroDivisionError: division by zero"),
    ],
)
def test_what_another_distribution_raises_is_told_in_one_line(
    other: Mapping[str, Backend], name: str, message: str
) -> None:
    assert name in other
    with pytest.raises(UnavailableError) as caught:
        load_sampler(name)
    assert str(caught.value) == f"backend {name}: expected {message}"


VOCAB_SIZE, DRAFT_VOCAB_SIZE = 12, 5
CHECKED, PLAIN = load_sampler("reference", checked=True), load_sampler("reference")


def batch() -> VerifyBatch:
    generator = torch.Generator().manual_seed(5)
    return VerifyBatch(
        target_logits=torch.randn(5, VOCAB_SIZE, generator=generator),
        cu_num_logits=torch.tensor([0, 3, 5]),
        draft_token_ids=torch.tensor([[2, 4], [6, -1]]),
        positions=torch.tensor([4, 9]),
        draft_logits=torch.randn(3, 2, DRAFT_VOCAB_SIZE, generator=generator),
        slot_ids=torch.tensor([2, 0]),
        draft_to_target=torch.arange(DRAFT_VOCAB_SIZE) * 2,
        allowed_tokens=torch.full((2, 1), -1, dtype=torch.int32),
        allowed_rows=torch.tensor([0, -7, 1, 0, 1]),
    )


def params(**settings: Any) -> SamplingTensors:
    return SamplingTensors.stack([SamplingParams(seed=seed, **settings) for seed in (1, 2)])


def test_what_is_right_is_handed_on() -> None:
    wanted = PLAIN.verify(batch(), params(), Probabilistic())
    got = CHECKED.verify(batch(), params(), Probabilistic())
    assert torch.equal(got.token_ids, wanted.token_ids)
    assert CHECKED.verify_workspace_size(batch(), params(), Probabilistic()) == 0
    draw = SampleBatch(logits=torch.zeros(2, 3), positions=torch.tensor([1, 2]))
    assert torch.equal(
        CHECKED.sample(draw, params()).token_ids, PLAIN.sample(draw, params()).token_ids
    )
    assert CHECKED.sample_workspace_size(draw, params()) == 0


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("cu_num_logits", [1, 3, 5], "cu_num_logits: expected 0 first"),
        ("cu_num_logits", [0, 3, 6], "cu_num_logits: expected 0 first and at most 5 last"),
        ("cu_num_logits", [0, 4, 5], r"num_logits of a request: expected integers in \[0, 3\]"),
        ("cu_num_logits", [0, 3, 2], "num_logits of a request: .*, got -1"),
        ("positions", [4, -1], "positions: expected integers at least 0, got -1"),
        ("slot_ids", [2, 3], r"slot_ids: expected integers in \[0, 2\], got 3"),
        ("slot_ids", [-1, 0], r"slot_ids: expected integers in \[0, 2\], got -1"),
        ("allowed_rows", [0, -1, 1, 0, 2], r"allowed_rows: .* in \[-1, 1\], got 2"),
        ("draft_to_target", [0, 1, 2, 3, 12], r"draft_to_target: .* in \[0, 11\], got 12"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: list[int], message: str) -> None:
    given: dict[str, Any] = {name: torch.tensor(value)}
    wrong = evolve(batch(), **given)
    with pytest.raises(InvalidInputError, match=f"^{message}"):
        CHECKED.verify(wrong, params(), Probabilistic())
    if name in ("cu_num_logits", "slot_ids", "allowed_rows"):
        with pytest.raises(InvalidInputError, match=f"^{message}"):
            PLAIN.verify(wrong, params(), Probabilistic())


@pytest.mark.parametrize("name", ["target_logits", "draft_logits"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_probabilities_are_no_logits(name: str, dtype: torch.dtype) -> None:
    wrong = evolve(batch(), **{name: getattr(batch(), name).softmax(-1).to(dtype)})
    with pytest.raises(InvalidInputError, match=f"^{name}: expected raw logits"):
        CHECKED.verify(wrong, params(), Probabilistic())


def test_a_bias_of_no_token_and_a_slot_without_counts() -> None:
    with pytest.raises(InvalidInputError, match=r"^logit_bias: token id: .*, got 12"):
        CHECKED.verify(batch(), params(logit_bias={12: 1.0}), Probabilistic())
    counted = evolve(batch(), token_counts=TokenCounts.empty(2, VOCAB_SIZE))
    with pytest.raises(InvalidInputError, match=r"^slot_ids: expected integers in \[0, 1\], got 2"):
        CHECKED.verify(counted, params(presence_penalty=1.0), Probabilistic())


@pytest.mark.parametrize("sampler", [CHECKED, PLAIN])
def test_parameters_of_a_slot_that_there_is_not(sampler: Sampler) -> None:
    wrong = evolve(params(), slot_ids=torch.tensor([1, 2]))
    with pytest.raises(InvalidInputError, match=r"^params.slot_ids: .* in \[0, 1\], got 2"):
        sampler.verify(batch(), wrong, Probabilistic())


def test_a_draw_is_looked_at_too() -> None:
    draw = SampleBatch(logits=torch.zeros(2, 3), positions=torch.tensor([1, 2]))
    with pytest.raises(InvalidInputError, match=r"^logits: expected raw logits"):
        CHECKED.sample(evolve(draw, logits=torch.full((2, 4), 0.25)), params())
    with pytest.raises(InvalidInputError, match=r"^positions"):
        CHECKED.sample(evolve(draw, positions=torch.tensor([1, -2])), params())
    biased = params(logit_bias={5: 1.0})
    with pytest.raises(InvalidInputError, match=r"^logit_bias: token id: .* in \[-1, 2\], got 5"):
        CHECKED.sample(evolve(draw, target_vocab_size=9), biased)
    # A draft draw uses no bias, and its model may have fewer ids than the target.
    CHECKED.sample(evolve(draw, draft_index=1), biased)


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
    mapped: dict[str, Any] = {"draft_index": 1, "draft_to_target": wrong, "target_vocab_size": 12}
    draw = SampleBatch(logits=torch.zeros(1, 3), positions=torch.tensor([3]), **mapped)
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
