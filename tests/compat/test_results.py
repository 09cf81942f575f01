"""Behaviours of results, 181 and 182 in ChasquiMQ's re-test list."""

import asyncio
import warnings

import pytest

from tampu.compat.chasquimq import Job, Producer, UnrecoverableError
from tampu.errors import JobFailed
from tests.compat.shop import KEYS, SOON, Seen, Shop, echo
from tests.waiting import wait_until


class TestStored:
    async def test_181_what_a_handler_returns_is_there_for_a_while(self, shop: Shop) -> None:
        shop.hire(echo, store_results=True, result_ttl_ms=60_500)
        datas = [0, False, "", {"ok": [1]}, b"", [None]]
        jobs = await shop.queue.add_bulk([{"name": "n", "data": data} for data in datas])
        await shop.settled()
        ids = [job.id for job in jobs]
        assert await shop.queue.get_job_result_bulk([*ids, "nobody"]) == [*datas, None]
        assert await shop.queue.get_job_result(ids[3]) == {"ok": [1]}
        assert await shop.queue.get_job_result_bulk([]) == []
        assert 55 < shop.admin.ttl(KEYS.result(ids[0])) <= 61

    async def test_181_nothing_is_kept_unless_asked_for(self, shop: Shop) -> None:
        shop.hire(echo)
        job = await shop.queue.add("n", 1)
        await shop.settled()
        assert await shop.queue.get_job_result(job.id) is None

    async def test_181_a_failed_job_has_no_result(self, shop: Shop) -> None:
        shop.hire(Seen(fails=9, error=UnrecoverableError), store_results=True)
        job = await shop.queue.add("n", 1)
        await shop.letters()
        assert await shop.queue.get_job_result(job.id) is None

    async def test_181_none_and_no_bytes_store_nothing(
        self, shop: Shop, producer: Producer
    ) -> None:
        shop.hire(Seen(None), store_results=True)
        job = await shop.queue.add("n", 1)
        await shop.settled()
        assert not shop.admin.exists(KEYS.result(job.id))
        assert await producer.get_result(job.id) is None

    async def test_181_no_bytes_store_nothing_and_others_are_stored_as_they_are(
        self, shop: Shop, producer: Producer
    ) -> None:
        async def handler(job: object) -> bytes:
            return job.payload  # type: ignore[attr-defined,no-any-return]

        shop.consume(handler, store_results=True)
        ids = await producer.add_bulk([b"", b"\xc1", b"\x91" * 300])
        await shop.settled()
        assert await producer.get_result_bulk(ids) == [None, b"\xc1", b"\x91" * 300]

    @pytest.mark.parametrize("ttl_ms", [0, -1])
    async def test_181_a_time_that_cannot_be_is_refused(self, shop: Shop, ttl_ms: int) -> None:
        with pytest.raises(RuntimeError, match=f"result_ttl_ms must be positive; got {ttl_ms}"):
            shop.hire(echo, result_ttl_ms=ttl_ms)


class TestWaiting:
    async def test_182_it_comes_as_soon_as_it_is_there_and_without_a_warning(
        self, shop: Shop
    ) -> None:
        shop.hire(echo, store_results=True)
        (bulk,) = await shop.queue.add_bulk([{"name": "n", "data": "bulk"}])
        job = await shop.queue.add("n", {"x": 1})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert await job.wait_for_result(timeout=SOON, poll_interval=SOON) == {"x": 1}
            assert await bulk.wait_for_result() == "bulk"

    @pytest.mark.filterwarnings("ignore:.*store_results")  # a slow machine may take a second
    async def test_a_result_that_is_not_pushed_is_found_by_asking(self, shop: Shop) -> None:
        job = await shop.queue.add("n", 1)
        shop.admin.config_resetstat()
        waiting = asyncio.create_task(job.wait_for_result(timeout=SOON, poll_interval=0.02))
        await wait_until(
            lambda: shop.admin.info("commandstats").get("cmdstat_mget", {"calls": 0})["calls"] > 3,
            within=SOON,
            sentence="it asks again and again",
        )
        shop.admin.set(KEYS.result(job.id), b"\x07")  # as a worker of the peer does
        assert await waiting == 7

    @pytest.mark.parametrize(
        ("gives", "options"),
        [(None, {"store_results": True}), (1, {})],
        ids=["void handler", "disabled"],
    )
    async def test_182_without_a_result_the_time_runs_out(
        self, shop: Shop, gives: object, options: dict[str, bool]
    ) -> None:
        shop.hire(Seen(gives), **options)
        job = await shop.queue.add("n", 1)
        await shop.settled()
        with pytest.raises(asyncio.TimeoutError):
            await job.wait_for_result(timeout=0.2)

    async def test_182_after_a_second_a_warning_says_what_may_be_missing(self, shop: Shop) -> None:
        job = await shop.queue.add("n", 1)

        async def wait() -> None:
            await job.wait_for_result(timeout=2 * SOON)

        with pytest.warns(RuntimeWarning, match="store_results=True") as told:
            waiting = asyncio.create_task(wait())
            await wait_until(lambda: len(told) > 0, within=SOON, sentence="it is told")
            waiting.cancel()
            await asyncio.wait([waiting])
        assert len(told) == 1
        assert told[0].filename == __file__

    async def test_182_who_waits_can_be_cancelled(self, shop: Shop) -> None:
        job = await shop.queue.add("n", 1)
        waiting = asyncio.create_task(job.wait_for_result())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    async def test_182_a_handlers_job_has_no_queue_to_ask(self) -> None:
        with pytest.raises(RuntimeError, match="requires a Queue reference"):
            await Job("j", "n", 1, 0, 0).wait_for_result()

    async def test_a_buried_job_is_told_at_once_as_the_timeout_it_would_have_been(
        self, shop: Shop
    ) -> None:
        shop.hire(Seen(fails=9, error=UnrecoverableError), store_results=True)
        job = await shop.queue.add("n", 1)
        with pytest.raises(TimeoutError, match="boom") as told:
            await job.wait_for_result(timeout=SOON)
        assert isinstance(told.value, JobFailed)
        assert told.value.reason == "unrecoverable"

    async def test_a_result_that_cannot_be_read_is_a_runtime_error(self, shop: Shop) -> None:
        shop.admin.set(KEYS.result("j"), b"\xc1")
        with pytest.raises(RuntimeError, match=r"^decode: "):
            await shop.queue.get_job_result("j")
