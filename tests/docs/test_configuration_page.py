"""The page on configuration knows every setting and flag, and its examples are valid."""

import tomllib
from pathlib import Path

import pytest
from attrs import fields
from sybil import Example, Sybil
from sybil.parsers.myst import CodeBlockParser

from acceptor.app.cli import generate
from acceptor.app.config import Config, DecodingConfig, DrafterConfig, EngineConfig, ModelsConfig
from acceptor.app.policies import settings_class
from acceptor.app.structure import structured
from acceptor.core import POLICIES, SamplingParams

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
TABLES = (
    Config,
    DecodingConfig,
    DrafterConfig,
    EngineConfig,
    ModelsConfig,
    SamplingParams,
    *[settings_class(name) for name in POLICIES],
)


def test_its_examples_are_valid() -> None:
    examples = list(Sybil(parsers=[CodeBlockParser("toml", load)]).parse(PAGE).examples())
    assert examples
    for example in examples:
        example.evaluate()


@pytest.mark.parametrize(
    "name", sorted({field.name for table in TABLES for field in fields(table)})
)
def test_it_knows_the_setting(name: str) -> None:
    known = PAGE.read_text(encoding="utf-8")
    assert f"`{name}`" in known or f"`[{name}]`" in known


@pytest.mark.parametrize("flag", sorted(name for p in generate.params for name in p.opts))
def test_it_knows_the_flag(flag: str) -> None:
    assert f"`{flag}`" in PAGE.read_text(encoding="utf-8")


def load(example: Example) -> None:
    structured(tomllib.loads(example.parsed), Config, PAGE.name)
