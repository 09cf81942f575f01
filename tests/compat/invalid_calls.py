"""A program that makes invalid calls, for chasquimq or the drop-in.

`python invalid_calls.py URL` prints the error of each call as JSON.
"""

import asyncio
import inspect
import json
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from chasquimq import (
    BackoffSpec,
    Job,
    MissedFiresPolicy,
    Producer,
    Queue,
    RepeatPattern,
    Scheduler,
    Worker,
)

InvalidCall = Callable[[], Any]

EVERY = RepeatPattern.every(60_000)
SPEC: dict[str, Any] = {"job_name": "t", "pattern": EVERY.to_dict(), "payload": b"\x01"}


async def handler(job: Job) -> None:
    """Never called."""


def calls_of_add(queue: Queue) -> dict[str, InvalidCall]:
    add = queue.add
    return {
        "name 257 bytes": lambda: add("x" * 257, 1),
        "delay 31 days": lambda: add("j", 1, delay=timedelta(days=31)),
        "delay neg": lambda: add("j", 1, delay_ms=-1),
        "delay inf": lambda: add("j", 1, delay_ms=float("inf")),
        "delay True": lambda: add("j", 1, delay_ms=True),
        "delay_ms+delay": lambda: add("j", 1, delay_ms=1, delay=timedelta(seconds=1)),
        "delay type": lambda: add("j", 1, delay=5),
        "delay_ms type": lambda: add("j", 1, delay_ms="5"),
        "delay span negative": lambda: add("j", 1, delay=timedelta(seconds=-1)),
        "attempts -1": lambda: add("j", 1, attempts=-1),
        "backoff bad kind": lambda: add("j", 1, backoff=BackoffSpec("bogus", 1)),
        "backoff str": lambda: add("j", 1, backoff="5"),
        "backoff True": lambda: add("j", 1, backoff=True),
        "job_id empty": lambda: add("j", 1, job_id=""),
        "job_id ws": lambda: queue.add_unique("j", 1, job_id="  "),
        "unserialisable": lambda: add("j", object()),
        "big int payload": lambda: add("j", 2**64),
    }


def calls_with_ids_and_limits(queue: Any, producer: Any) -> dict[str, InvalidCall]:  # noqa: ANN401 - arguments of any type
    return {
        "cancel int": lambda: queue.cancel_delayed(5),
        "cancel none": lambda: producer.cancel_delayed(None),
        "cancel ids str": lambda: producer.cancel_delayed_bulk("ab"),
        "result int": lambda: queue.get_job_result(5),
        "result ids str": lambda: producer.get_result_bulk("ab"),
        "result ids none": lambda: producer.get_result_bulk(None),
        "key bytes": lambda: queue.remove_repeatable_by_key(b"k"),
        "peek none": lambda: queue.peek_dlq(None),
        "list none": lambda: queue.get_repeatable_jobs(None),
    }


def calls_with_schedules(queue: Queue) -> dict[str, InvalidCall]:
    def add(repeat: Any, **more: Any) -> Any:  # noqa: ANN401 - arguments of any type
        return queue.add("t", 1, repeat=repeat, **more)

    once: dict[str, Any] = {"kind": "fire-all"}
    return {
        "bad cron": lambda: add(RepeatPattern.cron("nope")),
        "end before first": lambda: queue.upsert_repeatable_job(
            "t", 1, repeat=EVERY, end_before_ms=1
        ),
        "every 0": lambda: add(RepeatPattern.every(0)),
        "every neg": lambda: add(RepeatPattern.every(-5)),
        "missed_fires w/o repeat": lambda: add(None, missed_fires=MissedFiresPolicy.skip()),
        "fire_all dict 0": lambda: add(EVERY, missed_fires=once | {"max_catchup": 0}),
        "fire_all dict none": lambda: add(EVERY, missed_fires=once),
        "fire_all 2^32": lambda: add(EVERY, missed_fires=once | {"max_catchup": 2**32}),
        "missed type": lambda: add(EVERY, missed_fires=5),
        "repeat type": lambda: add("5"),
        "repeat dict": lambda: add({"kind": "x"}),
        "schedule name none": lambda: queue.add(None, 1, repeat=EVERY),
        "fire_all type": lambda: MissedFiresPolicy.fire_all("3"),
        "fire_all 0": lambda: MissedFiresPolicy.fire_all(0),
    }


