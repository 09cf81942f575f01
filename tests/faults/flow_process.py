"""A worker of a queue with flow control, in a process of its own that may be killed at any time.

Its handlers note at a server, apart from the queue, what runs: for each limit a hash of how many
jobs each process has within. Whatever settles entries is sent twice at random.
"""

import argparse
import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import redis.asyncio as redis

from tampu import Backoff, Batch, Job, JobBatch, Snooze, Worker
from tampu import Handler as JobHandler
from tampu.limits import RateLimited
from tampu.server.lane import Lane
from tampu.server.scripts import script
from tampu.util.lifecycle import ignore_outcome
from tests.faults.flow_jobs import BATCHED, NAMES

if TYPE_CHECKING:
    from tampu.consumer.handler import Function
    from tampu.server.protocol import Reply

COUNT: Final = "count:"  # and the limit's name
DONE: Final = "done"  # ids of jobs that have ended
ORDER: Final = "order:"  # and the key: numbers of ordered jobs, as they ended
EXCEEDED: Final = "exceeded"  # where a limit was
STARTS: Final = "starts"  # what started: `Start`, as JSON
DOWN: Final = "down"  # exists as long as fragile jobs fail
ENTER: Final = """
local n = 0
redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
local all = redis.call('HGETALL', KEYS[1])
for i = 2, #all, 2 do n = n + all[i] end
local time = redis.call('TIME')
if n > tonumber(ARGV[2]) then
    redis.call('RPUSH', 'exceeded', cjson.encode({time[1] + time[2] / 1e6, KEYS[1], ARGV[2], all}))
end
"""
_NOTE: Final = """
local time = redis.call('TIME')
local at = time[1] * 1000 + time[2] / 1000
for i = 3, #ARGV, 2 do
    redis.call('RPUSH', 'starts', cjson.encode({ at, ARGV[1], ARGV[2], ARGV[i],
        tonumber(ARGV[i + 1]) }))
end
"""
_TWICE: Final = {"ack", "finish", "retry", "bury", "close", "admit", "add"}


def send_twice(rng: Random, share: float) -> Callable[..., "asyncio.Future[Reply]"]:
    """What to put in the place of `Lane.send`: some calls are sent again, as after a lost reply."""
    send = Lane.send
    digests = {
        text.digest
        for each in script._scripts
        if each.name in _TWICE
        for text in (each._flagged, each._plain)
    }

    def send_more(self: Lane, packed: bytes, **options: Any) -> "asyncio.Future[Reply]":  # noqa: ANN401
        future = send(self, packed, **options)
        parts = packed[:120].split(b"\r\n", 5)
        if parts[2] == b"EVALSHA" and parts[4] in digests and rng.random() < share:
            send(self, packed, **options).add_done_callback(ignore_outcome)
        return future

    return send_more


class Start(NamedTuple):
    """A job that started."""

    at_ms: float  # by the server's clock
    worker: str  # the id of its process
    call: str  # of the handler; jobs of a batch have the same
    job_id: str
    attempt: int


class Handler:
    """Fails, snoozes or meets a rate limit at random, and counts itself in its limits."""

    def __init__(self, outside: "redis.Redis", rng: Random) -> None:
        self._outside, self._rng = outside, rng
        self._enter = outside.register_script(ENTER)
        self._note = outside.register_script(_NOTE)
        self._call_number = 0
        self._me = str(os.getpid())
        self._calls: set[asyncio.Future[object]] = set()

    async def __call__(self, job: Job[Any]) -> None:
        counts = (job.data or {}).get("counts", {})
        entered: list[str] = []
        try:
            for limit, most in counts.items():
                entered.append(limit)
                entering = self._enter(keys=[COUNT + limit], args=[self._me, most])
                await asyncio.shield(self._call(entering))
            if job.data and "calm" in job.data:
                await self._note_start([job])
            await asyncio.sleep(self._rng.random() * 0.02)
            await self._trouble(job)
            if "seq" in (job.data or {}):
                await self._outside.rpush(ORDER + str(job.key), job.data["seq"])
            await self._outside.sadd(DONE, job.id)
        finally:
            leaving = [self._call(self._outside.hincrby(COUNT + e, self._me, -1)) for e in entered]
            await asyncio.gather(*map(asyncio.shield, leaving))

    def _call(self, call: Awaitable[object]) -> "asyncio.Future[object]":
        """Have something done, also if the job is cancelled: what is counted stays true."""
        task = asyncio.ensure_future(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    async def batch(self, batch: JobBatch[Any]) -> None:
        """Some jobs fail alone in their first attempt; the others are done."""
        await self._note_start([*batch])
        await asyncio.sleep(self._rng.random() * 0.02)
        for job in batch:
            if job.data["n"] % 7 == 0 and job.attempt == 1:
                batch.fail(job, "alone", after=0.01)
            else:
                await self._outside.sadd(DONE, job.id)

    async def _note_start(self, jobs: Sequence[Job[Any]]) -> None:
        self._call_number += 1
        noted: list[str | int] = [self._me, self._call_number]
        for job in jobs:
            noted += [job.id, job.attempt]
        await asyncio.shield(self._call(self._note(args=noted)))

    async def _trouble(self, job: Job[Any]) -> None:
        if job.data and "calm" in job.data:
            if job.name == "fragile" and await self._outside.exists(DOWN):
                raise ConnectionError("the service is down")
            return
        chance = self._rng.random()
        if chance < 0.06:
            raise ValueError("at random")
        if chance < 0.1:
            raise Snooze(0.05)
        if chance < 0.12 and job.extras.line is not None:
            raise RateLimited(0.05)


async def _work(options: argparse.Namespace) -> None:
    rng = Random(os.getpid())  # noqa: S311 - what fails
    Lane.send = send_twice(rng, 0.1)  # type: ignore[method-assign]
    outside = redis.from_url(options.outside)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    backoff = Backoff.fixed(0.05)
    handler = Handler(outside, rng)
    handlers: dict[str, JobHandler | Function] = dict.fromkeys(NAMES, handler)
    handlers[BATCHED] = JobHandler(handler.batch, batch=Batch(5, wait="20ms", by="t"))
    worker = Worker(
        options.queue,
        handlers,
        options.url,
        concurrency=25,
        attempts=1000,
        lease="10s",
        backoff=backoff,
    )
    async with worker:
        print(worker.id, flush=True)  # noqa: T201 - what the test waits for
        await stopping.wait()
    await outside.aclose()


def main() -> None:
    """Work until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("queue")
    parser.add_argument("outside", help="the server of what is noted")
    logging.getLogger("tampu.consumer.reporter").setLevel(logging.ERROR)
    asyncio.run(_work(parser.parse_args()))


if __name__ == "__main__":
    main()
