"""What came out when somebody looked for trouble."""

import asyncio
import functools
from typing import Any

import pytest

from tampu.errors import WrongContext
from tampu.job import Job
from tampu.queue import Queue
from tampu.worker import Worker
from tests.contract.workers import GROUP, KEYS, QUEUE, SOON, Calls, Crew, Gate, envelope
from tests.servers import RunningServer
from tests.waiting import wait_until


class TestHandlers:
    async def test_a_plain_function_that_gives_something_to_await_has_it_awaited(
        self, crew: Crew
    ) -> None:
        calls = Calls()
        await crew.hire(lambda job: calls(job), store_results=True)  # noqa: PLW0108
        job = await crew.queue.add("odd", 7)
        assert await job.result(timeout=SOON) == 7
        assert calls.data == [7]

    async def test_an_async_wrapper_around_a_plain_function_runs(self, crew: Crew) -> None:
        def plain(job: Job[Any]) -> object:
            return job.data

        @functools.wraps(plain)
        async def wrapper(job: Job[Any]) -> object:
            return plain(job)

        await crew.hire(wrapper, store_results=True)
        assert await (await crew.queue.add("odd", 8)).result(timeout=SOON) == 8

    async def test_a_value_that_cannot_even_be_looked_at_fails_its_attempt(
        self, crew: Crew
    ) -> None:
        class Lazy:
            @property  # type: ignore[misc]
            def __class__(self) -> type:
                raise RuntimeError("not yet")

        async def handler(job: Job[Any]) -> object:
            return Lazy()

        await crew.hire(handler, attempts=1)
        await crew.queue.add("odd")
        (letter,) = await crew.dead()
        assert letter.failure.error_type == "RuntimeError"

    async def test_progress_that_is_no_number_is_told_to_nobody(self, crew: Crew) -> None:
        async def handler(job: Job[Any]) -> str:
            job.progress(float("nan"))  # type: ignore[arg-type]
            job.progress(None)  # type: ignore[arg-type]
            return "done"

        await crew.hire(handler, store_results=True)
        assert await (await crew.queue.add("odd")).result(timeout=SOON) == "done"


class TestHolding:
    async def test_an_entry_that_came_by_a_lost_read_is_found_and_run(self, crew: Crew) -> None:
        gate = Gate()
        worker = await crew.hire(gate, concurrency=1, lease="1s")
        await crew.queue.add("first", 1)
        await gate.until(1)
        crew.put({b"d": envelope(b"\x02")})
        # As a read does that reaches the server when its connection has been given up.
        crew.admin.xreadgroup(GROUP, worker.id, {KEYS.stream: ">"}, count=1)
        gate.open.set()
        await gate.until(2)
        await crew.settled()
        assert gate.data == [1, 2]

    @pytest.mark.every_server
    async def test_an_entry_that_was_deleted_while_it_was_held_is_let_go(self, crew: Crew) -> None:
        worker = await crew.hire(Calls(), lease="1s")
        await wait_until(
            lambda: worker.id in crew.consumers(), within=SOON, sentence="the worker is there"
        )
        crew.admin.xreadgroup(GROUP, worker.id, {KEYS.stream: ">"}, count=1)
        await worker.stop()
        again = await crew.hire(Calls(), lease="1s")
        entry = crew.put({b"d": envelope(b"\x01")})
        crew.admin.xclaim(KEYS.stream, GROUP, again.id, 0, [entry], force=True, justid=True)
        crew.admin.xdel(KEYS.stream, entry)
        await wait_until(lambda: crew.pending() == 0, within=SOON, sentence="nothing is pending")


@pytest.mark.every_server
class TestIds:
    async def test_a_new_job_of_an_old_id_has_no_result_yet(self, crew: Crew) -> None:
        gate = Gate()
        gate.open.set()
        await crew.hire(gate, store_results=True)
        first = await crew.queue.add("odd", 1, job_id="same")
        assert await first.result(timeout=SOON) == 1
        crew.admin.delete(KEYS.marker("same"))  # as if `unique_for` were over
        gate.open.clear()
        second = await crew.queue.add("odd", 2, job_id="same")
        assert await crew.queue.results(["same"]) == {}
        gate.open.set()
        assert await second.result(timeout=SOON) == 2

    async def test_a_long_id_is_told_when_it_is_promoted(self, crew: Crew) -> None:
        long = "x" * 300
        await crew.hire(Calls())
        await crew.queue.add("odd", job_id=long, delay=0.01)
        await crew.settled()
        await wait_until(
            lambda: bool(crew.events(long)), within=SOON, sentence="the promotion was told"
        )
        assert not crew.admin.exists(KEYS.index(long))


class TestPlaces:
    async def test_a_worker_needs_no_right_to_ask_who_it_is(
        self, crew: Crew, running: RunningServer
    ) -> None:
        crew.admin.acl_setuser(
            "modest", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-client"]
        )
        try:
            calls = Calls()
            url = f"redis://modest:x@127.0.0.1:{running.port}/0"
            async with Worker(QUEUE, calls, url):
                await crew.queue.add("odd", 5)
                await calls.until(1)
                await crew.settled()
        finally:
            crew.admin.acl_deluser("modest")

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
