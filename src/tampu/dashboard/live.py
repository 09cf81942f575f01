"""Pages that follow what happens: one poller for all visitors, and only while somebody looks."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tampu.dashboard.access import Access
from tampu.errors import ServerError, TampuError

logger = logging.getLogger(__name__)

_TICK_S: Final = 1.0
_ONE_PART_OF: Final = 4
"""The poller works for at most about this part of the time, however much there is to read."""
_LONGEST_PAUSE_S: Final = 10.0
_KEEP_ALIVE_S: Final = 15.0
_STREAM_S: Final = 300.0
"""After this a stream ends and the browser opens another: who may see what is asked again."""
_ASK_AGAIN_S: Final = 2.0  # below the time after which a page says that it hears nothing
_MOST_UNSENT: Final = 64
_MOST_STREAMS: Final = 1000


@dataclass(frozen=True, slots=True)
class WatchedPage:
    """A page as somebody looks at it. Visitors with the same access share it."""

    path: str
    pairs: tuple[tuple[str, str], ...]
    access: Access
    every_s: float = field(default=_TICK_S, compare=False)


Render: TypeAlias = Callable[[WatchedPage], Awaitable[Mapping[str, str]]]
"""The live regions of a page as HTML, by name. Raises a `ServerError` if the server is away."""


@dataclass(slots=True, eq=False)
class _Watched:
    regions: dict[str, str] = field(default_factory=dict)
    problem: str | None = None
    due: float = float("-inf")
    streams: set[asyncio.Queue[str]] = field(default_factory=set)

    def tell(self, event: str) -> None:
        for stream in list(self.streams):
            try:
                stream.put_nowait(event)
            except asyncio.QueueFull:  # a browser that does not read: it may come back
                self.streams.discard(stream)


class Live:
    """Renders the regions of watched pages again and again, and sends those that changed."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self._watched: dict[WatchedPage, _Watched] = {}
        self._poller: asyncio.Task[None] | None = None
        self._poke = asyncio.Event()
        self._stopping = asyncio.Event()

    @property
    def is_polling(self) -> bool:
        """Whether somebody looks."""
        return self._poller is not None

    async def close(self) -> None:
        """End all streams."""
        self._stopping.set()
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.cancel()
            await asyncio.gather(poller, return_exceptions=True)
        self._watched.clear()
        self._stopping = asyncio.Event()

    def look_now(self) -> None:
        """Render everything now, after something was changed."""
        for watched in self._watched.values():
            watched.due = float("-inf")
        self._poke.set()

    @property
    def is_full(self) -> bool:
        """Whether there are too many streams for another one."""
        return sum(len(each.streams) for each in self._watched.values()) >= _MOST_STREAMS

    async def stream(self, watch: WatchedPage) -> AsyncIterator[str]:
        """Server-sent events for one visitor, until the stream has been open for long."""
        loop, stopping = asyncio.get_running_loop(), self._stopping
        until = loop.time() + _STREAM_S
        unsent: asyncio.Queue[str] = asyncio.Queue(_MOST_UNSENT)
        watched = self._watched.setdefault(watch, _Watched())
        watched.streams.add(unsent)
        self._start(watch)
        try:
            yield "retry: 1000\n\n"
            for event in _whole_state(watched):
                yield event
            while loop.time() < until and unsent in watched.streams and not stopping.is_set():
                yield await _next_event(unsent, stopping) or ": still here\n\n"
        finally:
            watched.streams.discard(unsent)
            if not watched.streams and self._watched.get(watch) is watched:
                del self._watched[watch]

    async def snapshot(self, watch: WatchedPage) -> str:
        """All regions now, as events that end at once. The browser asks again after a moment."""
        unsent: asyncio.Queue[str] = asyncio.Queue(_MOST_UNSENT)
        await self._update(watch, _Watched(streams={unsent}))
        events = [unsent.get_nowait() for _ in range(unsent.qsize())]
        return "".join([f"retry: {_ASK_AGAIN_S * 1000:.0f}\n\n", *events])

    def _start(self, watch: WatchedPage) -> None:
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll(), name="tampu-dashboard-poller")
        elif self._watched[watch].due == float("-inf"):
            self._poke.set()  # a page that nobody looked at before need not wait for the tick

    async def _poll(self) -> None:
        try:
            while self._watched:
                self._poke.clear()
                await _wait(self._poke, await self._look())
        finally:
            if self._poller is asyncio.current_task():
                self._poller = None

    async def _look(self) -> float:
        """Render what is due, and return how long to wait until the next look."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        for watch, watched in list(self._watched.items()):
            if began >= watched.due:
                watched.due = began + watch.every_s - _TICK_S / 2
                await self._update(watch, watched)
        if any(each.problem is not None for each in self._watched.values()):
            return _TICK_S  # it took long because nobody answered
        return min(_LONGEST_PAUSE_S, max(_TICK_S, _ONE_PART_OF * (loop.time() - began)))

    async def _update(self, watch: WatchedPage, watched: _Watched) -> None:
        try:
            regions = await self._render(watch)
        except ServerError as error:
            if watched.problem is None:
                watched.problem = str(error)
                watched.tell(_event("away", {"sentence": watched.problem}))
            return
        except TampuError as error:  # such as a queue that was removed
            watched.tell(_event("gone", {"sentence": str(error)}))
            return
        except Exception:
            logger.warning("the page %r cannot be updated", watch.path, exc_info=True)
            return
        if watched.problem is not None:
            watched.problem = None
            watched.tell(_event("back", {}))
        for name, html in regions.items():
            if watched.regions.get(name) != html:
                watched.regions[name] = html
                watched.tell(_event("region", {"name": name, "html": html}))


def _whole_state(watched: _Watched) -> list[str]:
    """What somebody needs who comes to a page that others look at already."""
    events = [
        _event("region", {"name": name, "html": html}) for name, html in watched.regions.items()
    ]
    if watched.problem is not None:
        events.append(_event("away", {"sentence": watched.problem}))
    return events


def _event(kind: str, data: Mapping[str, str]) -> str:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"


async def _next_event(unsent: asyncio.Queue[str], stopping: asyncio.Event) -> str | None:
    """The next event; None after a while without one."""
    waiting = [
        asyncio.create_task(unsent.get(), name="tampu-dashboard-event"),
        asyncio.create_task(stopping.wait(), name="tampu-dashboard-stop"),
    ]
    try:
        await asyncio.wait(waiting, timeout=_KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
        event = waiting[0]
        return str(event.result()) if event.done() else None
    finally:
        for task in waiting:
            task.cancel()


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        pass
