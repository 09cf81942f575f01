"""What pages read from the server: with our own lanes, and never the same thing twice at a time."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar, cast

from tampu.admin.audit import note
from tampu.admin.metrics import render_metrics
from tampu.admin.queues import QueueSummary, queue_exists, queue_names, summarise_queue
from tampu.queue import Queue
from tampu.server.client import CredentialCallback
from tampu.server.connect import Server, Target
from tampu.server.lane import Lane
from tampu.server.lanes import Lanes
from tampu.util.lifecycle import cancel_all, ignore_outcome, run_all
from tampu.wire.audit import AUDIT, AuditEntry
from tampu.wire.keys import QueueKeys

logger = logging.getLogger(__name__)
T = TypeVar("T")

_LIMIT_S: Final = 4.0
_SUMMARY_S: Final = 0.9  # shorter than the time between two looks at a page
_METRICS_S: Final = 5.0
_ONE_SCAN_OF: Final = 100
"""Finding queues scans all keys: it may use this part of the server's time."""
_ONE_READ_OF: Final = 50
"""Looking through lines takes longer the more there are: it may use this part of the time."""
_FIRST_SCAN_S: Final = 2.0
_LEAST_BETWEEN_SCANS_S: Final = 3.0
_MOST_CACHED: Final = 1000
_MOST_REMEMBERED: Final = 300


