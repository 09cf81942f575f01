"""What becomes of jobs that wait for newer ones, for a quiet time, for room, or for better times.

Two producers add them, and two workers run them, one of which is killed now and then.
"""

import asyncio
import json
import os
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pytest

from tampu import Breaker, BuryReason, Concurrency, Debounce, NewJob, Queue, Unique
from tampu.wire.event import Event, EventKind, decode_event
from tests.faults.flow_jobs import BATCHED
from tests.faults.flow_process import DOWN, STARTS, Start, send_twice
from tests.faults.flow_run import FlowRun, flow_run
from tests.servers import RunningServer

RULES_S: Final = float(os.environ.get("TAMPU_FAULTS_FLOW_S", "8")) / 2
KILL_EVERY_S: Final = 1.0
QUIET_MS: Final = 100
LATE_S: Final = 0.1
COOLDOWN_S: Final = 0.3
OPTIONS: Final[dict[str, Callable[[int], dict[str, Any]]]] = {
    "quiet": lambda _: {"debounce": Debounce(QUIET_MS / 1000, by="t")},
    "latest": lambda t: {"key": t, "keep": "latest", "limits": [Concurrency(1, by="t")]},
    "once": lambda t: {"unique": Unique(key=str(t))},
    BATCHED: lambda t: {"key": t},
    "late": lambda _: {"expires": LATE_S, "limits": [Concurrency(1)]},
    "drop_old": lambda t: {"key": t, "max_waiting": 2, "on_full": "drop_old"},
    "drop_new": lambda t: {"key": t, "max_waiting": 2, "on_full": "drop_new"},
    "fragile": lambda _: {"breaker": Breaker(failures=1, of=4, cooldown=COOLDOWN_S)},
}
WAITS: Final = {"limits": [Concurrency(1)], "max_waiting": 2, "on_full": "wait"}


class Added(NamedTuple):
    """A job that a producer has added."""

    id: str
    name: str
    producer: int
    number: int
    value: int
    at_ms: float  # by the server's clock, before it was added
    duplicate: bool
    dropped: bool


class Producer:
    """Adds jobs one call after the other."""

    def __init__(self, number: int, queue: Queue, run: FlowRun) -> None:
        self._number, self._queue, self._run = number, queue, run
        self._rng = Random(number)  # noqa: S311 - what is added
        self._numbers = count()
        self.added: list[Added] = []

    async def go(self, is_over: asyncio.Event) -> None:
        """Add jobs with all rules until the end."""
        while not is_over.is_set():
            await self._add(
                [self._make(name) for name in OPTIONS for _ in range(self._rng.choice((0, 1, 3)))]
            )
            await asyncio.sleep(0.02)

    async def go_slowly(self, is_over: asyncio.Event) -> None:
        """Add jobs that wait until there is room for them."""
        while not is_over.is_set():
            await self._add([self._make("wait")])

    def _make(self, name: str) -> NewJob:
        value, number = self._rng.randrange(5), next(self._numbers)
        data: dict[str, Any] = {"t": value, "n": number, "calm": True}
        if name in {"once", "latest", "late"}:  # none runs beside one that still waits for its ack
            counted = f"{name} {value}" if name != "late" else name
            data["counts"] = {counted: 1}
        return NewJob(name, data, **(OPTIONS[name](value) if name in OPTIONS else WAITS))

    async def _add(self, wanted: list[NewJob]) -> None:
        seconds, micros = self._run.outside.time()
        at_ms = seconds * 1000 + micros / 1000
        jobs = await self._queue.add_many(wanted)
        for new, job in zip(wanted, jobs, strict=True):
            data: Any = new.data
            given = (new.name, self._number, data["n"], data["t"], at_ms)
            self.added.append(Added(job.id, *given, job.duplicate, job.dropped))


