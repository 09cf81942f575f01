"""Where a command prints: JSON for programs, tables for people."""

import json
import math
import os
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Final, TypeAlias, TypeVar

from msgspec import Struct
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Column, Table
from rich.text import Text

from tampu.cli.options import SharedOptions
from tampu.cli.output import escape_controls
from tampu.errors import OptionError
from tampu.util.clock import instant_ms, span_text

NOTHING: Final = "-"
_LONGEST_CELL: Final = 400
_GAP: Final = 2
_LEAST_WIDTH: Final = 8


# --- tables -------------------------------------------------------------------------------------


class _Grid(Table):
    """A table that is cut off at its right where there is no room for it.

    Rich would take the room from the columns that may shrink, names first, down to nothing.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        least = sum(_least_width(column) + _GAP for column in self.columns) - _GAP
        wide = options.update(max_width=max(options.max_width, least))
        return super().__rich_console__(console, wide)


def _least_width(column: Column) -> int:
    width = max(cell_len(str(each)) for each in (column.header, *column.cells))
    return width if column.no_wrap else min(width, _LEAST_WIDTH)


def grid(*columns: str, numbers: Iterable[str] = (), shrink: Iterable[str] = ()) -> Table:
    """A table; columns in `numbers` are aligned right, those in `shrink` give way to the others."""
    table = _Grid(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    right, soft = set(numbers), set(shrink)
    for name in columns:
        table.add_column(
            name,
            no_wrap=name not in soft,
            overflow="fold",
            justify="right" if name in right else "left",
        )
    return table


def details(pairs: Sequence[tuple[str, object]]) -> Table:
    """Names and values, one pair a line."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, _GAP, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(name, full_text(str(value)))
    return table


def full_text(text: str) -> Text:
    """A cell with all of the text."""
    return Text(escape_controls(text))


def short_text(text: str) -> Text:
    """A cell that is cut short where there is no room, instead of continuing on the next line."""
    return Text(shorten(text, _LONGEST_CELL), no_wrap=True, overflow="ellipsis")


# --- numbers and times --------------------------------------------------------------------------


def format_span(seconds: float) -> str:
    """A length of time in at most two units: 45s, 2m10s, 3d4h; below ten seconds 1.5s."""
    if seconds < 0:
        return f"-{format_span(-seconds)}"
    if seconds < 10:
        return f"{seconds:.1f}s".replace(".0s", "s")
    return span_text(round(seconds))


def format_duration(seconds: float | None) -> str:
    """How long something took, in two digits or more: 250us, 1.5ms, 12ms, 1.5s, 2m10s."""
    if seconds is None:
        return NOTHING
    if seconds < 0.001:
        return f"{seconds * 1_000_000:.0f}us"
    if seconds < 1:
        ms = seconds * 1000
        return f"{ms:.1f}ms" if ms < 10 else f"{ms:.0f}ms"
    return format_span(seconds)


