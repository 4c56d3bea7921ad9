"""Every setting of a training run: what made the bundled pair, and what makes a larger one.

Holds numbers only: nothing here reads a file or knows a device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from attrs import asdict, evolve, field, frozen

from ...core.errors import ConfigError


@frozen
class Shape:
    """Sizes of one Llama: the whole difference between the target and the draft."""

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    intermediate_size: int


@frozen
class Recipe:
    """What decides the outcome of a run, besides the texts and the machine."""

    seed: int = 20261121
    vocab_size: int = 4096
    context_length: int = 1024
    # Deep and narrow on purpose: on a CPU each layer has a fixed cost, so one layer is cheap.
    target: Shape = field(default=Shape(160, 20, 5, 1, 480))
    draft: Shape = field(default=Shape(128, 1, 4, 2, 384))
    dropout: float = 0.2
    weight_decay: float = 0.2
    average_decay: float = 0.995
    target_rows_per_step: int = 16
    target_steps: int = 1300
    target_learning_rate: float = 2e-3
    draft_rows_per_step: int = 32
    draft_steps: int = 6000
    draft_learning_rate: float = 4e-3
    sampled_rows: int = 4096
    sampled_at_once: int = 8192
    evaluation_rows: int = 64
    evaluate_every: int = 200
    # Evaluations without a lower held-out loss before the target is done; 0 goes on to the end.
    patience: int = 0


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "bundled": Recipe(),
        # For a GPU, where a layer's launches count more than its width: few wide layers.
        # So many weights learn the texts by heart sooner, hence more dropout and decay.
        "large": Recipe(
            target=Shape(512, 8, 8, 2, 1536),
            draft=Shape(384, 2, 6, 2, 1152),
            dropout=0.35,
            weight_decay=1.0,
            target_rows_per_step=24,
            target_steps=2500,
            target_learning_rate=1.5e-3,
            draft_steps=4000,
            draft_learning_rate=3e-3,
            sampled_rows=2048,
            evaluation_rows=32,
            evaluate_every=250,
        ),
    }
)
"""By the names that `--recipe` takes."""


def with_settings(recipe: Recipe, settings: Iterable[str]) -> Recipe:
    """`recipe` with each `name=value` applied; `target.num_layers` names a size of a shape.

    Raises:
        ConfigError: the name is no number of a recipe, or the value does not parse as its type.
    """
    for setting in settings:
        name, number = _parsed(recipe, setting)
        shape, _, field_name = name.rpartition(".")
        change: dict[str, Any] = {field_name: number}
        if shape:
            change = {shape: evolve(getattr(recipe, shape), **change)}
        recipe = evolve(recipe, **change)
    return recipe


def _parsed(recipe: Recipe, setting: str) -> tuple[str, int | float]:
    name, _, value = setting.partition("=")
    known = _numbers(recipe)
    if name not in known:
        raise ConfigError(f"--set {setting}: expected one of {', '.join(sorted(known))}")
    kind = type(known[name])
    try:
        return name, kind(value)
    except ValueError:
        raise ConfigError(f"--set {setting}: expected {kind.__name__}, got {value!r}") from None


def _numbers(recipe: Recipe) -> dict[str, int | float]:
    numbers = asdict(recipe)
    for shape in ("target", "draft"):
        sizes = numbers.pop(shape)
        numbers |= {f"{shape}.{name}": size for name, size in sizes.items()}
    return numbers