class Record:
    """What was added, what started, and how it ended."""

    def __init__(self, added: list[Added], starts: list[Start], killed: set[str]) -> None:
        self.added = [each for each in added if not each.duplicate]
        self.duplicates = [each for each in added if each.duplicate]
        self.starts = starts
        self.killed = killed
        self.of_job = defaultdict[str, list[Start]](list)
        for start in starts:
            self.of_job[start.job_id].append(start)
        self.done: set[str] = set()
        self.dropped: set[str] = set()
        self.expired: set[str] = set()

    async def read_ends(self, run: FlowRun) -> None:
        """How each job has ended."""
        self.done = run.done()
        rest = {each.id for each in self.added if not each.dropped} - self.done
        letters = await run.queue.dead.peek(100_000)
        assert {each.reason for each in letters} <= {BuryReason.EXPIRED}
        self.expired = {str(each.job_id) for each in letters}
        refused = {each.id for each in self.added if each.dropped}
        self.dropped = refused | await run.dropped(rest - self.expired)

    def of(self, name: str) -> list[Added]:
        found = [each for each in self.added if each.name == name]
        assert found
        return found

    def was_cut_off(self, job_id: str) -> bool:
        """Whether a worker was killed that had this job, be it before it could note the start."""
        starts = self.of_job[job_id]
        is_unseen = any(start.attempt > number for number, start in enumerate(starts, start=1))
        return is_unseen or any(start.worker in self.killed for start in starts)

    def last_of_values(self, name: str) -> Iterator[list[Added]]:
        """For each value the last jobs of both producers: one of them was the last of all."""
        last = {(each.value, each.producer): each for each in self.of(name)}
        for value in {each.value for each in self.of(name)}:
            yield [each for (of, _), each in last.items() if of == value]


def check_ends(record: Record, run: FlowRun) -> None:
    """Each job is done, dropped or expired; what was dropped has not run, and is no secret."""
    for each in record.added:
        ends = [each.id in ids for ids in (record.done, record.dropped, record.expired)]
        assert sum(ends) == 1 or (record.was_cut_off(each.id) and sum(ends) > 1), each
        assert not (each.id in record.dropped and each.id in record.of_job), each
    assert int(run.admin.hget(run.keys.gate, "dropped")) == len(record.dropped)
    told: list[Event] = [
        decode_event([text for pair in fields.items() for text in pair])
        for _, fields in run.admin.xrange(run.keys.events)
    ]
    assert sorted(e.job_id for e in told if e.kind is EventKind.DROPPED) == sorted(record.dropped)
    dropped = {each.name for each in record.added if each.id in record.dropped}
    assert dropped == {"quiet", "latest", "drop_old", "drop_new"}


def check_debounce(record: Record) -> None:
    """Nothing runs before its quiet time, and of each value the last job runs."""
    for each in record.of("quiet"):
        for start in record.of_job[each.id]:
            assert start.at_ms >= each.at_ms + QUIET_MS - 1, "the time of adding is rounded down"
    for last in record.last_of_values("quiet"):
        assert any(each.id in record.done for each in last)


def check_latest(record: Record) -> None:
    """The last job of each key runs, and what a producer added earlier has not run later."""
    for last in record.last_of_values("latest"):
        assert any(each.id in record.done for each in last)
    for value in range(5):
        for producer in range(2):
            mine = [e for e in record.of("latest") if (e.value, e.producer) == (value, producer)]
            first = [record.of_job[e.id][0].at_ms for e in mine if e.id in record.of_job]
            assert first == sorted(first)


def check_unique(record: Record, run: FlowRun) -> None:
    """A duplicate is a job that was added, and no key is left. None ran beside another one."""
    added = {each.id: each.value for each in record.of("once")}
    assert record.duplicates
    assert all(added.get(each.id) == each.value for each in record.duplicates)
    assert run.admin.keys(run.keys.tag + b":tampu:unique:*") == []


