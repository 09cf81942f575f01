"""The tables that all commands print: without frames, in 80 columns."""

from collections.abc import Iterable, Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from tampu.cli.show.text import shortened

_LONGEST: Final = 400


def table(*columns: str, numbers: Iterable[str] = (), folds: Iterable[str] = ()) -> Table:
    """A table without frames. Numbers stand at the right; what `folds` gives way to the others."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    right, soft = set(numbers), set(folds)
    for name in columns:
        made.add_column(
            name,
            no_wrap=name not in soft,
            overflow="fold",
            justify="right" if name in right else "left",
        )
    return made


def cut(text: str) -> Text:
    """A cell that is cut short where there is no room, instead of going on in the next line."""
    return Text(shortened(text, _LONGEST), no_wrap=True, overflow="ellipsis")


def facts(pairs: Sequence[tuple[str, object]]) -> Table:
    """Names and values, one a line."""
    made = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs:
        made.add_row(name, value if isinstance(value, Text) else Text(str(value)))
    return made
