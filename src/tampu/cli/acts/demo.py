"""What `tampu demo` does: plays the shop, shows it, and tells how it went."""

import asyncio
import logging
from contextlib import suppress
from time import perf_counter
from typing import Final, Protocol

from rich.live import Live

from tampu.admin.queues import remove_queue
from tampu.admin.workers import WorkerState, workers_of
from tampu.cli.ending import no
from tampu.cli.screen import Screen
from tampu.cli.shared import Shared
from tampu.cli.show.demo import demo_frame, demo_line, demo_page, demo_shape
from tampu.consumer import reporter as telling
from tampu.demo.play import Ending, play
from tampu.demo.shop import EMAILS, ORDERS, app
from tampu.demo.tally import Tally
from tampu.server.connect import Server, connect
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys

_LOOK_EVERY_S: Final = 0.1
_GROUP: Final = b"default"


class View(Protocol):
    """Shows how the shop is doing."""

    def look(self, elapsed_s: float) -> None:
        """Show it as it is now."""


class Lines:
    """A line for all that is news, and one a second for the counts."""

    def __init__(self, screen: Screen, tally: Tally) -> None:
        self._screen, self._tally = screen, tally
        self._told, self._seconds = 0, 0

    def look(self, elapsed_s: float) -> None:
        """Print what is new."""
        for sentence in self._tally.news[self._told :]:
            self._print(elapsed_s, sentence)
        self._told = len(self._tally.news)
        if elapsed_s >= self._seconds + 1:
            self._seconds = int(elapsed_s)
            self._print(elapsed_s, demo_line(self._tally))

    def _print(self, elapsed_s: float, sentence: str) -> None:
        self._screen.console.print(f"{elapsed_s:5.1f}s  {sentence}")


class Page:
    """A part of the terminal that is drawn anew, and is gone when it is over."""

    def __init__(self, live: Live, tally: Tally, orders: int) -> None:
        self._live, self._tally, self._orders = live, tally, orders

    def look(self, elapsed_s: float) -> None:
        """Draw it."""
        frame = demo_frame(self._tally, self._orders, elapsed_s)
        self._live.update(frame, refresh=True)


async def demo(shared: Shared, *, orders: int) -> None:
    """Run the shop to its end on queues of its own."""
    # The shop is a program like any other: only where it runs is said from outside.
    app.url = shared.url
    # Dead letters are a part of the show, and shown; no warning has to tell of them.
    logging.getLogger(telling.__name__).setLevel(logging.ERROR)
    screen, tally = Screen(shared), Tally(list(app.tasks))
    async with await connect(shared.url) as server:
        for name in (ORDERS, EMAILS):
            await _clear(server, QueueKeys(name))
        about = f"{server.dialect} at {server.name}"
        if screen.as_json:
            ending = await play(orders, tally)
        else:
            screen.console.print(f"A small shop on {about}.")
            where = (
                ", in this directory: tampu watch" if shared.url is None else ": tampu watch --url"
            )
            screen.console.print(f"Look on from another terminal{where}\n")
            ending = await _shown(screen, tally, orders)
    screen.show(demo_shape(server.name, ending, tally), lambda: demo_page(ending, tally))


async def _shown(screen: Screen, tally: Tally, orders: int) -> Ending:
    if not screen.console.is_terminal:
        ending = await _watched(Lines(screen, tally), tally, orders)
        screen.console.print()
        return ending
    with Live(console=screen.console, auto_refresh=False, transient=True) as live:
        return await _watched(Page(live, tally, orders), tally, orders)


async def _watched(view: View, tally: Tally, orders: int) -> Ending:
    looking = asyncio.create_task(_keep_looking(view), name="tampu-demo-view")
    try:
        return await play(orders, tally)
    finally:
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking


async def _keep_looking(view: View) -> None:
    began = perf_counter()
    while True:
        view.look(perf_counter() - began)
        await asyncio.sleep(_LOOK_EVERY_S)


async def _clear(server: Server, keys: QueueKeys) -> None:
    """Remove what a demo before this one left, unless it is still at work."""
    async with await Lane.open(server, keys.stream) as lane:
        found = await workers_of(lane, keys, _GROUP)
    if any(each.state is WorkerState.ALIVE for each in found):
        raise no(f"a demo runs on {server.name}, or was killed within the last half minute.")
    await remove_queue(server, keys)
