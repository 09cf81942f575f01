"""Results; the numbers are those of the behaviours to re-test in the spec."""

import asyncio
import warnings

import pytest

from tampu.compat.chasquimq import Job, Producer, UnrecoverableError
from tampu.errors import JobFailed
from tests.compat.harness import KEYS, SOON, Harness, RecordingHandler, echo
from tests.waiting import wait_until


class TestStoredResults:
    async def test_a_result_is_stored_with_a_lifetime(self, harness: Harness) -> None:
        """Behaviour 181."""
        harness.start_worker(echo, store_results=True, result_ttl_ms=60_500)
        datas = [0, False, "", {"ok": [1]}, b"", [None]]
        jobs = await harness.queue.add_bulk([{"name": "n", "data": data} for data in datas])
        await harness.wait_until_settled()
        ids = [job.id for job in jobs]
        assert await harness.queue.get_job_result_bulk([*ids, "nobody"]) == [*datas, None]
        assert await harness.queue.get_job_result(ids[3]) == {"ok": [1]}
        assert await harness.queue.get_job_result_bulk([]) == []
        assert 55 < harness.admin.ttl(KEYS.result(ids[0])) <= 61

    async def test_no_result_is_stored_by_default(self, harness: Harness) -> None:
        """Behaviour 181."""
        harness.start_worker(echo)
        job = await harness.queue.add("n", 1)
        await harness.wait_until_settled()
        assert await harness.queue.get_job_result(job.id) is None

    async def test_a_failed_job_has_no_result(self, harness: Harness) -> None:
        """Behaviour 181."""
        harness.start_worker(
            RecordingHandler(failures=9, error=UnrecoverableError), store_results=True
        )
        job = await harness.queue.add("n", 1)
        await harness.dead_letters()
        assert await harness.queue.get_job_result(job.id) is None

    async def test_none_is_not_stored(self, harness: Harness, producer: Producer) -> None:
        """Behaviour 181."""
        harness.start_worker(RecordingHandler(None), store_results=True)
        job = await harness.queue.add("n", 1)
        await harness.wait_until_settled()
        assert not harness.admin.exists(KEYS.result(job.id))
        assert await producer.get_result(job.id) is None

    async def test_bytes_are_stored_unchanged_and_empty_bytes_are_not_stored(
        self, harness: Harness, producer: Producer
    ) -> None:
        """Behaviour 181."""

        async def handler(job: object) -> bytes:
            return job.payload  # type: ignore[attr-defined,no-any-return]

        harness.start_consumer(handler, store_results=True)
        ids = await producer.add_bulk([b"", b"\xc1", b"\x91" * 300])
        await harness.wait_until_settled()
        assert await producer.get_result_bulk(ids) == [None, b"\xc1", b"\x91" * 300]

    @pytest.mark.parametrize("ttl_ms", [0, -1])
    async def test_an_invalid_lifetime_is_refused(self, harness: Harness, ttl_ms: int) -> None:
        """Behaviour 181."""
        with pytest.raises(RuntimeError, match=f"result_ttl_ms must be positive; got {ttl_ms}"):
            harness.start_worker(echo, result_ttl_ms=ttl_ms)


class TestWaitForResult:
    async def test_a_result_arrives_as_soon_as_it_is_stored_and_without_a_warning(
        self, harness: Harness
    ) -> None:
        """Behaviour 182."""
        harness.start_worker(echo, store_results=True)
        (bulk,) = await harness.queue.add_bulk([{"name": "n", "data": "bulk"}])
        job = await harness.queue.add("n", {"x": 1})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert await job.wait_for_result(timeout=SOON, poll_interval=SOON) == {"x": 1}
            assert await bulk.wait_for_result() == "bulk"

    @pytest.mark.filterwarnings("ignore:.*store_results")  # a slow machine may take a second
    async def test_a_result_that_is_not_pushed_is_found_by_polling(self, harness: Harness) -> None:
        job = await harness.queue.add("n", 1)
        harness.admin.config_resetstat()
        waiting = asyncio.create_task(job.wait_for_result(timeout=SOON, poll_interval=0.02))
        await wait_until(
            lambda: (
                harness.admin.info("commandstats").get("cmdstat_mget", {"calls": 0})["calls"] > 3
            ),
            within=SOON,
            sentence="the server is polled",
        )
        harness.admin.set(KEYS.result(job.id), b"\x07")  # as chasquimq's worker does
        assert await waiting == 7

    @pytest.mark.parametrize(
        ("returns", "options"),
        [(None, {"store_results": True}), (1, {})],
        ids=["returns-none", "not-stored"],
    )
    async def test_without_a_result_the_wait_times_out(
        self, harness: Harness, returns: object, options: dict[str, bool]
    ) -> None:
        """Behaviour 182."""
        harness.start_worker(RecordingHandler(returns), **options)
        job = await harness.queue.add("n", 1)
        await harness.wait_until_settled()
        with pytest.raises(asyncio.TimeoutError):
            await job.wait_for_result(timeout=0.2)

    async def test_after_a_second_a_warning_says_why_there_may_be_no_result(
        self, harness: Harness
    ) -> None:
        """Behaviour 182."""
        job = await harness.queue.add("n", 1)

        async def wait() -> None:
            await job.wait_for_result(timeout=2 * SOON)

        with pytest.warns(RuntimeWarning, match="store_results=True") as caught:
            waiting = asyncio.create_task(wait())
            await wait_until(lambda: len(caught) > 0, within=SOON, sentence="there is a warning")
            waiting.cancel()
            await asyncio.wait([waiting])
        assert len(caught) == 1
        assert caught[0].filename == __file__

    async def test_a_wait_can_be_cancelled(self, harness: Harness) -> None:
        """Behaviour 182."""
        job = await harness.queue.add("n", 1)
        waiting = asyncio.create_task(job.wait_for_result())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    async def test_the_job_of_a_handler_cannot_wait_for_its_result(self) -> None:
        """Behaviour 182."""
        with pytest.raises(RuntimeError, match="requires a Queue reference"):
            await Job("j", "n", 1, 0, 0).wait_for_result()

    async def test_a_wait_for_a_buried_job_ends_at_once_with_a_timeout_error(
        self, harness: Harness
    ) -> None:
        harness.start_worker(
            RecordingHandler(failures=9, error=UnrecoverableError), store_results=True
        )
        job = await harness.queue.add("n", 1)
        with pytest.raises(TimeoutError, match="boom") as raised:
            await job.wait_for_result(timeout=SOON)
        assert isinstance(raised.value, JobFailed)
        assert raised.value.reason == "unrecoverable"

    async def test_a_malformed_result_is_a_runtime_error(self, harness: Harness) -> None:
        harness.admin.set(KEYS.result("j"), b"\xc1")
        with pytest.raises(RuntimeError, match=r"^decode: "):
            await harness.queue.get_job_result("j")
