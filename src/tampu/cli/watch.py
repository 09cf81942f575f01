"""`tampu watch`: queues as they change, on a full screen in a terminal and in lines elsewhere."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Annotated, Final, Protocol

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tampu.admin.queues import queue_names
from tampu.admin.rates import QueueRates, RateMeter
from tampu.admin.workers import count_alive
from tampu.cli.command import command
from tampu.cli.inspect import counts_json, workers_table
from tampu.cli.options import SharedOptions, WorkerGroup, new_app
from tampu.cli.output import print_error
from tampu.cli.screen import JsonObject, Screen, format_instant, format_rate, grid, short_text
from tampu.cli.signals import StopRequest, wait_for_any
from tampu.cli.target import check_queue
from tampu.errors import ServerError
from tampu.server.connect import Server, connect
from tampu.server.lane import Lane, LaneOptions
from tampu.util.clock import to_positive_ms
from tampu.wire.keys import QueueKeys

_FIND_QUEUES_EVERY_S: Final = 5.0
_QUICK: Final = LaneOptions(limit_s=3.0)

app = new_app()

SomeOrAll = Annotated[
    list[str] | None,
    typer.Argument(metavar="QUEUE", help="Some queues. Default: all queues.", show_default=False),
]
Interval = Annotated[str, typer.Option("--every", metavar="DURATION", help="Time between updates.")]
Updates = Annotated[
    int | None,
    typer.Option("--count", metavar="N", min=1, help="Stop after N updates.", show_default=False),
]


@command(app, "watch")
async def watch_queues(
    shared: SharedOptions,
    queues: SomeOrAll = None,
    *,
    every: Interval = "1s",
    count: Updates = None,
    group: WorkerGroup = "default",
) -> None:
    """Show queues as they change, until q or Ctrl-C.

    If standard output is not a terminal, prints one line for each queue and update.
    """
    every_s, screen = to_positive_ms("every", every) / 1000, Screen(shared)
    async with await connect(shared.url) as server, _WatchedQueues(server, group) as watched:
        for name in queues or ():
            await watched.add(name, must_exist=True)
        with StopRequest().listen() as stop, open_view(screen, stop) as view:
            while not stop.requested.is_set():
                try:
                    view.show(await watched.sample(find_more=not queues))
                except ServerError as error:
                    view.show_problem(str(error))
                count = None if count is None else count - 1
                if count == 0:
                    return
                await wait_for_any(stop.requested, timeout_s=every_s)


class _WatchedQueues:
    """The queues that are watched. Each has its own lane, since a cluster spreads them."""

    def __init__(self, server: Server, group: str) -> None:
        self._server = server
        self._group = group
        self._meters: dict[str, RateMeter] = {}
        self._lanes = AsyncExitStack()
        self._searched_at = float("-inf")

    async def __aenter__(self) -> "_WatchedQueues":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._lanes.aclose()

    async def add(self, name: str, *, must_exist: bool) -> None:
        """Watch one more queue; `CommandFailed` if it must exist and does not."""
        keys = QueueKeys(name)
        lane = await Lane.open(self._server, keys.stream, options=_QUICK)
        await self._lanes.enter_async_context(lane)
        if must_exist:
            await check_queue(self._server, lane, keys)
        self._meters[name] = RateMeter(lane, keys, self._group)

    async def sample(self, *, find_more: bool) -> list[QueueRates]:
        """Read each queue once; they are in order of their names."""
        now = asyncio.get_running_loop().time()
        if find_more and now - self._searched_at > _FIND_QUEUES_EVERY_S:
            self._searched_at = now
            for name in await queue_names(self._server):
                if name not in self._meters:
                    await self.add(name, must_exist=False)
        return [await self._meters[name].sample() for name in sorted(self._meters)]


# --- where it is shown --------------------------------------------------------------------------


class WatchView(Protocol):
    """Shows one update after the other."""

    def show(self, samples: Sequence[QueueRates]) -> None:
        """Show the queues as they are now."""

    def show_problem(self, problem: str) -> None:
        """Show that the server did not answer."""


class WatchLines:
    """Prints a line for each queue and update."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def show(self, samples: Sequence[QueueRates]) -> None:
        """Print them."""
        for sample in samples:
            self._screen.show_line(sample, rates_json, rates_line)

    def show_problem(self, problem: str) -> None:
        """Print it on standard error."""
        print_error(problem)


