"""Where a command prints: JSON for programs, tables for people."""

import os
import signal
import sys
from collections.abc import Callable
from typing import TypeVar

from rich.console import Console, RenderableType

from tampu.cli.ending import no
from tampu.cli.shared import Shared
from tampu.cli.show.plain import as_json
from tampu.cli.visible import visible

T = TypeVar("T")

_NEVER_CUT = 1000


class Screen:
    """Prints what a command has to tell, in the form that was asked for."""

    def __init__(self, shared: Shared) -> None:
        self.as_json = shared.as_json
        self.console = Console(
            no_color=True if not shared.color else None,
            highlight=False,
            markup=False,
            emoji=False,
            # A pipe has no width. Rich would take 80 columns, and cut what a program looks for.
            width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _NEVER_CUT,
        )

    def show(self, shape: object, view: Callable[[], RenderableType]) -> None:
        """One document or one view, and nothing else."""
        if self.as_json:
            self.tell_programs(shape)
        else:
            shown = view()
            with self.console.capture() as printed:
                self.console.print(visible(shown) if isinstance(shown, str) else shown)
            # Tables are filled up with blanks to their width, which a paste or a diff would keep.
            lines = (line.rstrip() for line in printed.get().splitlines())
            sys.stdout.write("\n".join(lines) + "\n")

    def tell_programs(self, shape: object) -> None:
        """One document, if JSON was asked for; people are told otherwise."""
        if self.as_json:
            sys.stdout.write(as_json(shape, ascii_only=not _takes_all()) + "\n")

    def line(self, value: T, shape: Callable[[T], object], view: Callable[[T], str]) -> None:
        """One value of many, in one line, at once."""
        if self.as_json:
            told = as_json(shape(value), indent=None, ascii_only=not _takes_all())
        else:
            told = visible(view(value))
        sys.stdout.write(told + "\n")
        sys.stdout.flush()


def _takes_all() -> bool:
    """Whether standard output can carry every character."""
    return sys.stdout.encoding.lower().startswith("utf")


def confirm(question: str, *, yes: bool) -> None:
    """Go on if the user says yes, or has said so before."""
    if not yes and _answer(question).strip().lower() not in {"y", "yes"}:
        raise no("nothing was done.")


def _answer(question: str) -> str:
    """What is typed. Ctrl-C ends the command at once: the event loop stands still meanwhile."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline()
    finally:
        signal.signal(signal.SIGINT, before)
