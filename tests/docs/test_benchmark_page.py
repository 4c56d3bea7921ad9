"""The pages on benchmarks and on the models know only flags that there are."""

import re
from pathlib import Path

import click
import pytest

from acceptor.app.bench.command import bench
from acceptor.app.bench.document import main as document
from acceptor.app.training.__main__ import main as train
from acceptor.app.training.report import main as report
from acceptor.app.tuning.command import tune

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "commands"),
    [
        ("benchmark.md", (bench, tune, document)),
        ("bundled-pair.md", (train, report, document)),
    ],
)
def test_every_flag_of_a_page_exists(page: str, commands: tuple[click.Command, ...]) -> None:
    named = set(re.findall(r"--[a-z][a-z-]+", (DOCS / page).read_text(encoding="utf-8")))
    known = {name for command in commands for option in command.params for name in option.opts}
    assert named
    assert named <= known