class WatchPage:
    """Fills the terminal's alternate screen, and draws again when its size changes."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._body: RenderableType = Text("Loading ...")
        self._note = ""

    def show(self, samples: Sequence[QueueRates]) -> None:
        """Draw them; a single queue with its workers."""
        self._note = f"{samples[0].at:%H:%M:%S}Z" if samples else ""
        parts: list[RenderableType] = [
            rates_table(samples) if samples else Text("There are no queues.")
        ]
        if len(samples) == 1 and samples[0].workers:
            parts += [Text(""), workers_table(samples[0].workers, samples[0].at)]
        self._body = Group(*parts)
        self.draw()

    def show_problem(self, problem: str) -> None:
        """Keep the last update on the screen and show the problem below it."""
        self._note = problem
        self.draw()

    def draw(self) -> None:
        """Fit the page into the terminal."""
        foot = Text(f"{self._note}  Press q to leave.".strip(), style="dim")
        self._live.update(Group(self._body, Text(""), foot), refresh=True)


@contextmanager
def open_view(screen: Screen, stop: StopRequest) -> Iterator[WatchView]:
    """A view that suits standard output; in a terminal the key q stops the command."""
    if screen.as_json or not screen.console.is_terminal:
        yield WatchLines(screen)
        return
    loop = asyncio.get_running_loop()
    with _read_keys(stop), Live(console=screen.console, screen=True, auto_refresh=False) as live:
        page = WatchPage(live)
        page.draw()
        loop.add_signal_handler(signal.SIGWINCH, page.draw)
        try:
            yield page
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)


@contextmanager
def _read_keys(stop: StopRequest) -> Iterator[None]:
    """Read single keys without showing them; q stops. Restores the terminal afterwards."""
    if not sys.stdin.isatty():
        yield
        return
    keyboard, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(keyboard)

    def read() -> None:
        typed = os.read(keyboard, 64)
        if not typed or b"q" in typed.lower():
            stop.stop()

    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, read)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


# --- what is printed ----------------------------------------------------------------------------


def rates_json(sample: QueueRates) -> JsonObject:
    """One queue at one update."""
    return {
        "at": sample.at,
        "queue": sample.queue,
        **counts_json(sample.counts),
        "workers": count_alive(sample.workers),
        "added_per_s": _round(sample.rates.added),
        "done_per_s": _round(sample.rates.done),
        "failed_per_s": _round(sample.rates.failed),
    }


def rates_table(samples: Sequence[QueueRates]) -> Table:
    """Queues at one update, one a line."""
    numbers = ("Waiting", "Active", "Delayed", "Dead", "Added/s", "Done/s", "Failed/s", "Workers")
    table = grid("Queue", *numbers, numbers=numbers, shrink=("Queue",))
    for each in samples:
        counts, rates = each.counts, each.rates
        table.add_row(
            short_text(each.queue),
            *map(str, (counts.waiting, counts.active, counts.delayed, counts.dead)),
            *map(format_rate, (rates.added, rates.done, rates.failed)),
            str(count_alive(each.workers)),
        )
    return table


def rates_line(sample: QueueRates) -> str:
    """One queue at one update, in one line."""
    counts, rates = sample.counts, sample.rates
    return (
        f"{format_instant(sample.at)} {sample.queue} waiting={counts.waiting} "
        f"active={counts.active} delayed={counts.delayed} dead={counts.dead} "
        f"added/s={format_rate(rates.added)} done/s={format_rate(rates.done)} "
        f"failed/s={format_rate(rates.failed)} workers={count_alive(sample.workers)}"
    )


def _round(per_s: float | None) -> float | None:
    return None if per_s is None else round(per_s, 2)
