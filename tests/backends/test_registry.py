"""Backends by name: nothing is imported too early, and nothing falls back."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from acceptor.backends import BACKENDS, Backend, load_sampler, registry
from acceptor.backends.reference import ReferenceSampler
from acceptor.core import UnavailableError


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
    assert str(caught.value) == (
        "backend imaginary: needs no_such_module; install with: pip install no-such-module"
    )


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
    """What is known where another distribution offers backends."""
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