def calls_of_producer(producer: Any) -> dict[str, InvalidCall]:  # noqa: ANN401 - arguments of any type
    def add(**opts: Any) -> Any:  # noqa: ANN401 - as above
        return producer.add_with_options(b"x", opts)

    def backoff(**given: Any) -> Any:  # noqa: ANN401 - as above
        return add(retry={"backoff": given})

    def upsert(**given: Any) -> Any:  # noqa: ANN401 - as above
        return producer.upsert_repeatable({k: v for k, v in (SPEC | given).items() if v != ""})

    return {
        "bulk_with_opts id multi": lambda: producer.add_bulk_with_options(
            [b"a", b"b"], {"id": "k"}
        ),
        "opts name int": lambda: add(name=1),
        "opts id int": lambda: add(id=1),
        "opts retry str": lambda: add(retry="a"),
        "opts no dict": lambda: producer.add_with_options(b"x", "q"),
        "payload str": lambda: producer.add("x"),
        "named pair": lambda: producer.add_bulk_named([("a", "b")]),
        "named single": lambda: producer.add_bulk_named([1]),
        "payloads str": lambda: producer.add_bulk(["a"]),
        "backoff no kind": lambda: backoff(delay_ms=1),
        "backoff kind list": lambda: backoff(kind=[], delay_ms=1),
        "backoff no delay": lambda: backoff(kind="fixed"),
        "backoff negative": lambda: backoff(kind="fixed", delay_ms=-1),
        "backoff multiplier": lambda: backoff(kind="fixed", delay_ms=1, multiplier="x"),
        "backoff no dict": lambda: add(retry={"backoff": "x"}),
        "add_in negative": lambda: producer.add_in(-1, b"x"),
        "add_at negative": lambda: producer.add_at(-5, b"x"),
        "add_in float": lambda: producer.add_in(1.5, b"x"),
        "spec no name": lambda: upsert(job_name=""),
        "spec no dict": lambda: producer.upsert_repeatable("q"),
        "spec name int": lambda: upsert(job_name=0),
        "spec no pattern": lambda: upsert(pattern=""),
        "spec no payload": lambda: upsert(payload=""),
        "spec payload str": lambda: upsert(payload="x"),
        "spec limit": lambda: upsert(limit=-1),
        "pattern bad kind": lambda: upsert(pattern={"kind": "x"}),
        "pattern no kind": lambda: upsert(pattern={}),
        "pattern no expression": lambda: upsert(pattern={"kind": "cron"}),
        "pattern expression none": lambda: upsert(pattern={"kind": "cron", "expression": None}),
        "pattern no interval": lambda: upsert(pattern={"kind": "every"}),
        "missed bad kind": lambda: upsert(missed_fires={"kind": "z"}),
        "missed no kind": lambda: upsert(missed_fires={}),
        "missed no dict": lambda: upsert(missed_fires="skip"),
    }


def calls_of_worker(url: str) -> dict[str, InvalidCall]:
    def worker(**options: Any) -> Worker:  # noqa: ANN401 - arguments of any type
        return Worker("q", handler, redis_url=url, **options)

    job = Job("j", "n", 1, 0, 0)
    waiting = Job("j", "n", 1, 0, 0, Queue("q", redis_url=url))
    return {
        "result_ttl_ms=0": lambda: worker(result_ttl_ms=0),
        "read_block_ms=-1": lambda: worker(read_block_ms=-1),
        "worker concurrency negative": lambda: worker(concurrency=-1),
        "worker concurrency str": lambda: worker(concurrency="x"),
        "worker concurrency none": lambda: worker(concurrency=None),
        "worker group int": lambda: worker(group=5),
        "worker id int": lambda: worker(consumer_id=0),
        "worker flag int": lambda: worker(events_enabled=1),
        "worker url none": lambda: Worker("q", handler, redis_url=None),
        "producer url none": lambda: Producer(None, "q"),
        "scheduler holder int": lambda: Scheduler(url, "q", holder_id=5),
        "scheduler max negative": lambda: Scheduler(url, "q", max_stream_len=-1),
        "queue url none": lambda: Queue("q", redis_url=None).add("j", 1),
        "worker claim negative": lambda: worker(claim_min_idle_ms=-1),
        "scheduler tick negative": lambda: Scheduler(url, "q", tick_interval_ms=-1),
        "producer pool 0": lambda: Producer(url, "q", pool_size=0),
        "wait timeout": lambda: waiting.wait_for_result(timeout=0),
        "wait poll": lambda: waiting.wait_for_result(poll_interval=-1),
        "wait no queue": job.wait_for_result,
    }


async def error_of(call: InvalidCall) -> str:
    """The error as text."""
    try:
        returned = call()
        if inspect.isawaitable(returned):
            returned = await returned
    except Exception as error:  # noqa: BLE001 - the error is what is wanted
        return f"{type(error).__name__}: {error}"
    return f"no error: {returned!r}"


async def main(url: str) -> dict[str, str]:
    queue, producer = Queue("q", redis_url=url), Producer(url, "q")
    calls = calls_of_add(queue) | calls_with_schedules(queue) | calls_of_producer(producer)
    calls |= calls_of_worker(url) | calls_with_ids_and_limits(queue, producer)
    errors = {case: await error_of(call) for case, call in calls.items()}
    await queue.close()
    await producer.shutdown()
    return errors


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1]))), flush=True)  # noqa: T201 - read by the test
