"""A program written for chasquimq, which does not know tampu.

`python program.py URL` prints "ok" at its end. The tests run it with the real package and with the
drop-in.
"""

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import chasquimq
from chasquimq import (
    BackoffSpec,
    Consumer,
    Job,
    MissedFiresPolicy,
    Producer,
    Queue,
    QueueEvents,
    RepeatPattern,
    Worker,
)
from chasquimq.errors import UnrecoverableError
from chasquimq.repeat import RepeatPattern as SamePattern

SOON_S = 60.0


class PoisonPill(UnrecoverableError):  # type: ignore[misc] # the real or the drop-in
    """A user's subclass."""


async def wait_until(condition: Any, what: str) -> None:  # noqa: ANN401 - sync or async
    """Wait until the condition holds; fail with `what` after a time limit."""
    limit = asyncio.get_running_loop().time() + SOON_S
    while True:
        holds = condition()
        if await holds if asyncio.iscoroutine(holds) else holds:
            return
        assert asyncio.get_running_loop().time() < limit, what
        await asyncio.sleep(0.02)


class Handler:
    """The program's handler. What it does depends on the job's name."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, Any, int]] = []

    async def __call__(self, job: Job) -> Any:  # noqa: ANN401 - depends on the job
        self.runs.append((job.name, job.data, job.attempt))
        assert job.attempts_made == job.attempt
        if job.name == "poison":
            raise PoisonPill("no use")
        if job.name == "flaky" and job.attempt == 0:
            raise ValueError("not yet")
        if job.name == "echo":
            return {"got": job.data}
        return None

    def runs_of(self, name: str) -> list[tuple[Any, int]]:
        return [(data, attempt) for run, data, attempt in self.runs if run == name]


async def produce(queue: Queue) -> None:
    job = await queue.add("echo", {"x": 1}, job_id="echo-1")
    assert (job.id, job.name, job.data, job.attempt) == ("echo-1", "echo", {"x": 1}, 0)
    again = await queue.add_unique("echo", {"x": 2}, job_id="echo-1")
    assert again.id == "echo-1"
    bulk = await queue.add_bulk([{"name": "one", "data": 1}, {"name": "two", "data": [2]}])
    assert [each.name for each in bulk] == ["one", "two"]
    await queue.add_bulk([{"name": "late", "data": 3, "delay_ms": 50}, {"name": "one", "data": 4}])
    await queue.add("flaky", None, attempts=3, backoff=BackoffSpec.fixed(20))
    await queue.add("poison", b"\x00", attempts=9, backoff=50)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    await queue.add("never", 1, delay_ms=tomorrow, job_id="never-1")
    assert await queue.cancel_delayed("never-1") is True
    assert await queue.cancel_delayed("never-1") is False


async def use_schedules(queue: Queue) -> None:
    cron = RepeatPattern.cron("0 2 * * *")
    nightly = await queue.add(
        "nightly", None, repeat=cron, missed_fires=MissedFiresPolicy.fire_all(23)
    )
    assert nightly.id == "nightly::cron:0 2 * * *:UTC"
    (listed,) = await queue.get_repeatable_jobs()
    assert listed.pattern == cron == SamePattern.cron("0 2 * * *")
    assert listed.missed_fires == MissedFiresPolicy.fire_all(23)
    assert (listed.key, listed.job_name, listed.limit) == (nightly.id, "nightly", None)
    assert await queue.remove_repeatable_by_key(nightly.id) is True
    assert await queue.remove_repeatable_by_key(nightly.id) is False


async def use_queue_and_worker(url: str) -> None:
    handler, received = Handler(), []
    events = QueueEvents("shop", redis_url=url, last_event_id="0")

    async def listen() -> None:
        async for event in events:
            received.append(event)  # noqa: PERF401 - as it arrives, not at the end

    worker = Worker("shop", handler, redis_url=url, concurrency=4, store_results=True)
    async with Queue("shop", redis_url=url) as queue:
        await produce(queue)
        await use_schedules(queue)
        running = asyncio.create_task(worker.run())
        listening = asyncio.create_task(listen())
        job = await queue.add("echo", [1, 2])
        assert await job.wait_for_result(timeout=SOON_S) == {"got": [1, 2]}
        await wait_until(lambda: len(handler.runs_of("late")) == 1, "the delayed job runs")
        await wait_until(
            lambda: handler.runs_of("flaky") == [(None, 0), (None, 1)], "the job is retried"
        )
        await wait_until(lambda: len(handler.runs_of("one")) == 2, "all jobs of the bulk run")
        assert handler.runs_of("echo")[0] == ({"x": 1}, 0)
        assert len([data for data, _ in handler.runs_of("echo") if data != [1, 2]]) == 1, (
            "added once"
        )
        await wait_until(queue.peek_dlq, "the job is buried")
        (letter,) = await queue.peek_dlq()
        assert (letter["reason"], letter["name"]) == ("unrecoverable", "poison")
        assert handler.runs_of("poison") == [(b"\x00", 0)]
        assert await queue.get_job_result("echo-1") == {"got": {"x": 1}}
        assert await queue.get_job_result_bulk(["echo-1", "nobody"]) == [{"got": {"x": 1}}, None]
        kinds = ("completed", "failed", "retry-scheduled", "dlq", "waiting", "active")
        await wait_until(
            lambda: {event.name for event in received} >= set(kinds), "all kinds of events arrive"
        )
        failed = [event for event in received if event.name == "failed"]
        assert {event.fields["reason"] for event in failed} == {"no use", "not yet"}
        assert all(isinstance(event.fields["ts"], int) for event in received)
        await worker.close()
        await running
        assert await queue.replay_dlq() == 1
        await events.close()
        listening.cancel()
    assert (queue.is_closed, worker.is_closed, worker.is_running) == (True, True, False)


async def use_low_level_classes(url: str) -> None:
    """The low-level classes take and return any bytes."""
    producer = Producer(url, "bytes")
    assert producer.stream_key() == "{chasqui:bytes}:stream"
    ids = await producer.add_bulk([b"\xc1", b"hello"])
    named = await producer.add_with_options(
        b"\xff\xff", {"name": "n", "retry": {"max_attempts": 2}}
    )
    runs: dict[str, Any] = {}

    async def handler(job: Any) -> bytes | None:  # noqa: ANN401 - the real or the drop-in
        runs[job.id] = (job.name, job.payload, job.attempt)
        return job.payload[::-1] if job.payload == b"hello" else None

    consumer = Consumer(url, "bytes", store_results=True, concurrency=2)
    running = asyncio.ensure_future(consumer.run(handler))
    await wait_until(lambda: len(runs) == 3, "all bytes arrive")
    assert [runs[each][1] for each in ids] == [b"\xc1", b"hello"]
    assert runs[named] == ("n", b"\xff\xff", 0)

    async def stored() -> bool:
        return bool(await producer.get_result(ids[1]) == b"olleh")

    await wait_until(stored, "the result is stored")
    assert await producer.get_result_bulk(ids) == [None, b"olleh"]
    consumer.shutdown()
    await running
    await producer.shutdown()


async def main(url: str) -> None:
    assert chasquimq.version()
    await use_queue_and_worker(url)
    await use_low_level_classes(url)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    print("ok", flush=True)  # noqa: T201 - read by the test
