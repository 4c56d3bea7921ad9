"""A table of text, for a terminal and for a document."""

from collections.abc import Iterable, Iterator, Sequence

from attrs import evolve, frozen
from rich import table as rich_table
from rich.box import SIMPLE_HEAD
from rich.console import JustifyMethod
from rich.text import Text

Cell = str | Text
_PADDING = 3
"""Characters between columns on a terminal."""


@frozen(kw_only=True)
class Table:
    """Rows under a head. The first columns are names, the others numbers.

    Attributes:
        head: of every column; may have several lines on a terminal.
        rows: as long as the head.
        num_names: how many columns are names.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    num_names: int = 1

    def as_markdown(self) -> str:
        """Without styles."""
        names, numbers = self.num_names, len(self.head) - self.num_names
        lines = [self.head, ["---"] * names + ["---:"] * numbers, *self.rows]
        return "".join(f"| {' | '.join(map(_in_a_line, line))} |\n" for line in lines)

    def as_rich(self) -> rich_table.Table:
        """With the styles of its cells."""
        made = rich_table.Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
        for place, head in enumerate(self.head):
            justify: JustifyMethod = "right" if place >= self.num_names else "left"
            made.add_column(head, justify=justify, no_wrap=True, vertical="bottom")
        for cells in self.rows:
            made.add_row(*cells)
        return made

    def fitting(self, width: int, num_kept: int) -> Iterator["Table"]:
        """Its columns in tables of at most this width, each with the first ones if they fit."""
        widths = [self._width(place) for place in range(len(self.head))]
        if sum(widths[:num_kept]) + max(widths[num_kept:], default=0) > width + _PADDING:
            num_kept = self.num_names
        start = num_kept
        while start < len(self.head) or start == num_kept:
            left, end = width + _PADDING - sum(widths[:num_kept]), start
            while end < len(self.head) and (end == start or widths[end] <= left):
                left -= widths[end]
                end += 1
            yield self._columns([*range(num_kept), *range(start, end)])
            start = max(end, num_kept + 1)

    def _width(self, place: int) -> int:
        cells = [*self.head[place].splitlines(), *(str(row[place]) for row in self.rows)]
        return max(map(len, cells), default=0) + _PADDING

    def _columns(self, places: Iterable[int]) -> "Table":
        places = list(places)
        rows = [[row[place] for place in places] for row in self.rows]
        return evolve(self, head=[self.head[place] for place in places], rows=rows)


def _in_a_line(cell: Cell) -> str:
    return " ".join(str(cell).split())
