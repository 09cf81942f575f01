"""The tables that all commands print: without frames, in 80 columns."""

from collections.abc import Iterable, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

from tampu.cli.show.text import shortened
from tampu.cli.visible import visible

_LONGEST: Final = 400
_BETWEEN: Final = 2
_LEAST: Final = 8


class _Grid(Table):
    """A table that is cut at its right where there is no room for it.

    Rich would take the room from the columns that may give way, names first, down to nothing.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        least = sum(_least_width(column) + _BETWEEN for column in self.columns) - _BETWEEN
        wide = options.update(max_width=max(options.max_width, least))
        return super().__rich_console__(console, wide)


def _least_width(column: Column) -> int:
    width = max(cell_len(str(each)) for each in (column.header, *column.cells))
    return width if column.no_wrap else min(width, _LEAST)


def table(*columns: str, numbers: Iterable[str] = (), folds: Iterable[str] = ()) -> Table:
    """A table without frames. Numbers stand at the right; what `folds` gives way to the others."""
    made = _Grid(box=None, pad_edge=False, header_style="bold", padding=(0, _BETWEEN, 0, 0))
    right, soft = set(numbers), set(folds)
    for name in columns:
        made.add_column(
            name,
            no_wrap=name not in soft,
            overflow="fold",
            justify="right" if name in right else "left",
        )
    return made


def whole(text: str) -> Text:
    """A cell with all of the text."""
    return Text(visible(text))


def cut(text: str) -> Text:
    """A cell that is cut short where there is no room, instead of going on in the next line."""
    return Text(shortened(text, _LONGEST), no_wrap=True, overflow="ellipsis")


def facts(pairs: Sequence[tuple[str, object]]) -> Table:
    """Names and values, one a line."""
    made = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs:
        made.add_row(name, whole(str(value)))
    return made
