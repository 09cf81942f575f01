"""Workers and handlers for contract tests."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Unpack

from tampu.consumer.handler import Handlers
from tampu.consumer.options import WorkerOptions
from tampu.job import Job, JobState
from tampu.queue import Queue
from tampu.wire.envelope import Envelope, RetryOverride, encode_envelope
from tampu.wire.event import Event, decode_event
from tampu.wire.keys import QueueKeys
from tampu.worker import Worker
from tests.gates import assert_empty, look_at_gate
from tests.servers import RunningServer
from tests.waiting import wait_until

QUEUE = "work"
KEYS = QueueKeys(QUEUE)
GROUP = "default"
SOON = 60.0


class Calls:
    """A handler that records its jobs."""

    def __init__(self) -> None:
        self.jobs: list[Job[Any]] = []

    def __len__(self) -> int:
        return len(self.jobs)

    async def __call__(self, job: Job[Any]) -> object:
        self.jobs.append(job)
        return job.data

    @property
    def data(self) -> list[Any]:
        return [job.data for job in self.jobs]

    @property
    def attempts(self) -> list[int]:
        return [job.attempt for job in self.jobs]

    async def until(self, count: int) -> None:
        """Return when it has been called so often."""
        await wait_until(
            lambda: len(self.jobs) >= count, within=SOON, sentence=f"{count} jobs have started"
        )


class Boom(Calls):
    """A handler that raises an error, every time or so many times."""

    def __init__(self, error: BaseException | None = None, *, times: int | None = None) -> None:
        super().__init__()
        self._error = error or ValueError("boom")
        self._times = times

    async def __call__(self, job: Job[Any]) -> object:
        self.jobs.append(job)
        if self._times is None or len(self.jobs) <= self._times:
            raise self._error.with_traceback(None)
        return job.data


class Gate(Calls):
    """A handler that waits until it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.ended = 0
        self.inside = self.most = 0

    async def __call__(self, job: Job[Any]) -> object:
        self.jobs.append(job)
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await self.open.wait()
        finally:
            self.inside -= 1
        self.ended += 1
        return job.data