def format_bytes(size: int) -> str:
    """A size in memory: 800 kB, 45 MB, 1.5 GB."""
    units = (("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12))
    unit, of = next((each for each in units if size < 1000 * each[1]), units[-1])
    value = size / of
    return f"{value:.1f} {unit}" if value < 10 and unit != "kB" else f"{value:.0f} {unit}"


def format_age(since: datetime | None, now: datetime) -> str:
    """How long ago an instant was."""
    return NOTHING if since is None else format_span(max(0.0, (now - since).total_seconds()))


def format_due(due: datetime | None, now: datetime) -> str:
    """When an instant is, seen from now: in 5m, 3s ago."""
    if due is None:
        return NOTHING
    in_s = (due - now).total_seconds()
    return f"in {format_span(in_s)}" if in_s > 0 else f"{format_span(-in_s)} ago"


def format_instant(at: datetime | None) -> str:
    """An instant to the second, in UTC, for tables."""
    return NOTHING if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def parse_instant(option: str, text: str) -> datetime:
    """An aware instant from ISO 8601 text."""
    try:
        instant = datetime.fromisoformat(text)
        instant_ms(option, instant)
    except ValueError:
        problem = "expected a date and time with its offset, such as 2026-01-31T09:00Z"
        raise OptionError(option, text, problem) from None
    return instant


def iso_instant(at: datetime) -> str:
    """An instant to the millisecond, in UTC, for JSON and logs."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_rate(per_s: float | None) -> str:
    """How many a second; a dash if unknown."""
    if per_s is None:
        return NOTHING
    return f"{per_s:.1f}" if 0 < per_s < 10 else f"{per_s:.0f}"


def format_pace(per_s: float) -> str:
    """How often something happens, by the second, minute or hour: 20/s, 3.5/min, 2.1/h."""
    units = (("s", 1), ("min", 60), ("h", 3600))
    unit, times = next((each for each in units if per_s * each[1] >= 1), units[-1])
    return f"{format_rate(per_s * times)}/{unit}"


_LEVELS: Final = "▁▂▃▄▅▆▇█"
_PLAIN_LEVELS: Final = "_.:-=+*#"


def sparkline(values: Sequence[float | None]) -> str:
    """A mark for each value: the lowest one for 0, the highest for the largest, blank for None."""
    levels = _LEVELS if _takes_unicode() else _PLAIN_LEVELS
    highest = max((value for value in values if value is not None), default=0) or 1
    top = len(levels) - 1
    return "".join(
        " " if each is None else levels[min(top, math.ceil(each * top / highest))]
        for each in values
    )


def shorten(text: str, most: int) -> str:
    """The text in one line of at most so many characters."""
    line = escape_controls(" ".join(text.split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def count_of(number: int, noun: str) -> str:
    """A number and what it counts: 1 job, 2 jobs, 2 processes."""
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {noun}{'es' if noun.endswith('s') else 's'}"


def join_words(words: Sequence[str]) -> str:
    """Words as in a sentence: a, b and c."""
    *head, last = words
    return f"{', '.join(head)} and {last}" if head else last


JsonObject: TypeAlias = dict[str, object]
"""What `--json` prints of something. The keys are stable: programs read them."""
T = TypeVar("T")
_WIDE: Final = 1000


class Screen:
    """Prints the output of a command in the form that was asked for."""

    def __init__(self, shared: SharedOptions) -> None:
        self.as_json = shared.as_json
        self._is_mid_line = False
        self.console = Console(
            no_color=True if not shared.color else None,
            highlight=False,
            markup=False,
            emoji=False,
            # A pipe has no width. Rich would assume 80 columns and cut what a program looks for.
            width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDE,
        )

    def show(self, data: object, view: Callable[[], RenderableType]) -> None:
        """Print the data as JSON, or the view of it."""
        if self.as_json:
            self.show_json(data)
            return
        shown = view()
        with self.console.capture() as printed:
            self.console.print(escape_controls(shown) if isinstance(shown, str) else shown)
        # Rich fills tables up with blanks to their width; a paste or a diff would keep those.
        lines = (line.rstrip() for line in printed.get().splitlines())
        sys.stdout.write("\n".join(lines) + "\n")

    def show_json(self, data: object) -> None:
        """Print the data if JSON was asked for, else nothing."""
        if self.as_json:
            sys.stdout.write(to_json(data, ascii_only=not _takes_unicode()) + "\n")

    def show_line(self, value: T, data: Callable[[T], object], view: Callable[[T], str]) -> None:
        """Print one value of many in one line, at once."""
        if self.as_json:
            line = to_json(data(value), indent=None, ascii_only=not _takes_unicode())
        else:
            line = escape_controls(view(value))
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def show_text(self, text: str) -> None:
        """Print a piece of text at once, without ending the line."""
        sys.stdout.write(escape_controls(text))
        sys.stdout.flush()
        self._is_mid_line = not text.endswith("\n") if text else self._is_mid_line

    def end_text(self) -> None:
        """End the line that the last piece of text has left open."""
        if self._is_mid_line:
            self._is_mid_line = False
            sys.stdout.write("\n")


def progress_bar(share: float, width: int = 10) -> str:
    """A bar that is filled up to a share of 1, and full only at 1."""
    filled = math.floor(min(1.0, max(0.0, share)) * width)
    full, empty = ("█", "░") if _takes_unicode() else ("#", ".")
    return full * filled + empty * (width - filled)


def _takes_unicode() -> bool:
    return sys.stdout.encoding.lower().startswith("utf")


def to_json(value: object, *, indent: int | None = 2, ascii_only: bool = False) -> str:
    """One JSON document; without an indent in one line."""
    return escape_controls(json.dumps(to_plain(value), indent=indent, ensure_ascii=ascii_only))


def to_plain(value: object) -> object:
    """The value in JSON's own types. Bytes become {"base64": ...}, unknown types their text."""
    if isinstance(value, bool | int | str | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray):
        return {"base64": b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {str(to_plain(key)): to_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(each) for each in value]
    return _other_to_plain(value)


def _other_to_plain(value: object) -> object:
    if isinstance(value, Enum):
        return to_plain(value.value)
    if isinstance(value, datetime):
        return iso_instant(value)
    if isinstance(value, Struct):
        return {name: to_plain(getattr(value, name)) for name in value.__struct_fields__}
    return str(value)