def check_batches(record: Record) -> None:
    """Batches have one value and their size; what was settled alone changed nothing for others."""
    jobs = {each.id: each for each in record.of(BATCHED)}
    batches = defaultdict[tuple[str, str], list[Added]](list)
    for start in record.starts:
        if start.job_id in jobs:
            batches[start.worker, start.call].append(jobs[start.job_id])
    assert {len({each.value for each in batch}) for batch in batches.values()} == {1}
    assert 1 < max(map(len, batches.values())) <= 5
    for each in jobs.values():
        expected = 2 if each.number % 7 == 0 else 1
        assert len(record.of_job[each.id]) == expected or record.was_cut_off(each.id), each


def check_expiry(record: Record) -> None:
    """Some were late; a job that was late has not run."""
    ids = {each.id for each in record.of("late")}
    assert ids & record.done
    assert record.expired
    assert record.expired <= ids
    started = record.expired & record.of_job.keys()
    assert all(record.was_cut_off(each) for each in started)


def check_shedding(record: Record) -> None:
    """Of a full line the old jobs are dropped or the new ones, and who waits loses none."""
    assert all(each.id in record.done for each in record.of("wait"))
    assert not any(each.dropped for each in record.of("drop_old"))
    refused = {each.id for each in record.of("drop_new") if each.dropped}
    assert refused == {each.id for each in record.of("drop_new")} & record.dropped
    for last in record.last_of_values("drop_old"):
        assert any(each.id in record.done for each in last), "the newest is never dropped"


def check_breaker(record: Record, *, down_s: float) -> None:
    """As long as all jobs fail, one is tried in each cooldown; then all are done."""
    jobs = {each.id for each in record.of("fragile")}
    assert jobs <= record.done
    failed = sum(len(starts) - 1 for job_id, starts in record.of_job.items() if job_id in jobs)
    at_once = 4 + 2 * 25  # so many may have started when the task was stopped
    assert 4 <= failed <= at_once + down_s / COOLDOWN_S + 26 * len(record.killed)


@pytest.mark.timeout(300 + RULES_S)
async def test_rules_hold_while_producers_compete_and_workers_die(
    running: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tampu.server.lane.Lane.send", send_twice(Random(3), 0.1))  # noqa: S311
    async with flow_run(running, tmp_path, 11, count=2) as run:
        async with Queue(run.queue.name, running.url) as other:
            run.outside.set(DOWN, 1)
            producers = [Producer(0, run.queue, run), Producer(1, other, run)]
            waiting = Producer(2, other, run)
            is_over, began = asyncio.Event(), time.monotonic()
            adding: list[Awaitable[None]] = [each.go(is_over) for each in producers]
            adds = asyncio.gather(*adding, waiting.go_slowly(is_over))
            await trouble(run)
            is_over.set()
            run.outside.delete(DOWN)
            down_s = time.monotonic() - began
            await adds
        await run.end()
        await run.workers.stop()
        starts = [Start(*json.loads(text)) for text in run.outside.lrange(STARTS, 0, -1)]
        added = [each for producer in (*producers, waiting) for each in producer.added]
        cut_off = {start.worker for start in starts} if run.workers.have_lapsed() else set()
        record = Record(added, starts, set(run.workers.killed) | cut_off)
        await record.read_ends(run)
        assert run.workers.killed
        check_ends(record, run)
        check_debounce(record)
        check_latest(record)
        check_unique(record, run)
        check_batches(record)
        check_expiry(record)
        check_shedding(record)
        check_breaker(record, down_s=down_s)


async def trouble(run: FlowRun) -> None:
    """Look, and kill a worker now and then."""
    began = killed_at = time.monotonic()
    while (now := time.monotonic()) < began + RULES_S:
        if now > killed_at + KILL_EVERY_S and run.workers.kill_one(run.outside):
            killed_at = now
            run.workers.start()
        run.look()
        await asyncio.sleep(0.02)  # what workers do in that time is the subject
