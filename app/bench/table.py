"""A table of text, for a terminal and for a document."""

from collections.abc import Mapping, Sequence

from attrs import frozen
from rich import table as rich_table
from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.text import Text

Cell = str | Text
MAX_WIDTH = 10_000
"""The most columns of a table; rich measures nothing beyond a given width."""


@frozen(kw_only=True)
class Table:
    """Rows under a head, which may have several lines: first names, then numbers."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    num_names: int = 1

    @classmethod
    def of(cls, corner: str, cells: Mapping[tuple[str, str], Cell]) -> "Table":
        """A table of cells by row and column, both in the order of their first cells."""
        names, columns = (list(dict.fromkeys(one)) for one in zip(*cells, strict=True))
        rows = [[name, *(cells.get((name, one), "") for one in columns)] for name in names]
        return cls(head=[corner, *columns], rows=rows)

    def as_markdown(self) -> str:
        """The table in Markdown, without styles."""
        names, numbers = self.num_names, len(self.head) - self.num_names
        lines = [self.head, ["---"] * names + ["---:"] * numbers, *self.rows]
        texts = ((" ".join(str(cell).split()) for cell in line) for line in lines)
        return "".join(f"| {' | '.join(cells)} |\n" for cells in texts)

    def as_rich(self, numbers: Sequence[int] | None = None) -> rich_table.Table:
        """The table for a terminal, with the styles of its cells, and all or some numbers."""
        made = rich_table.Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
        shown = range(self.num_names, len(self.head)) if numbers is None else numbers
        places = [*range(self.num_names), *shown]
        for place in places:
            justify: JustifyMethod = "right" if place >= self.num_names else "left"
            made.add_column(self.head[place], justify=justify, no_wrap=True, vertical="bottom")
        for cells in self.rows:
            made.add_row(*(cells[place] for place in places))
        return made

    def fitting(self, console: Console) -> list[rich_table.Table]:
        """Tables as wide as the terminal at most; each begins with the first number, if it fits."""
        anything = console.options.update(width=MAX_WIDTH)

        def fits(numbers: Sequence[int]) -> bool:
            measured = console.measure(self.as_rich(numbers), options=anything)
            return measured.maximum <= console.width

        first, *others = range(self.num_names, len(self.head))
        parts = [[first]]
        for number in others:
            if not fits([*parts[-1], number]):
                parts.append([first] if fits([first, number]) else [])
            parts[-1].append(number)
        return [*map(self.as_rich, parts)]
