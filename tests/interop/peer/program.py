"""What ChasquiMQ can be asked to do: each public method is a request, its answer fits into JSON."""

import asyncio
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from chasquimq import (
    Consumer,
    Producer,
    Queue,
    QueueEvents,
    RepeatPattern,
    Scheduler,
    Worker,
)

from tests.interop.peer.handler import Handler
from tests.interop.peer.values import packed, unpacked

QUIET_MS = 50  # how long a read of a worker that has stopped still takes what it gets
TICK_MS = 20
END_LIMIT_S = 15.0


class Program:
    """The queues, workers, schedulers and listeners of one program."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._queues: dict[str, Queue] = {}
        self._handlers: dict[str, Handler] = {}
        self._working: dict[str, tuple[Worker | Scheduler, asyncio.Future[None]]] = {}
        self._listening: dict[str, tuple[list[dict[str, Any]], asyncio.Task[None]]] = {}

    # --- the producer ---------------------------------------------------------------------------

    async def add(self, queue: str, name: str, data: str, **options: Any) -> str:  # noqa: ANN401
        if (at_ms := options.pop("at_ms", None)) is not None:
            options["delay_ms"] = datetime.fromtimestamp(at_ms / 1000, UTC)
        job = await self._queue(queue).add(name, unpacked(data), **options)
        return str(job.id)

    async def add_many(self, queue: str, name: str, datas: list[str]) -> list[str]:
        jobs = [{"name": name, "data": unpacked(data)} for data in datas]
        return [job.id for job in await self._queue(queue).add_bulk(jobs)]

    async def cancel(self, queue: str, job_id: str) -> bool:
        return bool(await self._queue(queue).cancel_delayed(job_id))

    async def peek(self, queue: str) -> list[dict[str, Any]]:
        found = await self._queue(queue).peek_dlq(100)
        return [{**letter, "payload": bytes(letter["payload"]).hex()} for letter in found]

    async def replay(self, queue: str) -> int:
        return int(await self._queue(queue).replay_dlq(100))

    async def result(self, queue: str, job_id: str) -> str:
        return packed(await self._queue(queue).get_job_result(job_id))

    async def results(self, queue: str, job_ids: list[str]) -> list[str]:
        return [packed(each) for each in await self._queue(queue).get_job_result_bulk(job_ids)]

    async def wait_for(self, queue: str, name: str, data: str) -> str:
        job = await self._queue(queue).add(name, unpacked(data))
        return packed(await job.wait_for_result(timeout=10, poll_interval=0.02))

    # --- repeats --------------------------------------------------------------------------------

    async def repeat(
        self,
        queue: str,
        name: str,
        data: str,
        *,
        pattern: dict[str, Any],
        **options: Any,  # noqa: ANN401 - as they are given
    ) -> str:
        rule = RepeatPattern(**pattern)
        job = await self._queue(queue).upsert_repeatable_job(
            name, unpacked(data), repeat=rule, **options
        )
        return str(job.id)

    async def repeat_as(self, queue: str, data: str, spec: dict[str, Any]) -> str:
        """As `repeat`, under a key of the caller's: only the engine's own door takes one."""
        engine = Producer(self._url, queue)
        spec["payload"] = bytes.fromhex(data)
        return str(await engine.upsert_repeatable(spec))

    async def repeats(self, queue: str) -> list[dict[str, Any]]:
        return [asdict(each) for each in await self._queue(queue).get_repeatable_jobs()]

    async def unrepeat(self, queue: str, key: str) -> bool:
        return bool(await self._queue(queue).remove_repeatable_by_key(key))

    # --- workers --------------------------------------------------------------------------------

    async def start_worker(
        self, queue: str, worker: str, *, handler: dict[str, Any], options: dict[str, Any]
    ) -> None:
        """Have a worker at work."""
        self._handlers[worker] = Handler(**handler)
        made = Worker(
            queue,
            self._handlers[worker],
            redis_url=self._url,
            consumer_id=worker,
            **{"read_block_ms": QUIET_MS, "scheduler_tick_ms": TICK_MS, **options},
        )
        self._working[worker] = made, asyncio.ensure_future(made.run())

    async def start_consumer_of_bytes(self, queue: str, worker: str) -> None:
        """The engine's own consumer, which leaves payloads as they are."""
        handler = self._handlers[worker] = Handler()
        made = Consumer(self._url, queue, consumer_id=worker, read_block_ms=QUIET_MS)

        async def noted(job: Any) -> None:  # noqa: ANN401 - the engine's job
            handler.calls.append({"id": job.id, "data": bytes(job.payload).hex()})

        self._working[worker] = made, asyncio.ensure_future(made.run(noted))

    async def schedule(self, queue: str, worker: str) -> None:
        """Have a scheduler at work, which runs no jobs."""
        made = Scheduler(self._url, queue, tick_interval_ms=TICK_MS, holder_id=worker)
        self._working[worker] = made, asyncio.ensure_future(made.run())

    async def calls(self, worker: str) -> list[dict[str, Any]]:
        return self._handlers[worker].calls

    async def free(self, worker: str) -> None:
        """Let go of what a worker holds."""
        self._handlers[worker].free.set()

    async def stop_worker(self, worker: str) -> None:
        """Stop a worker or a scheduler, and return when it has ended."""
        made, running = self._working.pop(worker)
        if worker in self._handlers:
            self._handlers[worker].free.set()
        if isinstance(made, Worker):
            await made.close()
        else:
            made.shutdown()
        async with asyncio.timeout(END_LIMIT_S):
            await running

    # --- events ---------------------------------------------------------------------------------

    async def listen(self, queue: str) -> None:
        """Note every event that there is and will be."""
        heard: list[dict[str, Any]] = []

        async def listening() -> None:
            events = QueueEvents(queue, redis_url=self._url, last_event_id="0", block_ms=100)
            async for event in events:
                heard.append(asdict(event))  # noqa: PERF401 - each is to be seen at once

        self._listening[queue] = heard, asyncio.create_task(listening())

    async def heard(self, queue: str) -> list[dict[str, Any]]:
        return self._listening[queue][0]

    # --- the end --------------------------------------------------------------------------------

    async def leave(self) -> None:
        """End all that a test has begun."""
        for worker in list(self._working):
            await self.stop_worker(worker)
        for _, task in self._listening.values():
            task.cancel()
        queues, self._queues, self._handlers, self._listening = self._queues, {}, {}, {}
        for queue in queues.values():
            await queue.close()

    def _queue(self, name: str) -> Queue:
        if name not in self._queues:
            self._queues[name] = Queue(name, redis_url=self._url)
        return self._queues[name]
