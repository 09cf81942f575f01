"""What `tampu watch` does."""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from tampu.admin.queues import queue_exists, queue_names
from tampu.admin.rates import QueueRates, RateMeter
from tampu.cli.acts.desk import no_queue
from tampu.cli.acts.live import view_on
from tampu.cli.running import told_to_stop
from tampu.cli.screen import Screen
from tampu.cli.shared import Shared
from tampu.errors import ServerError
from tampu.server.connect import Server, connect
from tampu.server.lane import Lane, LaneOptions
from tampu.util.clock import to_positive_ms
from tampu.wire.keys import QueueKeys

_NAMES_EVERY_S = 5.0
_QUICK = LaneOptions(limit_s=3.0)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long from look to look, and how many looks."""

    every: str
    count: int | None

    @property
    def every_s(self) -> float:
        """Seconds from look to look."""
        return to_positive_ms("every", self.every) / 1000


async def watch(shared: Shared, queues: Sequence[str], pace: Pace, *, group: str) -> None:
    """Show queues again and again, until told to stop or so many times."""
    every_s, left, screen = pace.every_s, pace.count, Screen(shared)
    async with await connect(shared.url) as server, _Watched(server, group) as watched:
        for name in queues:
            await watched.add(name, must_exist=True)
        with told_to_stop(signal.SIGINT, signal.SIGTERM) as stop, view_on(screen, stop) as view:
            while not stop.is_set():
                try:
                    view.show(await watched.step(find_more=not queues))
                except ServerError as error:
                    view.trouble(str(error))
                left = None if left is None else left - 1
                if left == 0:
                    return
                await _until(stop, every_s)


class _Watched:
    """The queues that are watched, each with a lane of its own: a cluster spreads them."""

    def __init__(self, server: Server, group: str) -> None:
        self._server = server
        self._group = group
        self._flows: dict[str, RateMeter] = {}
        self._lanes = AsyncExitStack()
        self._named_at = float("-inf")

    async def __aenter__(self) -> "_Watched":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._lanes.aclose()

    async def add(self, name: str, *, must_exist: bool) -> None:
        """Watch one more; ends the command if it must be there and is not."""
        keys = QueueKeys(name)
        lane = await Lane.open(self._server, keys.stream, options=_QUICK)
        await self._lanes.enter_async_context(lane)
        if must_exist and not await queue_exists(lane, keys):
            raise no_queue(name, self._server.name, await queue_names(self._server))
        self._flows[name] = RateMeter(lane, keys, self._group)

    async def step(self, *, find_more: bool) -> list[QueueRates]:
        """One look at each, in the order of their names."""
        now = asyncio.get_running_loop().time()
        if find_more and now - self._named_at > _NAMES_EVERY_S:
            self._named_at = now
            for name in await queue_names(self._server):
                if name not in self._flows:
                    await self.add(name, must_exist=False)
        return [await self._flows[name].step() for name in sorted(self._flows)]


async def _until(stop: asyncio.Event, limit_s: float) -> None:
    try:
        async with asyncio.timeout(limit_s):
            await stop.wait()
    except TimeoutError:
        return
