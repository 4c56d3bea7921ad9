"""Backends by name: nothing is imported too early, and nothing falls back."""

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
