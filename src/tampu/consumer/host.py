"""What the jobs of a worker can call."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any

from tampu.admin.control import JobControl, OpenQueue
from tampu.errors import WrongContext
from tampu.producer.options import QueueSettings
from tampu.server.flows import FlowReader, pair_results
from tampu.wire.placeholders import split_value
from tampu.wire.result import decode_result

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tampu.consumer.gate import GateRoom
    from tampu.consumer.output import OpenOutput
    from tampu.consumer.reporter import Reporter
    from tampu.events import EventWriter
    from tampu.job import Job, JobActions
    from tampu.server.lane import Lane
    from tampu.server.lanes import QueueLanes
    from tampu.util.clock import Duration
    from tampu.wire.keys import QueueKeys
    from tampu.wire.result import NodeResults


class WorkerHost:
    """What the jobs of a worker can call."""

    def __init__(
        self,
        reporter: Reporter,
        actions: JobActions,
        *,
        gate: GateRoom,
        lanes: QueueLanes,
        open_output: OpenOutput,
    ) -> None:
        self.actions = actions
        self.open_output = open_output
        self._lanes = lanes
        self._gate = gate
        self._reporter = reporter
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()

    async def wait_for_result(self, job_id: str, timeout: Duration) -> object:
        """A handler makes the result; it cannot wait for it."""
        raise WrongContext("call job.result() in a handler", "the result does not exist yet")

    async def read_results(self, of: NodeResults) -> AsyncIterator[object]:
        """The results of the jobs of a node, page by page, in the order in which they ended."""
        lane, keys = await self._lanes.to(of.queue)
        reader, start = FlowReader(lane, keys, of.flow), b"-"
        while page := await reader.results(of.node, start=start):
            for _, flat in page:
                for stored in pair_results(flat or ()).values():
                    value, is_result = split_value(stored)
                    if is_result:
                        yield decode_result(value)
            start = b"(" + page[-1][0]

    def charge(self, resources: list[str], tokens: int) -> None:
        """Take tokens of rates. A handler may call this in a thread."""
        with suppress(RuntimeError):  # the loop has ended before the thread
            self._loop.call_soon_threadsafe(self._gate.charge, resources, tokens)

    def report_progress(self, job: Job[Any], percent: int) -> None:
        """Write an event. A handler may call this in a thread, but events belong to the loop."""
        if get_ident() == self._thread:
            self._reporter.report_progress(job, percent)
            return
        with suppress(RuntimeError):  # the loop has ended before the thread
            self._loop.call_soon_threadsafe(self._reporter.report_progress, job, percent)


def job_control(
    work: Lane, keys: QueueKeys, writer: EventWriter | None, *, group: str
) -> JobControl:
    """What the jobs of a worker can do with the jobs of their queue."""
    opened = OpenQueue(work, writer)

    async def connect() -> OpenQueue:
        return opened

    return JobControl(keys, connect, rules=QueueSettings().job_rules, group=group)
