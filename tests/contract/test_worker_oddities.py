"""Unusual handlers, entries, ids and environments."""

import asyncio
import functools
from typing import Any

import pytest

from tampu import Concurrency, NewJob
from tampu.errors import WrongContext
from tampu.job import Job
from tampu.queue import Queue
from tampu.worker import Worker
from tests.contract.workers import (
    GROUP,
    KEYS,
    QUEUE,
    SOON,
    Calls,
    Gate,
    Harness,
    envelope,
)
from tests.servers import RunningServer
from tests.waiting import wait_until


class TestHandlers:
    async def test_an_awaitable_returned_by_a_plain_function_is_awaited(
        self, harness: Harness
    ) -> None:
        calls = Calls()
        await harness.start_worker(lambda job: calls(job), store_results=True)  # noqa: PLW0108
        job = await harness.queue.add("odd", 7)
        assert await job.result(timeout=SOON) == 7
        assert calls.data == [7]

    async def test_an_async_wrapper_around_a_plain_function_runs(self, harness: Harness) -> None:
        def plain(job: Job[Any]) -> object:
            return job.data

        @functools.wraps(plain)
        async def wrapper(job: Job[Any]) -> object:
            return plain(job)

        await harness.start_worker(wrapper, store_results=True)
        assert await (await harness.queue.add("odd", 8)).result(timeout=SOON) == 8

    async def test_a_value_whose_class_raises_fails_its_attempt(self, harness: Harness) -> None:
        class Lazy:
            @property  # type: ignore[misc]
            def __class__(self) -> type:
                raise RuntimeError("not yet")

        async def handler(job: Job[Any]) -> object:
            return Lazy()

        await harness.start_worker(handler, attempts=1)
        await harness.queue.add("odd")
        (letter,) = await harness.dead_letters()
        assert letter.failure.error_type == "RuntimeError"

    async def test_progress_that_is_not_a_number_is_ignored(self, harness: Harness) -> None:
        async def handler(job: Job[Any]) -> str:
            job.progress(float("nan"))  # type: ignore[arg-type]
            job.progress(None)  # type: ignore[arg-type]
            return "done"

        await harness.start_worker(handler, store_results=True)
        assert await (await harness.queue.add("odd")).result(timeout=SOON) == "done"


class TestPendingEntries:
    async def test_an_entry_whose_read_was_lost_is_found_and_run(self, harness: Harness) -> None:
        gate = Gate()
        worker = await harness.start_worker(gate, concurrency=1, lease="1s")
        await harness.queue.add("first", 1)
        await gate.until(1)
        harness.add_entry({b"d": envelope(b"\x02")})
        # Like a read that reaches the server after its connection was given up.
        harness.admin.xreadgroup(GROUP, worker.id, {KEYS.stream: ">"}, count=1)
        gate.open.set()
        await gate.until(2)
        await harness.until_settled()
        assert gate.data == [1, 2]

    @pytest.mark.every_server
    async def test_an_entry_deleted_while_held_is_acknowledged(self, harness: Harness) -> None:
        worker = await harness.start_worker(Calls(), lease="1s")
        await wait_until(
            lambda: worker.id in harness.consumers(), within=SOON, sentence="the worker is there"
        )
        harness.admin.xreadgroup(GROUP, worker.id, {KEYS.stream: ">"}, count=1)
        await worker.stop()
        again = await harness.start_worker(Calls(), lease="1s")
        entry = harness.add_entry({b"d": envelope(b"\x01")})
        harness.admin.xclaim(KEYS.stream, GROUP, again.id, 0, [entry], force=True, justid=True)
        harness.admin.xdel(KEYS.stream, entry)
        await wait_until(lambda: harness.pending() == 0, within=SOON, sentence="nothing is pending")


@pytest.mark.every_server
class TestIds:
    async def test_a_new_job_with_an_old_id_has_no_result_yet(self, harness: Harness) -> None:
        gate = Gate()
        gate.open.set()
        await harness.start_worker(gate, store_results=True)
        first = await harness.queue.add("odd", 1, job_id="same")
        assert await first.result(timeout=SOON) == 1
        harness.admin.delete(KEYS.marker("same"))  # as if `unique_for` had passed
        gate.open.clear()
        second = await harness.queue.add("odd", 2, job_id="same")
        assert await harness.queue.results(["same"]) == {}
        gate.open.set()
        assert await second.result(timeout=SOON) == 2

    async def test_the_event_of_a_promoted_job_has_its_whole_id(self, harness: Harness) -> None:
        long = "x" * 300
        await harness.start_worker(Calls())
        await harness.queue.add("odd", job_id=long, delay=0.01)
        await harness.until_settled()
        await wait_until(
            lambda: bool(harness.events(long)), within=SOON, sentence="the promotion has an event"
        )
        assert not harness.admin.exists(KEYS.index(long))


class TestEnvironment:
    async def test_a_worker_works_without_the_permission_for_client_id(
        self, harness: Harness, running: RunningServer
    ) -> None:
        harness.admin.acl_setuser(
            "modest", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-client"]
        )
        try:
            calls = Calls()
            url = f"redis://modest:x@127.0.0.1:{running.port}/0"
            async with Worker(QUEUE, calls, url):
                await harness.queue.add("odd", 5)
                await calls.until(1)
                await harness.until_settled()
        finally:
            harness.admin.acl_deluser("modest")

    def test_a_queue_belongs_to_the_loop_it_was_first_used_in(self, running: RunningServer) -> None:
        queue = Queue(QUEUE, running.url)

        async def use() -> None:
            await queue.add("odd")

        async def use_and_leave() -> None:
            await use()

        with asyncio.Runner() as first, asyncio.Runner() as second:
            first.run(use_and_leave())
            with pytest.raises(WrongContext):
                second.run(use())
            first.run(queue.close())


@pytest.mark.every_server
@pytest.mark.parametrize("limits", [None, [Concurrency(1)]], ids=["plain", "limited"])
async def test_a_worker_starts_and_works_on_a_server_at_its_memory_limit(
    harness: Harness, limits: list[Concurrency] | None
) -> None:
    await (await harness.start_worker(Calls())).stop()
    await harness.queue.add_many([NewJob("odd", n, limits=limits) for n in range(20)])
    harness.admin.config_set("maxmemory-policy", "noeviction")
    harness.admin.config_set("maxmemory", 1)
    try:
        calls = Calls()
        worker = await harness.start_worker(calls)
        await calls.until(20)
        await wait_until(
            lambda: harness.admin.xlen(KEYS.stream) == 0, within=SOON, sentence="all are settled"
        )
        await worker.stop()
    finally:
        harness.admin.config_set("maxmemory", 0)
    assert sorted(calls.data) == list(range(20))