class DataSource:
    """Reads the server for all pages and visitors. It connects on first use.

    What was read is shared for a moment, so that twenty open pages cost as much as one.
    """

    def __init__(
        self,
        target: Target = None,
        *,
        credentials: CredentialCallback | None = None,
        group: str = "default",
        known: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.group = group
        self._target, self._credentials = target, credentials
        self._work: set[asyncio.Task[None]] = set()
        self._lanes = Lanes.within(_LIMIT_S, target, credentials)
        self._is_open = False
        self._known = known
        self._cache: dict[Hashable, tuple[float, asyncio.Task[Any]]] = {}
        self._memory: dict[Hashable, dict[Any, Any]] = {}
        self._found: frozenset[str] = frozenset()
        self._scan: asyncio.Task[None] | None = None
        self._scan_after = float("-inf")

    async def close(self) -> None:
        """End what runs in the background, and disconnect. It connects again when it is used."""
        await cancel_all(self._work)
        tasks = [task for _, task in self._cache.values()]
        tasks += [] if self._scan is None else [self._scan]
        self._cache, self._scan, self._scan_after = {}, None, float("-inf")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._is_open:
            self._is_open = False
            await self._lanes.close()

    async def lane(self, keys: QueueKeys | bytes) -> Lane:
        """The lane to a queue, or to any key; raises a `ServerError` if the server is away."""
        if not self._is_open:
            self._is_open = True
            self._lanes.open()
        return await self._lanes.to(keys if isinstance(keys, bytes) else keys.stream)

    async def server(self) -> Server:
        """The server."""
        return (await self.lane(b"tampu")).server

    @asynccontextmanager
    async def open_queue(self, keys: QueueKeys) -> AsyncIterator[Queue]:
        """A queue with which to change something."""
        async with Queue(
            keys.name,
            self._target,
            credentials=self._credentials,
            group=self.group,
            time_limit=_LIMIT_S,
        ) as queue:
            yield queue

    async def note(self, entry: AuditEntry) -> None:
        """Write down what was done by hand."""
        await note(await self.lane(AUDIT), entry)

    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run something in the background; `close` cancels it."""
        task = asyncio.create_task(work, name=name)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        task.add_done_callback(_log_failure)

    # --- reading --------------------------------------------------------------------------------

    async def cache(
        self, key: Hashable, ttl_s: float, read: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        """What `read` returns, or what it returned up to `ttl_s` ago; an error is kept as well."""
        now = asyncio.get_running_loop().time()
        until, task = self._cache.get(key, (0.0, None))
        if task is None or (task.done() and until < now):
            self._drop_old(now)
            task = asyncio.create_task(read(), name="tampu-dashboard-read")
            task.add_done_callback(ignore_outcome)
            self._cache[key] = now + ttl_s, task
        # Shielded: a visitor who leaves must not take it away from the others.
        return cast("T", await asyncio.shield(task))

    async def cache_by_cost(
        self, key: Hashable, least_s: float, read: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        """As `cache`, for what may take long: it is then read less often."""
        memory = self.memory("took", key)

        async def measure() -> T:
            began = asyncio.get_running_loop().time()
            found = await read()
            memory["s"] = asyncio.get_running_loop().time() - began
            return found

        return await self.cache(key, max(least_s, _ONE_READ_OF * memory.get("s", 0.0)), measure)

    def memory(self, *key: Hashable) -> dict[Any, Any]:
        """What a reader remembers between two reads; that which was unused for longest is lost."""
        kept = self._memory.pop(key, {})
        while len(self._memory) >= _MOST_REMEMBERED:
            del self._memory[next(iter(self._memory))]
        self._memory[key] = kept
        return kept

    def forget(self) -> None:
        """Read everything again, after something was changed."""
        self._cache = {key: each for key, each in self._cache.items() if not each[1].done()}

    async def summary(self, keys: QueueKeys) -> QueueSummary:
        """A queue now: counts, ages, workers. Only commands that cost the same on any backlog."""

        async def read() -> QueueSummary:
            return await summarise_queue(await self.lane(keys), keys, self.group)

        return await self.cache(("summary", keys.name), _SUMMARY_S, read)

    async def summaries(self, names: Sequence[str]) -> list[QueueSummary]:
        """Many queues now, in the order of their names."""
        return await run_all(self.summary(QueueKeys(name)) for name in names)

    async def metrics(self, names: Sequence[str]) -> str:
        """The metrics of queues for Prometheus, at most five seconds old."""

        async def read() -> str:
            await self.server()  # connects
            return await render_metrics(self._lanes, names, group=self.group)

        return await self.cache(("metrics", tuple(names)), _METRICS_S, read)

    # --- which queues there are -----------------------------------------------------------------

    async def queue_names(self) -> list[str]:
        """The queues of the app and those that were found on the server, sorted.

        The server is scanned now and then. A scan that takes long goes on in the background.
        """
        now = asyncio.get_running_loop().time()
        if self._scan is None or (self._scan.done() and now >= self._scan_after):
            is_first = self._scan is None
            self._scan = asyncio.create_task(self._find_queues(), name="tampu-dashboard-scan")
            self._scan.add_done_callback(ignore_outcome)
            wait_s = _FIRST_SCAN_S if is_first else _FIRST_SCAN_S / 10
            await asyncio.wait({self._scan}, timeout=wait_s)
        if self._scan.done() and not self._scan.cancelled():
            self._scan.result()  # raises what it raised
        return sorted(self._found.union(self._known()))

    async def _find_queues(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._scan_after = began + 1.0  # if it fails
        self._found = frozenset(await queue_names(await self.server()))
        took_s = loop.time() - began
        self._scan_after = loop.time() + max(_LEAST_BETWEEN_SCANS_S, _ONE_SCAN_OF * took_s)

    async def has_queue(self, keys: QueueKeys) -> bool:
        """Whether a queue exists, or the app has tasks for it."""
        if keys.name in self._found or keys.name in self._known():
            return True

        async def read() -> bool:
            return await queue_exists(await self.lane(keys), keys)

        return await self.cache(("exists", keys.name), _SUMMARY_S, read)

    def _drop_old(self, now: float) -> None:
        if len(self._cache) >= _MOST_CACHED:
            self._cache = {
                key: each
                for key, each in self._cache.items()
                if each[0] >= now or not each[1].done()
            }


def _log_failure(task: asyncio.Task[None]) -> None:
    """Nobody waits for what runs in the background, so its error goes to the log."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        logger.error("%s failed", task.get_name(), exc_info=error)
