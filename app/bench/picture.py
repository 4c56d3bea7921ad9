"""Draws measurements: panels of lines beside one legend. Matplotlib is optional."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from attrs import frozen

from ...core import ConfigError, UnavailableError
from .files import config_error_if_unwritable, make_room

MAX_COLUMNS = 3
PANEL_WIDTH, PANEL_HEIGHT, LEGEND_WIDTH = 3.2, 3.0, 1.8
"""In inches."""

TITLE_WIDTH = 36
"""The most characters of a line."""

STYLE: Any = {
    # With a fixed salt and no date, the same figures give the same file.
    "svg.hashsalt": "acceptor",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


Line = tuple[Sequence[tuple[float, float]], Mapping[str, Any]]
"""Points (x, y) from left to right, and arguments of matplotlib's `plot`, such as `color`."""


def check_drawable(flag: str, path: Path | None) -> None:
    """Find out early whether a picture can be drawn into a file; None is no file."""
    if path is None:
        return
    try:
        import matplotlib as mpl  # noqa: F401, PLC0415, optional
        from matplotlib.figure import Figure  # noqa: PLC0415, optional
    except ImportError as error:
        raise UnavailableError(
            f"{flag}: {error}; install with: pip install 'acceptor[bench]'"
        ) from None
    known = Figure().canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        shown = ", ".join(known)
        raise ConfigError(f"{path}: expected a picture's suffix ({shown}), got {path.suffix!r}")
    make_room(path)


@frozen(kw_only=True)
class Picture:
    """Panels that share their vertical axis.

    Attributes:
        y_label: that of every panel; the axis begins at 0 unless it is logarithmic.
        panels: title -> name -> line; panels may share names.
        logarithmic: whether both axes are.
    """

    x_label: str
    y_label: str
    panels: Mapping[str, Mapping[str, Line]]
    logarithmic: bool = False

    def draw(self, path: Path) -> None:
        """Write the picture; the file's suffix chooses the format."""
        check_drawable(str(path), path)
        import matplotlib as mpl  # noqa: PLC0415, optional
        from matplotlib.figure import Figure  # noqa: PLC0415, optional

        num_columns = min(len(self.panels), MAX_COLUMNS)
        num_rows = -(-len(self.panels) // num_columns)
        size = PANEL_WIDTH * num_columns + LEGEND_WIDTH, PANEL_HEIGHT * num_rows
        with mpl.rc_context(STYLE):
            figure = Figure(figsize=size, layout="constrained")
            grid = figure.subplots(num_rows, num_columns, sharey=True, squeeze=False)
            for axes, (title, lines) in zip(grid.flat, self.panels.items(), strict=False):
                self._fill(axes, title, lines)
            for axes in grid.flat[len(self.panels) :]:
                axes.set_visible(False)
            for axes in grid[:, 0]:
                axes.set_ylabel(self.y_label)
            if not self.logarithmic:
                # Set after all panels are drawn, because they share the axis.
                grid[0, 0].set_ylim(bottom=0)
            shown = {line.get_label(): line for axes in grid.flat for line in axes.lines}
            figure.legend(shown.values(), shown.keys(), loc="outside right upper", fontsize=8)
            date = {"Date": None} if path.suffix == ".svg" else None
            with config_error_if_unwritable(path):
                figure.savefig(path, metadata=date, dpi=150)

    def _fill(self, axes: Any, title: str, lines: Mapping[str, Line]) -> None:
        for name, (points, look) in lines.items():
            axes.plot(*zip(*points, strict=True), label=name, **look)
        # Keep a number on the line of its name.
        unbroken = title.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
        axes.set_title(fill(unbroken, TITLE_WIDTH), fontsize="medium")
        axes.set_xlabel(self.x_label)
        across = sorted({x for points, _ in lines.values() for x, _ in points})
        if self.logarithmic:
            axes.set(xscale="log", yscale="log")
            axes.set_xticks(across, [f"{x:g}" for x in across])
            axes.minorticks_off()
            axes.yaxis.get_major_locator().set_params(subs=(1, 2, 5))
            axes.yaxis.set_major_formatter("{x:g}")
        else:
            # Integers are counts, so ticks are integers, too.
            axes.xaxis.get_major_locator().set_params(integer=all(x % 1 == 0 for x in across))
