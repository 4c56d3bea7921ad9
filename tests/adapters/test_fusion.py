"""Fused operations compute what plain ones do, and are compiled once for any number of tokens."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve

from acceptor.adapters import fusion
from acceptor.adapters.loader import load_model
from acceptor.adapters.transformer import LayerOperations


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the compiler was given; it runs as it is, without generating code."""
    seen: list[Any] = []

    def run_as_it_is(graph: Any, example_inputs: Any) -> Any:  # noqa: ARG001, a backend's arguments
        seen.append(graph)
        return graph.forward

    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=run_as_it_is))
    return seen


@pytest.mark.slow
def test_any_number_of_tokens_is_compiled_twice_at_most(
    tiny_llama: Path, graphs: list[Any]
) -> None:
    plain = load_model(tiny_llama)
    fused = evolve(plain)
    operations: LayerOperations = fusion.fused_operations.__wrapped__()
    object.__setattr__(fused, "planner", evolve(fused.planner, operations=operations))
    caches = [model.new_cache(4, 16) for model in (plain, fused)]
    for num_reqs, num_tokens in ((1, 1), (1, 4), (1, 2), (4, 1), (3, 4), (4, 2)):
        token_ids = torch.randint(0, 61, (num_reqs, num_tokens))
        positions = torch.arange(3, 3 + num_tokens).expand(num_reqs, -1).contiguous()
        slots = torch.arange(num_reqs)
        with torch.inference_mode():
            expected, got = (
                model.forward(token_ids, positions, cache, slots).logits
                for model, cache in zip((plain, fused), caches, strict=True)
            )
        assert torch.equal(got, expected)
    # Each of three operations, for one token and for several; all layers share them.
    assert len(graphs) == 6
