"""A run as a figure: time over batch size, and the floor below it."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from ..drawing import picture
from .results import Line, Run
from .table import label

NUM_COLUMNS = 3
TITLE_WIDTH = 36


def plot(run: Run, path: Path) -> None:
    """Write one panel for each workload; the suffix chooses the format.

    Raises:
        ConfigError: the file's folder cannot be made.
        UnavailableError: matplotlib is missing.
    """
    names = tuple(dict.fromkeys(label(line, run.lines) for line in run.lines))
    num_rows = -(-len(names) // NUM_COLUMNS)
    with picture(path, 9, 2.8 * num_rows) as figure:
        panels = [*figure.subplots(num_rows, NUM_COLUMNS, squeeze=False).flat]
        for panel, name in zip(panels, names, strict=False):
            _draw(panel, [line for line in run.lines if label(line, run.lines) == name], name)
        for panel in panels[len(names) :]:
            panel.set_visible(False)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right")


def _draw(panel: Any, lines: Sequence[Line], name: str) -> None:
    num_reqs = [line.workload.num_reqs for line in lines]
    floors = [line.floor or float("nan") for line in lines]
    panel.loglog(num_reqs, floors, "k--", label="floor")
    for place, cell in enumerate(lines[0].cells):
        times = [line.cells[place].time or float("nan") for line in lines]
        panel.loglog(num_reqs, times, "o-", label=cell.backend)
    panel.set(title=fill(name, TITLE_WIDTH), xlabel="R", ylabel="µs, cold")
    panel.set_xticks(num_reqs, [str(size) for size in num_reqs])
    panel.minorticks_off()
