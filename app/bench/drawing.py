"""How pictures look and where they go. Matplotlib is optional, and imported when one is drawn."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...core.errors import UnavailableError
from .files import make_room

STYLE: Any = {
    # A fixed salt and no date: the same figures give the same file.
    "svg.hashsalt": "acceptor",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def need_matplotlib(flag: str) -> None:
    """Find out early whether a picture can be drawn.

    Raises:
        UnavailableError: matplotlib is missing.
    """
    try:
        import matplotlib as mpl  # noqa: F401, PLC0415, optional
    except ImportError as error:
        raise UnavailableError(
            f"{flag}: {error}; install with: pip install 'acceptor[bench]'"
        ) from None


@contextmanager
def picture(path: Path, width: float, height: float) -> Iterator[Any]:
    """A figure of this many inches, written at the end; the file's suffix chooses the format.

    Raises:
        ConfigError: the file's folder cannot be made.
        UnavailableError: matplotlib is missing.
    """
    need_matplotlib(str(path))
    import matplotlib as mpl  # noqa: PLC0415, optional
    from matplotlib.figure import Figure  # noqa: PLC0415, optional

    make_room(path)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)


def panels_of(figure: Any, count: int) -> list[Any]:
    """So many panels in a row that share their vertical axis."""
    return [*figure.subplots(1, count, sharey=True, squeeze=False)[0]]


def count_on_x(axes: Any) -> None:
    """Only whole numbers on the horizontal axis."""
    axes.xaxis.get_major_locator().set_params(integer=True)


Points = list[tuple[int, float]]
"""(K, tokens per second)."""


def draw_against_k(
    axes: Any, lines: Mapping[str, Points], looks: Mapping[str, Mapping[str, Any]]
) -> None:
    """Tokens per second against K, one line for each name; one without a look is a level."""
    for name, points in lines.items():
        if name in looks:
            axes.plot(*zip(*points, strict=True), label=name, **looks[name])
        else:
            level = {"color": "black", "linestyle": "--", "linewidth": 1}
            axes.axhline(points[0][1], label=name, **level)
    axes.set_xlabel("K, tokens per draft")
    count_on_x(axes)


def put_legend(figure: Any, axes: Any) -> None:
    """Beside all panels, where it hides nothing."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", fontsize=8)
