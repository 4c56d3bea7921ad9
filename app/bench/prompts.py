"""A benchmark's prompts: from a JSONL file, random tokens of a length, or built-in.

Only the first turn of a question is used, and no prompt is cut.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen

from ...adapters.error_text import read_named
from ...core import ConfigError
from ...core.checks import check_choice

SYNTHETIC = "synthetic"

Question = tuple[str, str]
"""The category of a prompt, and its text."""

BUILT_IN = Path(__file__).with_suffix(".jsonl")
"""Beginnings in the style of the bundled pair's training texts; none is taken from these."""


@frozen
class Prompt:
    """A tokenized prompt of at least one token, and its category."""

    category: str
    token_ids: tuple[int, ...]


def read_questions(path: Path) -> list[Question]:
    """The questions of a JSONL file in the format of MT-Bench and Spec-Bench.

    Each line is an object with `turns`, a list of strings, or `prompt`, a string; `category` is
    optional.
    """
    lines = read_named(path, "a UTF-8 text file").splitlines()
    questions = [
        _read_line(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()
    ]
    if not questions:
        raise ConfigError(f"{path}: expected a question per line, got none")
    return questions


def _read_line(line: str, source: str) -> Question:
    try:
        question: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: expected JSON, got {error}") from None
    if not isinstance(question, dict):
        raise ConfigError(f"{source}: expected an object, got {type(question).__name__}")
    turns = question.get("turns") or [question.get("prompt")]
    if not isinstance(turns, list) or not isinstance(turns[0], str) or not turns[0]:
        raise ConfigError(f"{source}: expected turns, a list of strings, or prompt, got neither")
    return str(question.get("category", "all")), turns[0]


def of_categories(questions: Sequence[Question], categories: Sequence[str]) -> list[Question]:
    """The questions of these categories."""
    known = dict(questions)
    for category in categories:
        check_choice("category", category, known)
    return [question for question in questions if question[0] in categories]


def synthetic_prompts(lengths: Iterable[int], vocab_size: int, seed: int) -> list[Prompt]:
    """One prompt of random token ids for each length."""
    generator = np.random.default_rng(seed)
    return [
        Prompt(SYNTHETIC, tuple(generator.integers(vocab_size, size=length).tolist()))
        for length in lengths
    ]


def spread_lengths(length: int, spread: float, count: int, seed: int) -> list[int]:
    """Lengths drawn uniformly from length * (1 - spread) to length * (1 + spread), at least 1."""
    low, high = round(length * (1 - spread)), round(length * (1 + spread))
    drawn = np.random.default_rng(seed).integers(max(low, 1), max(high, 1) + 1, size=count)
    return [int(value) for value in drawn]


def choose(prompts: Sequence[Prompt], count: int, longest: int, seed: int) -> list[Prompt]:
    """Choose prompts of at most `longest` tokens at random; none repeats before all are used."""
    fitting = [prompt for prompt in prompts if len(prompt.token_ids) <= longest]
    if not fitting:
        shortest = min(len(prompt.token_ids) for prompt in prompts)
        raise ConfigError(
            f"prompts: expected one of at most {longest} tokens, which leave room for the output, "
            f"got {shortest} or more"
        )
    generator = np.random.default_rng(seed)
    order: list[int] = []
    while len(order) < count:
        order += generator.permutation(len(fitting)).tolist()
    return [fitting[index] for index in order[:count]]
