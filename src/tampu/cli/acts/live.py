"""Where `tampu watch` shows: a screen of its own in a terminal, lines elsewhere."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from tampu.admin.rates import QueueRates
from tampu.cli.screen import Screen
from tampu.cli.show.shapes import flow_shape
from tampu.cli.show.tables import flow_line, flow_table, workers_table


class View(Protocol):
    """Shows one look after the other."""

    def show(self, flows: Sequence[QueueRates]) -> None:
        """What the queues are like now."""

    def trouble(self, problem: str) -> None:
        """That the server could not be asked."""


class Lines:
    """A line for each queue and look."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def show(self, flows: Sequence[QueueRates]) -> None:
        """Print them."""
        for flow in flows:
            self._screen.line(flow, flow_shape, flow_line)

    def trouble(self, problem: str) -> None:
        """Tell it beside the lines."""
        sys.stderr.write(f"tampu: {problem}\n")


class Page:
    """The terminal's other screen, drawn anew with each look and when its size changes."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._body: RenderableType = Text("Looking ...")
        self._note = ""

    def show(self, flows: Sequence[QueueRates]) -> None:
        """Draw them; a single queue with its workers."""
        self._note = f"{flows[0].at:%H:%M:%S}Z" if flows else ""
        parts: list[RenderableType] = [flow_table(flows) if flows else Text("There are no queues.")]
        if len(flows) == 1 and flows[0].workers:
            parts += [Text(""), workers_table(flows[0].workers, flows[0].at)]
        self._body = Group(*parts)
        self.draw()

    def trouble(self, problem: str) -> None:
        """Leave what was shown, and say that it is old."""
        self._note = problem
        self.draw()

    def draw(self) -> None:
        """Fit it into the terminal as it is now."""
        foot = Text(f"{self._note}  q leaves".strip(), style="dim")
        self._live.update(Group(self._body, Text(""), foot), refresh=True)


@contextmanager
def view_on(screen: Screen, stop: asyncio.Event) -> Iterator[View]:
    """A view that fits where standard output goes; a key q sets `stop`."""
    if screen.as_json or not screen.console.is_terminal:
        yield Lines(screen)
        return
    loop = asyncio.get_running_loop()
    with _keys(stop), Live(console=screen.console, screen=True, auto_refresh=False) as live:
        page = Page(live)
        page.draw()
        loop.add_signal_handler(signal.SIGWINCH, page.draw)
        try:
            yield page
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)


@contextmanager
def _keys(stop: asyncio.Event) -> Iterator[None]:
    """Read keys one by one, unseen; q sets `stop`. The terminal is left as it was."""
    if not sys.stdin.isatty():
        yield
        return
    keyboard, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(keyboard)

    def read() -> None:
        typed = os.read(keyboard, 64)
        if not typed or b"q" in typed.lower():
            stop.set()

    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, read)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
