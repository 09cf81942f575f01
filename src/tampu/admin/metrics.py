"""Reads what Prometheus is told: one text for all queues of an app, from the server."""

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Final

from msgspec import Struct

from tampu.admin.history import measure_gauges, read_totals
from tampu.admin.workers import count_alive, workers_of
from tampu.errors import ServerError
from tampu.metrics.prometheus import MetricsText, QueueMetrics
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target
from tampu.server.lanes import Lanes
from tampu.server.scripts.outbox import read_outboxes
from tampu.util.lifecycle import run_all
from tampu.wire.keys import QueueKeys

LIMIT_S: Final = 3.0
"""How long reading may take."""
KEPT_S: Final = 5.0
_QUEUES_AT_A_TIME: Final = 16  # fewer than the lanes that stay open in a cluster


async def render_metrics(lanes: Lanes, queues: Sequence[str], *, group: str = "default") -> str:
    """The metrics of queues in the text format of Prometheus.

    Counters are those of the whole fleet since recording began, without the last ten seconds.
    Raises a `ServerError` if the server does not answer.
    """
    text = MetricsText()
    names = sorted(set(queues))
    for start in range(0, len(names), _QUEUES_AT_A_TIME):
        part = names[start : start + _QUEUES_AT_A_TIME]
        for each in await run_all(read_metrics(lanes, name, group.encode()) for name in part):
            text.add(each)
            await asyncio.sleep(0)  # a queue may have hundreds of tasks, and the loop runs jobs
    return str(text)


async def read_metrics(lanes: Lanes, queue: str, group: bytes) -> QueueMetrics:
    """What is known of one queue now."""
    keys = QueueKeys(queue)
    lane = await lanes.to(keys.stream)
    totals = await read_totals(lane, keys)
    gauges = await measure_gauges(lane, keys, group)
    alive = count_alive(await workers_of(lane, keys, group))
    return QueueMetrics(queue, totals, gauges, alive, await read_outboxes(lane, keys))


class MetricsPage(Struct, frozen=True, tag=True):
    """The text for Prometheus; or without one, the problem."""

    text: str
    problem: str = ""


class MetricsReader:
    """Reads the metrics of some queues when somebody asks, on a connection of its own.

    Within five seconds the server is read once, however many ask.
    """

    def __init__(
        self,
        target: Target,
        queues: Sequence[str],
        *,
        credentials: CredentialCallback | None = None,
        group: str = "default",
    ) -> None:
        self._lanes = Lanes.within(LIMIT_S, target, credentials)
        self._lanes.open()
        self._queues, self._group = queues, group
        self._reading = asyncio.Lock()
        self._page = MetricsPage("", "nothing was read yet")
        self._read_at = float("-inf")

    async def __aenter__(self) -> "MetricsReader":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._lanes.close()

    async def page(self) -> MetricsPage:
        """The metrics, at most five seconds old. Takes no longer than `LIMIT_S` to find out."""
        async with self._reading:
            if monotonic() - self._read_at >= KEPT_S:
                self._page = await self._read()
                self._read_at = monotonic()
            return self._page

    async def _read(self) -> MetricsPage:
        try:
            async with asyncio.timeout(LIMIT_S):
                text = await render_metrics(self._lanes, self._queues, group=self._group)
        except TimeoutError:
            return MetricsPage("", f"the server did not answer within {LIMIT_S:g} s")
        except ServerError as error:
            return MetricsPage("", str(error))
        return MetricsPage(text)
