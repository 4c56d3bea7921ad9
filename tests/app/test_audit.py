"""The audit passes correct samplers, names the mistakes of others, and knows its own power."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from acceptor.app.audit import peers
from acceptor.app.audit.main import sentence
from acceptor.app.audit.mistakes import MISTAKES
from acceptor.app.audit.run import (
    MISSED,
    audit,
    detectable_variation,
    largest_ratio,
    log_likelihood_ratio,
)
from acceptor.core import InvalidInputError
from kit import planted_samplers

Acceptor = Callable[..., tuple[int | str, str, str]]


def test_a_right_sampler_passes() -> None:
    found = audit(planted_samplers.planted())
    assert found.passed
    assert found.mistakes == ()
    assert [finding.view for finding in found.findings] == ["first token", "all tokens"] * 3
    assert all(finding.detectable < 0.1 for finding in found.findings)


@pytest.mark.parametrize(("plant", "name"), planted_samplers.MISTAKES.items())
def test_a_planted_mistake_is_named(plant: str, name: str) -> None:
    found = audit(planted_samplers.planted(plant), seed=3)
    assert not found.passed
    assert found.mistakes == (name,)


def test_every_mistake_is_planted() -> None:
    assert {mistake.name for mistake in MISTAKES} == set(planted_samplers.MISTAKES.values())


def test_an_unknown_mistake_fails_without_a_name() -> None:
    def backwards(*given: object) -> Tensor:
        token_ids = planted_samplers.planted()(*given)  # type: ignore[arg-type]
        return torch.where(token_ids >= 0, 3 - token_ids, -1)

    found = audit(backwards, num_steps=2000)
    assert sentence(found) == "does not follow the law; what fits: no known mistake"


def test_transformers_passes_with_drawn_drafts_and_fails_as_it_feeds_itself() -> None:
    sampled = (1.0, 0.5)
    assert audit(peers.transformers, num_steps=1000, temperatures=sampled).passed
    found = audit(peers.transformers_single_position, num_steps=1000, temperatures=sampled)
    assert found.mistakes == ("q that was not drawn from: drafts by argmax",)
    with pytest.raises(InvalidInputError, match=r"^temperature: expected a number above 0"):
        audit(peers.transformers, num_steps=100)


def test_flashinfers_function_gets_what_it_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in of its arguments and results: probabilities, and one tensor of three."""

    def chain(draft_probs: Tensor, draft_token_ids: Tensor, target_probs: Tensor) -> Any:
        assert draft_token_ids.dtype == torch.int32
        probs = draft_probs, target_probs
        assert all(torch.allclose(rows.sum(-1), torch.ones(())) for rows in probs)
        ids = draft_token_ids.long()
        return peers._speculate(ids, draft_probs.log(), target_probs.log()), None, None

    sampling = SimpleNamespace(chain_speculative_sampling=chain)
    monkeypatch.setitem(sys.modules, "flashinfer", SimpleNamespace(sampling=sampling))
    monkeypatch.setattr(peers, "_device", lambda: torch.device("cpu"))
    assert audit(peers.flashinfer, num_steps=1000, temperatures=(1.0, 0.5)).passed


@pytest.mark.parametrize(
    "row", [[0, 4, -1], [0, -1, 1], [-1, -1, -1], [-2, -1, -1]], ids=("high", "gap", "none", "low")
)
def test_what_no_step_emits_is_refused(row: list[int]) -> None:
    with pytest.raises(InvalidInputError, match=r"^token_ids: expected ids below 4, then -1, got"):
        audit(lambda target, *_: torch.tensor([row]).repeat(len(target), 1), num_steps=100)
    with pytest.raises(InvalidInputError, match=r"^token_ids: expected shape \[100, 3\]"):
        audit(lambda *_: torch.zeros(2, 3, dtype=torch.int64), num_steps=100)


@pytest.mark.parametrize("settings", [{"num_steps": 0}, {"temperatures": ()}])
def test_an_audit_of_nothing_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=r"expected a number in \[1, inf\), got 0$"):
        audit(planted_samplers.planted(), **settings)


@pytest.mark.parametrize("chance", [0.1, 1e-3, 1e-6])
@pytest.mark.parametrize("law", [[0.5, 0.5], [0.1, 0.9], [0.2, 0.3, 0.5], [0.01, 0.09, 0.9]])
def test_false_alarms_are_as_rare_as_promised(law: list[float], chance: float) -> None:
    probs, limit = np.array(law), largest_ratio(chance, len(law))
    for num_draws in (5, 40):
        grid = np.indices((num_draws + 1,) * len(law)).reshape(len(law), -1).T
        outcomes = grid[grid.sum(1) == num_draws].astype(np.float64)
        reached = [log_likelihood_ratio(counts, probs) >= limit for counts in outcomes]
        assert stats.multinomial.pmf(outcomes[reached], num_draws, probs).sum() <= chance


@pytest.mark.parametrize("num_draws", [200, 1000])
def test_what_is_called_detectable_is_noticed(num_draws: int) -> None:
    far, right = 0.3 + detectable_variation(1e-3, 2, num_draws), np.array([0.3, 0.7])
    heads = np.arange(num_draws + 1.0)
    ratios = [log_likelihood_ratio(np.array([n, num_draws - n]), right) for n in heads]
    noticed = heads[np.array(ratios) >= largest_ratio(1e-3, 2)]
    assert stats.binom.pmf(noticed, num_draws, far).sum() >= 1 - MISSED


def test_the_command_says_what_it_found(
    acceptor: Acceptor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_to_audit.py").write_text(
        "from kit.planted_samplers import planted\n"
        "right, wrong = planted(), planted('residual p')\n"
        "number = 1\n"
        "def fails(*_):\n"
        "    raise KeyError('no such\\nlogits')\n"
    )
    monkeypatch.delitem(sys.modules, "mine_to_audit", raising=False)
    code, out, err = acceptor("audit", "mine_to_audit:right", "--steps", 500)
    assert (code, err) == (0, "")
    assert "mine_to_audit:right follows the law as far as 500 steps at each" in out
    code, out, _ = acceptor("audit", "mine_to_audit:wrong", "--temperature", 1)
    assert code == 1
    assert "does not follow the law; what fits: wrong residual: p" in out
    for name in ("mine_to_audit", "mine_to_audit:absent", "absent:right"):
        code, _, err = acceptor("audit", name)
        assert code == 2
        assert err.startswith(f"acceptor: {name}: expected module:callable, got ")
    assert acceptor("audit", "")[2] == "acceptor: sampler: expected a string with content, got ''\n"
    code, _, err = acceptor("audit", "mine_to_audit:number")
    assert (code, err) == (2, "acceptor: mine_to_audit:number: expected a callable, got int\n")
    code, _, err = acceptor("audit", "mine_to_audit:fails")
    assert code == 2
    assert re.fullmatch(
        r"acceptor: .*: expected token ids, got KeyError: .*, .*mine_to_audit.py:5\n", err
    )
