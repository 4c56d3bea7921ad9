"""Where a benchmark's prompts come from: a JSONL file, random tokens of a length, or built in.

Only the first turn of a question is asked, and no prompt is cut short.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen

from ...adapters.error_text import one_line
from ...core.checks import check_choice
from ...core.errors import ConfigError
from .builtin_prompts import PLAYS, PROSE

SYNTHETIC = "synthetic"


@frozen
class Text:
    """A prompt before it is tokenized, and the category that it counts to."""

    category: str
    text: str


@frozen
class Prompt:
    """A tokenized prompt of at least one token, and the category that it counts to."""

    category: str
    token_ids: tuple[int, ...]


def builtin_texts() -> list[Text]:
    """The built-in prompts."""
    return [Text("plays", text) for text in PLAYS] + [Text("prose", text) for text in PROSE]


def read_texts(path: Path) -> list[Text]:
    """The questions of a JSONL file as MT-Bench and Spec-Bench have them.

    Each line is an object with `turns`, a list of strings, or `prompt`, a string; `category` is
    optional.

    Raises:
        ConfigError: the file cannot be read, holds no question, or a line is something else.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: expected a UTF-8 text file, got {one_line(error)}") from None
    texts = [
        _read_line(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()
    ]
    if not texts:
        raise ConfigError(f"{path}: expected a question per line, got none")
    return texts


def _read_line(line: str, source: str) -> Text:
    try:
        question: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: expected JSON, got {error}") from None
    if not isinstance(question, dict):
        raise ConfigError(f"{source}: expected an object, got {type(question).__name__}")
    turns = question.get("turns") or [question.get("prompt")]
    if not isinstance(turns, list) or not isinstance(turns[0], str) or not turns[0]:
        raise ConfigError(f"{source}: expected turns, a list of strings, or prompt, got neither")
    return Text(str(question.get("category", "all")), turns[0])


def of_categories(texts: Sequence[Text], categories: Sequence[str] | None) -> list[Text]:
    """Those of these categories; all of them for None.

    Raises:
        InvalidInputError: there is none of a category.
    """
    if categories is None:
        return list(texts)
    known = dict.fromkeys(text.category for text in texts)
    for category in categories:
        check_choice("category", category, known)
    return [text for text in texts if text.category in categories]


def tokenized(texts: Iterable[Text], encode: Callable[[str], Sequence[int]]) -> list[Prompt]:
    """The same as token ids."""
    return [Prompt(text.category, tuple(encode(text.text))) for text in texts]


def synthetic_prompts(lengths: Iterable[int], vocab_size: int, seed: int) -> list[Prompt]:
    """One prompt of random token ids for each length."""
    generator = np.random.default_rng(seed)
    return [
        Prompt(SYNTHETIC, tuple(generator.integers(vocab_size, size=length).tolist()))
        for length in lengths
    ]


def spread_lengths(length: int, spread: float, count: int, seed: int) -> list[int]:
    """Lengths drawn evenly from length * (1 - spread) to length * (1 + spread), at least 1."""
    low, high = round(length * (1 - spread)), round(length * (1 + spread))
    drawn = np.random.default_rng(seed).integers(max(low, 1), max(high, 1) + 1, size=count)
    return [int(value) for value in drawn]


def choose(prompts: Sequence[Prompt], count: int, longest: int, seed: int) -> list[Prompt]:
    """This many prompts of at most `longest` tokens in random order, all of them before any twice.

    Raises:
        ConfigError: every prompt is longer.
    """
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
