"""Rates while far more jobs wait than may start, by what the server itself has recorded.

Its append-only file has each entry that passed the gate, and each one that a window counted, with
the instant at which the gate let it through.
"""

import asyncio
from collections import defaultdict
from random import Random
from typing import Any

import pytest

from tampu import Backoff, Concurrency, Job, NewJob, Queue, Rate, RateLimited, Worker
from tampu.limits.model import AnyLimit
from tampu.wire.entry import decode_entry
from tampu.wire.envelope import decode_envelope
from tampu.wire.payload import decode_payload
from tests.conftest import Start
from tests.contract.workers import KEYS, QUEUE, SOON
from tests.faults.flow_process import send_twice
from tests.gates import assert_empty, commands, look_at_gate
from tests.servers import RunningServer
from tests.waiting import wait_until

TENANTS = 4
JOBS = 100  # of each name
SMOOTH = {"smooth": Rate("50/s", burst=5), "tenant": Rate("20/s", by="t", burst=3)}
STRICT = {"window": Rate("20/250ms", strict=True), "windows": Rate("5/200ms", by="t", strict=True)}
LIMITS: dict[str, list[AnyLimit]] = {
    "smooth": [SMOOTH["smooth"]],
    "tenant": [SMOOTH["tenant"], Concurrency(2, by="t")],
    "window": [STRICT["window"]],
    "windows": [STRICT["windows"], Concurrency(3)],
}


class Recorded:
    """When jobs passed the gate, in ms, by their name and tenant."""

    def __init__(self, server: RunningServer) -> None:
        self.passed = defaultdict[tuple[str, int | None], dict[tuple[str, int], float]](dict)
        windows: dict[tuple[bytes, bytes], float] = {}  # by key and entry
        for name, key, *rest in (each for each in commands(server) if len(each) > 2):
            if name.upper() == b"XADD" and key == KEYS.stream:
                self._note_entry([part for part in rest if part != b"*"])
            elif key.startswith(KEYS.gate + b":window:"):
                if name.upper() == b"ZADD":
                    pairs = zip(rest[1::2], rest[::2], strict=True)
                    windows |= {(key, entry): float(at) / 1000 for entry, at in pairs}
                elif name.upper() == b"ZREM":  # of a job that did not start
                    for entry in rest:
                        del windows[key, entry]
        self.windows = defaultdict[bytes, list[float]](list)
        for (key, _), at_ms in windows.items():
            self.windows[key].append(at_ms)

    def _note_entry(self, parts: list[bytes]) -> None:
        entry_id, *flat = parts
        entry = decode_entry(flat)
        if not entry.envelope:
            return  # what creates the stream
        envelope = decode_envelope(entry.envelope)
        data: Any = decode_payload(envelope.payload)
        for tenant in (None, data["t"]):
            # One that passes twice for the same attempt was given back unstarted before.
            attempts = self.passed[entry.name, tenant]
            attempts[envelope.id, envelope.attempt] = float(entry_id.split(b"-")[0])


def most_within(times_ms: list[float], span_ms: float) -> int:
    """The most of these instants that lie in any window of that length."""
    times_ms, most, start = sorted(times_ms), 0, 0
    for end, at in enumerate(times_ms):
        while times_ms[start] <= at - span_ms:
            start += 1
        most = max(most, end - start + 1)
    return most


@pytest.mark.every_server
async def test_no_rate_is_exceeded_in_any_window_while_workers_come_and_go(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs fail, meet rate limits and are given back unstarted; calls are sent twice."""
    monkeypatch.setattr("tampu.server.lane.Lane.send", send_twice(Random(5), 0.1))  # noqa: S311
    server, rng, done = start("--appendonly", "yes", "--appendfsync", "no"), Random(5), set[str]()  # noqa: S311

    async def handle(job: Job[Any]) -> None:
        chance = rng.random()
        if chance < 0.1:
            raise ValueError("at random")
        if chance < 0.13 and job.name in STRICT:
            raise RateLimited(0.02)
        done.add(job.id)

    def make_worker() -> Worker:
        return Worker(QUEUE, handle, server.url, attempts=1000, backoff=Backoff.fixed(0.01))

    with server.admin() as admin:
        async with Queue(QUEUE, server.url) as queue, make_worker():
            jobs = [
                NewJob(name, {"t": n % TENANTS}, limits=limits)
                for n in range(JOBS)
                for name, limits in LIMITS.items()
            ]
            ids = {job.id for job in await queue.add_many(jobs)}
            while len(done) < len(ids) // 2:  # workers that stop give back what has not started
                async with make_worker():
                    before = len(done)
                    await wait_until(
                        lambda: len(done) >= min(before + 40, len(ids)),  # noqa: B023 - at once
                        within=SOON,
                        sentence="some more are done",
                    )
            await wait_until(lambda: done == ids, within=SOON, sentence="all are done")
            await wait_until(
                lambda: look_at_gate(admin, KEYS).lined == 0 == admin.xlen(KEYS.stream),
                within=SOON,
                sentence="all are settled",
            )
        assert_empty(admin, KEYS)
    check(Recorded(server))


def check(recorded: Recorded) -> None:
    """Fail if more passed than the rates allow, in any window."""
    for name, rate in (SMOOTH | STRICT).items():
        count, per_us = rate.parts
        tenants = range(TENANTS) if rate.by else (None,)
        for tenant in tenants:
            passed = recorded.passed[name, tenant]
            assert len(passed) >= JOBS // len(tenants)
            if not rate.strict:
                assert most_within([*passed.values()], per_us / 1000) <= count + (rate.burst or 1)
    counted = {key.rpartition(b":window:")[2]: times for key, times in recorded.windows.items()}
    assert sorted(counted) == [b"window()", *(b"windows(t):%d" % t for t in range(TENANTS))]
    for key, times in counted.items():
        count, per_us = STRICT[key.partition(b"(")[0].decode()].parts
        assert 0 < most_within(times, per_us / 1000) <= count


async def test_a_call_settles_no_more_than_it_lets_through(start: Start) -> None:
    """Otherwise fewer and fewer jobs would run at a time, whatever the worker can have."""
    server, slots = start("--appendonly", "yes", "--appendfsync", "no"), 1500
    jobs, began, end = 2 * slots, 0, asyncio.Event()

    async def handle(_: Job[Any]) -> None:
        nonlocal began
        began += 1
        await end.wait()

    async with (
        Queue(QUEUE, server.url) as queue,
        Worker(QUEUE, handle, server.url, concurrency=slots),
    ):
        await queue.add_many([NewJob("j", None, key=number % 10) for number in range(jobs)])
        await wait_until(lambda: began >= slots, within=SOON, sentence="all slots are busy")
        end.set()  # all of them are done at once
        await wait_until(lambda: began == jobs, within=SOON, sentence="the others have begun")
    settled = [len(rest) - 1 for name, *rest in commands(server) if name.upper() == b"XDEL"]
    assert sum(settled) >= jobs
    assert max(settled) <= 500
