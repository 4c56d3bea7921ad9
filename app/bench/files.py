"""Writes and reads what commands leave: records as JSON, the machine, texts, and pictures."""

import json
import platform
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path
from textwrap import fill
from typing import Any, TypeVar

import torch
from attrs import AttrsInstance, asdict, field, frozen
from torch.utils.collect_env import run, run_and_read_all

from ...adapters.error_text import read_named, unfit
from ...core import ConfigError, UnavailableError
from ..structure import structured

_ASK_DRIVER = "nvidia-smi --query-gpu=driver_version --format=csv,noheader"
PACKAGES = ("acceptor", "torch", "triton", "cupy-cuda13x")


def describe(device: torch.device) -> dict[str, str]:
    """The machine of a run, which stands beside its figures."""
    about = {"device": "CPU, " + platform.machine(), "python": platform.python_version()}
    if device.type == "cuda":
        about["device"] = torch.cuda.get_device_name(device)
        # A line for each device.
        about["driver"] = (run_and_read_all(run, _ASK_DRIVER) or "unknown").split("\n")[0]
        about["cuda"] = str(torch.version.cuda)
    # If a name occurs several times, the first one is imported.
    installed = {one.name: one.version for one in reversed([*distributions()])}
    return about | {name: installed.get(name, "not installed") for name in PACKAGES}


Record = TypeVar("Record", bound=AttrsInstance)
_NUMBERS = re.compile(r"\[\s+([^\[\]{}\"]+?)\s+\]")


@contextmanager
def _config_error_if_unwritable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unfit(path, "a file that can be written", error, ConfigError) from None


def make_room(*paths: Path | None) -> None:
    """Make the folders of output files, and check that they can be written; None is no file."""
    for path in filter(None, paths):
        with _config_error_if_unwritable(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                # Resolved, so that a link stays a link.
                path.touch()
                path.resolve().unlink()
            elif path.is_file() or path.is_dir():
                path.open("ab").close()


def _write_text(path: Path, text: str) -> None:
    with _config_error_if_unwritable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def write_record(path: Path, record: AttrsInstance) -> None:
    """Write an attrs instance as JSON for `read_record`; a list of numbers stays on one line.

    Raises:
        ConfigError: the file cannot be written.
    """
    text = json.dumps(asdict(record), indent=1, ensure_ascii=False)
    on_one_line = _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text)
    _write_text(path, on_one_line + "\n")


def read_record(path: Path, kind: type[Record], command: str) -> Record:
    """Read what a command wrote with `--json`; anything else raises `ConfigError`."""
    content = read_named(path, "JSON", json.loads)
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected a JSON object, got {type(content).__name__}")
    return structured(content, kind, f"{path}: expected what {command} --json writes")


def check_outputs(options: Mapping[str, Any], flag: str, picture: Path | None) -> None:
    """Find out early whether a command's files can be written, and the picture of a flag drawn."""
    make_room(options["json_file"], options["markdown_file"])
    if picture is not None:
        _check_drawable(flag, picture)


def write_outputs(record: AttrsInstance, text: str, options: Mapping[str, Any]) -> None:
    """Write the files of `--json` and `--markdown`."""
    if options["json_file"] is not None:
        write_record(options["json_file"], record)
    if options["markdown_file"] is not None:
        _write_text(options["markdown_file"], text)


def _check_drawable(source: str, path: Path) -> None:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415, optional
    except ImportError as error:
        cure = "install with: pip install 'acceptor[bench]'"
        raise UnavailableError(f"{source}: needs {error.name}; {cure}") from None
    known = Figure().canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        expected = f"a picture's suffix ({', '.join(known)})"
        raise unfit(path, expected, repr(path.suffix), ConfigError)
    make_room(path)


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
BASELINE = {"color": "black", "linestyle": "--", "linewidth": 1}
"""The look of a line that others are compared with."""

Look = Mapping[str, Any]
"""Arguments of matplotlib's `plot`, such as `color`."""
Line = tuple[list[tuple[float, float]], Look]
"""Points (x, y) from left to right."""


@frozen
class Picture:
    """Panels (title -> name -> line) that share their vertical axis and the look of a name.

    Both axes are logarithmic, or the vertical one begins at 0.
    """

    x_label: str
    y_label: str
    logarithmic: bool = False
    panels: dict[str, dict[str, Line]] = field(factory=lambda: defaultdict(dict), init=False)

    def add(self, panel: str, name: str, look: Look, *points: tuple[float, float | None]) -> None:
        """Begin or continue a panel's line of this name; points without a value are left out."""
        known, _ = self.panels[panel].setdefault(name, ([], look))
        known += [(x, y) for x, y in points if y is not None]

    def draw(self, path: Path) -> None:
        """Write the picture; the file's suffix chooses the format."""
        _check_drawable(str(path), path)
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
            with _config_error_if_unwritable(path):
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
