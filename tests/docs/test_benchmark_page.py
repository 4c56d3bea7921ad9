"""The page on benchmarks knows only flags that there are."""

import re
from pathlib import Path

from acceptor.app.bench.command import bench
from acceptor.app.bench.document import main as document
from acceptor.app.tuning.command import tune

PAGE = Path(__file__).parents[2] / "docs" / "benchmark.md"


def test_every_flag_of_the_page_exists() -> None:
    named = set(re.findall(r"--[a-z][a-z-]+", PAGE.read_text(encoding="utf-8")))
    commands = (bench, tune, document)
    known = {name for command in commands for option in command.params for name in option.opts}
    assert named
    assert named <= known