class Harness:
    """A queue and the workers on it; a worker that leaves something open fails the test."""

    def __init__(self, running: RunningServer, queue: Queue) -> None:
        self.running = running
        self.queue = queue
        self.admin: Any = running.admin()  # its replies are typed as anything that could be
        self.workers: list[Worker] = []

    def make_worker(self, handler: Handlers, **options: Unpack[WorkerOptions]) -> Worker:
        """A worker that has not been started."""
        worker = Worker(QUEUE, handler, self.running.url, **options)
        self.workers.append(worker)
        return worker

    async def start_worker(self, handler: Handlers, **options: Unpack[WorkerOptions]) -> Worker:
        """A worker that has been started."""
        worker = self.make_worker(handler, **options)
        await worker.start()
        return worker

    def is_settled(self) -> bool:
        with self.admin.pipeline(transaction=True) as look:
            look.xlen(KEYS.stream)
            look.zcard(KEYS.delayed)
            return bool(look.execute() == [0, 0])

    async def until_settled(self, within: float = SOON) -> None:
        """Return when no job waits, runs or is delayed."""
        await wait_until(self.is_settled, within=within, sentence="every job is settled")

    def add_entry(self, fields: dict[Any, Any]) -> bytes:
        """Write an entry as it is; returns its id."""
        return bytes(self.admin.xadd(KEYS.stream, fields))

    def hold_as_peer(
        self, entry_id: bytes, *, deliveries: int, idle_ms: int = 60_000, peer: str = "c-x"
    ) -> None:
        """Let a consumer of a peer hold an entry that was delivered so often."""
        if not self.admin.exists(KEYS.stream) or not self.admin.xinfo_groups(KEYS.stream):
            self.admin.xgroup_create(KEYS.stream, GROUP, "0", mkstream=True)
        self.admin.xreadgroup(GROUP, peer, {KEYS.stream: ">"}, count=1)
        held = {"idle": idle_ms, "retrycount": deliveries, "justid": True}
        self.admin.xclaim(KEYS.stream, GROUP, peer, 0, [entry_id], **held)

    def pending(self, consumer: str | None = None) -> int:
        found = self.admin.xpending_range(
            KEYS.stream, GROUP, "-", "+", 100_000, consumername=consumer
        )
        return len(found)

    def consumers(self) -> list[str]:
        if not self.admin.exists(KEYS.stream):
            return []
        groups = [group["name"].decode() for group in self.admin.xinfo_groups(KEYS.stream)]
        found = [self.admin.xinfo_consumers(KEYS.stream, group) for group in groups]
        return [each["name"].decode() for consumers in found for each in consumers]

    def events(self, job_id: str | None = None) -> list[Event]:
        """The events so far, oldest first, of one job or of all."""
        entries = self.admin.xrange(KEYS.events)
        told = [
            decode_event([each for pair in flat.items() for each in pair]) for _, flat in entries
        ]
        return [event for event in told if job_id in {None, event.job_id}]

    async def dead_letters(self, count: int = 1) -> list[Any]:
        """Wait for so many dead letters; fails if there are more."""
        await wait_until(
            lambda: self.admin.xlen(KEYS.dead) >= count,
            within=SOON,
            sentence=f"{count} jobs are buried",
        )
        letters = await self.queue.dead.peek(count + 1)
        assert len(letters) == count
        return letters

    async def pause(self, gate: Gate) -> None:
        """Pause the queue, and return when its workers know that.

        They read what they are told in order, so the last job at the gate is cancelled after it.
        """
        assert await self.queue.pause() is True
        job = gate.jobs[-1]
        await self.queue.job(job.id).cancel()

        async def is_over() -> bool:
            return (await job.info()).state is JobState.CANCELLED

        await wait_until(is_over, within=SOON, sentence="a worker has done what was asked last")

    def calls(self, command: str = "evalsha") -> int:
        """How often a command was called since `reset_calls`."""
        stats = self.admin.info("commandstats")
        return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])

    def reset_calls(self) -> None:
        self.admin.config_resetstat()

    async def close(self) -> None:
        """Stop all workers and check that nothing is left."""
        for worker in self.workers:
            await worker.stop(grace=0)
        ours = {worker.id for worker in self.workers}
        assert not ours & set(self.consumers()), "a consumer was left"
        heartbeats = [self.admin.exists(KEYS.worker(name.encode())) for name in ours]
        assert not any(heartbeats), "a heartbeat was left"
        leases = [each.name for each in threading.enumerate() if each.name == "tampu-leases"]
        assert not leases, "a thread was left"


@asynccontextmanager
async def harness_on(running: RunningServer) -> AsyncIterator[Harness]:
    """A harness whose workers leave no task, thread, pending entry, consumer or connection."""
    with running.admin() as admin:
        before = connections(admin)
        async with Queue(QUEUE, running.url) as queue:
            harness = Harness(running, queue)
            try:
                yield harness
            finally:
                await harness.close()
                harness.admin.close()
        assert own_tasks() == [], "a task was left"
        await wait_until(
            lambda: connections(admin) <= before, within=SOON, sentence="connections are closed"
        )
        await wait_until(
            lambda: handler_threads() == [],
            within=SOON,
            sentence="the threads of handlers have ended",
        )


async def until_empty(harness: Harness) -> None:
    """Return when no job waits or runs, nor at the gate; nothing may be held there then."""

    def is_empty() -> bool:
        return look_at_gate(harness.admin, KEYS).lined == 0 and harness.is_settled()

    await wait_until(is_empty, within=3 * SOON, sentence="every job has ended")
    assert_empty(harness.admin, KEYS)


def connections(admin: Any) -> int:  # noqa: ANN401 - a redis client
    return len(admin.client_list(_type="normal"))


def own_tasks() -> list[str]:
    return [name for task in asyncio.all_tasks() if (name := task.get_name()).startswith("tampu-")]


def handler_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("tampu-handler")]


def envelope(
    data: bytes = b"\x01",
    *,
    job_id: str = "j",
    attempt: int = 0,
    retry: RetryOverride | None = None,
) -> bytes:
    """The envelope of a job as a peer writes it; `data` is MessagePack."""
    return encode_envelope(Envelope(job_id, data, 1_794_725_043_642, attempt, retry))
