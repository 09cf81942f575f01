"""Standard output: JSON for programs, tables for people."""

import json
import math
import os
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from typing import Final, TypeAlias, TypeVar

from rich.console import Console, RenderableType

from tampu.cli.options import SharedOptions
from tampu.cli.output import escape_controls
from tampu.cli.tables import iso_instant

JsonObject: TypeAlias = dict[str, object]
"""What `--json` prints of something. The keys are stable: programs read them."""

T = TypeVar("T")

_WIDE: Final = 1000


class Screen:
    """Prints the output of a command in the form that was asked for."""

    def __init__(self, shared: SharedOptions) -> None:
        self.as_json = shared.as_json
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
    return str(value)
