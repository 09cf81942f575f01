"""Connecting and closing a queue; its counts and results."""

import asyncio
import pickle
from traceback import format_exception

import pytest
import redis
from redis.asyncio import Redis

from tampu import (
    Closed,
    OptionError,
    Queue,
    ResultTimeout,
    ServerUnreachable,
    WrongContext,
)
from tests.contract.queues import (
    KEYS,
    QUEUE,
    waiting,
    waiting_ids,
)
from tests.servers import RunningServer, free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server


class TestConnecting:
    async def test_an_unreachable_server_is_one_sentence_with_its_cause(self) -> None:
        with pytest.raises(ServerUnreachable, match="Connection refused") as caught:
            await Queue(QUEUE, f"redis://127.0.0.1:{free_port()}").add("a")
        assert isinstance(caught.value.__cause__, ConnectionRefusedError)
        shown = "".join(format_exception(caught.value))
        assert shown.count("Traceback (most recent call last)") == 1
        assert "site-packages/redis" not in shown

    async def test_tasks_that_race_to_the_first_use_share_one_connection(
        self, running: RunningServer, admin: redis.Redis
    ) -> None:
        before = len(admin.client_list())
        queue = Queue(QUEUE, running.url)
        await asyncio.gather(*[queue.add("a", number) for number in range(50)])
        assert len(waiting(admin)) == 50
        await wait_until(
            lambda: len(admin.client_list()) == before + 1,
            within=60,
            sentence="one connection is left",
        )
        await queue.close()

    async def test_after_close_it_raises_closed_and_holds_no_socket(
        self, running: RunningServer, admin: redis.Redis
    ) -> None:
        before = len(admin.client_list())
        queue = Queue(QUEUE, running.url)
        await queue.add("a")
        await queue.close()
        await queue.close()
        for call in (queue.add("a"), queue.counts(), queue.dead.peek(), queue.add_many([])):
            with pytest.raises(Closed):
                await call
        await wait_until(
            lambda: len(admin.client_list()) == before, within=60, sentence="no connection is left"
        )

    async def test_a_queue_that_was_never_used_can_be_closed(self) -> None:
        queue = Queue(QUEUE, "redis://127.0.0.1:1/0")
        await queue.close()
        with pytest.raises(Closed):
            await queue.add("a")

    async def test_running_adds_finish_before_it_closes(
        self, running: RunningServer, admin: redis.Redis
    ) -> None:
        async with Queue(QUEUE, running.url) as queue:
            adding = [asyncio.create_task(queue.add("a", number)) for number in range(3000)]
            await asyncio.sleep(0)  # each has put its job in a batch
        added = await asyncio.gather(*adding)
        assert sorted(waiting_ids(admin)) == sorted(job.id for job in added)

    async def test_the_client_of_the_user_stays_open(
        self, running: RunningServer, admin: redis.Redis
    ) -> None:
        async with Redis(port=running.port) as client:
            async with Queue(QUEUE, client) as queue:
                await queue.add("a")
            assert await client.ping()
        assert len(waiting(admin)) == 1

    async def test_the_url_comes_from_the_environment(
        self, running: RunningServer, admin: redis.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAMPU_URL", running.url)
        async with Queue(QUEUE) as queue:
            await queue.add("a")
        assert len(waiting(admin)) == 1

    async def test_invalid_options_raise_before_it_connects(self) -> None:
        queue = Queue(QUEUE, f"redis://127.0.0.1:{free_port()}/0")
        with pytest.raises(OptionError):
            await queue.add("a", delay=-1)
        with pytest.raises(ServerUnreachable):
            await queue.add("a")

    async def test_a_queue_cannot_be_used_in_a_second_loop(self, queue: Queue) -> None:
        with pytest.raises(WrongContext, match="event loop"):
            await asyncio.to_thread(asyncio.run, queue.counts())

    def test_a_queue_cannot_be_pickled(self) -> None:
        with pytest.raises(TypeError):
            pickle.dumps(Queue(QUEUE, "redis://:s3cret@127.0.0.1:1/0"))


class TestCountsAndResults:
    async def test_counts_say_where_jobs_are(self, queue: Queue, admin: redis.Redis) -> None:
        assert str(await queue.counts()) == (
            "Counts(waiting=0, active=0, delayed=0, dead=0, schedules=0)"
        )
        await queue.add_each("a", range(5))
        await queue.add_each("a", range(2), delay=60)
        admin.xgroup_create(KEYS.stream, "default", "0")
        admin.xreadgroup("default", "w", {KEYS.stream: ">"}, count=2)
        admin.xadd(KEYS.dead, {"d": b"x"})
        admin.zadd(KEYS.repeat, {"digest": 1})
        found = await queue.counts()
        assert (found.waiting, found.active, found.delayed) == (3, 2, 2)
        assert (found.dead, found.schedules) == (1, 1)

    async def test_active_jobs_are_those_of_the_group(
        self, running: RunningServer, admin: redis.Redis
    ) -> None:
        async with Queue(QUEUE, running.url, group="other") as queue:
            await queue.add_each("a", range(5))
            admin.xgroup_create(KEYS.stream, "default", "0")
            admin.xgroup_create(KEYS.stream, "other", "0")
            admin.xreadgroup("default", "w", {KEYS.stream: ">"}, count=2)
            assert (await queue.counts()).active == 0

    async def test_a_key_of_the_wrong_type_is_an_error_not_a_count(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        admin.set(KEYS.delayed, "x")
        with pytest.raises(Exception, match="WRONGTYPE"):
            await queue.counts()

    async def test_results_returns_those_that_exist(self, queue: Queue, admin: redis.Redis) -> None:
        job = await queue.add("a")
        admin.set(KEYS.result(job.id), b"\x81\xa2ok\x01")
        assert await job.result(timeout=10) == {"ok": 1}
        assert await queue.job(job.id).result() == {"ok": 1}
        assert await queue.results([job.id, "unknown"]) == {job.id: {"ok": 1}}
        with pytest.raises(ResultTimeout):
            await queue.job("unknown").result(0.05)

    async def test_a_producer_cannot_report_progress(self, queue: Queue) -> None:
        job = await queue.add("a")
        with pytest.raises(WrongContext):
            job.progress(50)
