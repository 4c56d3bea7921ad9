"""A run as a figure: time over batch size, and the floor below it."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from ....core.errors import UnavailableError
from .results import Line, Run
from .table import label

TITLE_WIDTH = 36


def plot(run: Run, path: Path) -> None:
    """Write one panel for each workload; the suffix chooses the format.

    Raises:
        UnavailableError: matplotlib is missing.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415, optional
        from matplotlib.figure import Figure  # noqa: PLC0415, optional
    except ImportError as error:
        raise UnavailableError(
            f"plot: {error}; install with: pip install 'acceptor[bench]'"
        ) from error
    names = tuple(dict.fromkeys(label(line, run.lines) for line in run.lines))
    # A fixed salt and no date: the same run gives the same file.
    with mpl.rc_context({"svg.hashsalt": "acceptor", "svg.fonttype": "none", "font.size": 8}):
        num_rows = -(-len(names) // 3)
        figure = Figure(figsize=(9, 2.8 * num_rows), layout="constrained")
        panels = list(figure.subplots(num_rows, 3, squeeze=False).flat)
        for panel, name in zip(panels, names, strict=False):
            _draw(panel, [line for line in run.lines if label(line, run.lines) == name], name)
        for panel in panels[len(names) :]:
            panel.set_visible(False)
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper right")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _draw(panel: Any, lines: Sequence[Line], name: str) -> None:
    num_reqs = [line.workload.num_reqs for line in lines]
    floors = [line.cold_floor or float("nan") for line in lines]
    panel.loglog(num_reqs, floors, "k--", label="floor")
    for place, cell in enumerate(lines[0].cells):
        times = [line.cells[place].cold or float("nan") for line in lines]
        panel.loglog(num_reqs, times, "o-", label=cell.backend)
    panel.set(title=fill(name, TITLE_WIDTH), xlabel="R", ylabel="µs, cold")
    panel.set_xticks(num_reqs, [str(size) for size in num_reqs])
    panel.minorticks_off()
