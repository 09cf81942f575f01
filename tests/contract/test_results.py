"""Results on real servers: pushed to callers that wait, with one reader for all of them."""

import asyncio

import pytest

from tampu import results
from tampu.errors import DecodeError, JobFailed, OptionError, ResultTimeout
from tampu.results import ResultReader
from tampu.server import listening
from tampu.server.connect import Server
from tampu.server.lane import Lane
from tampu.server.listening import SharedParts
from tampu.wire.dead import BuryReason, Failure
from tampu.wire.result import encode_notice, encode_result
from tests.contract.results import (
    KEYS,
    SOON,
    ManualWorker,
    calls,
    readers,
    reset_calls,
    until_blocked,
    waiting,
)
from tests.servers import RunningServer
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server


class TestWaiting:
    async def test_an_existing_result_is_returned_at_once(
        self, reader: ResultReader, manual: ManualWorker
    ) -> None:
        await manual.finish({"a": {"sent": 1}})
        assert await reader.wait("a", SOON) == {"sent": 1}
        assert await reader.wait("a", 0) == {"sent": 1}

    async def test_a_result_that_comes_later_is_pushed(
        self, reader: ResultReader, manual: ManualWorker, running: RunningServer
    ) -> None:
        (task,) = await waiting(reader, running, ["a"])
        await manual.finish({"a": [1, 2]})
        assert await asyncio.wait_for(task, 10) == [1, 2]

    @pytest.mark.parametrize("value", [None, 0, "", [], False])
    async def test_none_and_other_empty_values_are_results(
        self, reader: ResultReader, manual: ManualWorker, value: object
    ) -> None:
        task = asyncio.create_task(reader.wait("a", SOON))
        await manual.finish({"a": value})
        assert await task == value
        assert await reader.get_many(["a"]) == {"a": value}

    async def test_a_buried_job_raises_the_error_of_its_last_attempt(
        self, reader: ResultReader, manual: ManualWorker, running: RunningServer
    ) -> None:
        (task,) = await waiting(reader, running, ["a"])
        told = Failure("shop.NoMoney", "3 are missing", "Traceback: line 7")
        await manual.bury("a", BuryReason.RETRIES_EXHAUSTED, told)
        for wait in (task, reader.wait("a", 0)):
            with pytest.raises(JobFailed, match=r"shop\.NoMoney: 3 are missing") as caught:
                await wait
            error = caught.value
            assert (error.job_id, error.reason) == ("a", "retries_exhausted")
            assert error.error_type == "shop.NoMoney"
            assert (error.message, error.traceback) == ("3 are missing", "Traceback: line 7")

    async def test_a_job_buried_without_an_exception_raises_its_reason(
        self, reader: ResultReader, manual: ManualWorker
    ) -> None:
        await manual.bury("a", BuryReason.EXPIRED, None)
        with pytest.raises(JobFailed, match="expired") as caught:
            await reader.wait("a", SOON)
        assert (caught.value.error_type, caught.value.message) == ("", "")

    async def test_a_wait_ends_with_a_timeout(self, reader: ResultReader) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(ResultTimeout, match=r"No result of job a within 0\.3 s"):
            await reader.wait("a", 0.3)
        assert 0.29 < loop.time() - began < SOON

    async def test_a_timeout_of_zero_reads_once_and_starts_no_reader(
        self, reader: ResultReader, running: RunningServer
    ) -> None:
        reset_calls(running)
        with pytest.raises(ResultTimeout):
            await reader.wait("a", 0)
        assert (calls(running, "mget"), calls(running, "xread")) == (1, 0)

    async def test_a_result_without_a_notice_is_found_at_the_timeout(
        self, reader: ResultReader, lane: Lane, running: RunningServer
    ) -> None:
        (task,) = await waiting(reader, running, ["a"], timeout_s=0.5)
        assert not task.done()
        await lane.call("SET", KEYS.result("a"), encode_result(5, max_bytes=9))
        assert await task == 5

    async def test_each_caller_gets_its_own_copy_of_a_result(
        self, reader: ResultReader, manual: ManualWorker, running: RunningServer
    ) -> None:
        tasks = await waiting(reader, running, ["a"] * 3)
        await manual.finish({"a": {"n": 1}})
        values = await asyncio.gather(*tasks)
        assert values == [{"n": 1}] * 3
        assert len({id(value) for value in values}) == 3

    async def test_an_unreadable_result_raises_for_every_caller(
        self, reader: ResultReader, manual: ManualWorker, lane: Lane, running: RunningServer
    ) -> None:
        tasks = await waiting(reader, running, ["a", "a", "b"])
        await lane.call("SET", KEYS.result("a"), b"\xc1")
        await manual.finish({"b": 1})  # its notice alone does not wake the others
        await lane.call("XADD", KEYS.notices, "*", "ids", encode_notice(["a"]))
        for task in tasks[:2]:
            with pytest.raises(DecodeError, match="result"):
                await task
        assert await tasks[2] == 1

    @pytest.mark.parametrize("job_id", ["", " ", "\ud800", "x" * 600])
    async def test_an_invalid_id_is_refused(self, reader: ResultReader, job_id: str) -> None:
        with pytest.raises(OptionError, match="job_id"):
            await reader.wait(job_id, 1)
        with pytest.raises(OptionError, match="job_id"):
            await reader.get_many(["a", job_id])

    async def test_no_result_is_missed_between_the_first_read_and_the_notice(
        self, reader: ResultReader, server: Server, manual: ManualWorker
    ) -> None:
        async with asyncio.timeout(20):
            for n in range(150):
                # Every third round begins with a reader that does not run yet.
                one = reader if n % 3 else ResultReader(SharedParts(server), KEYS)
                job_id = f"job-{n}"
                task = asyncio.create_task(one.wait(job_id, 3))
                for _ in range(n % 7):
                    await asyncio.sleep(0)
                await manual.finish({job_id: n})
                assert await task == n
                if one is not reader:
                    await one.close()


class TestOneReaderForAll:
    async def test_hundreds_of_callers_take_one_blocking_read_and_two_reads_of_values(
        self, reader: ResultReader, manual: ManualWorker, running: RunningServer
    ) -> None:
        job_ids = [f"job-{n}" for n in range(400)]
        tasks = await waiting(reader, running, job_ids)
        looks, reads = calls(running, "mget"), calls(running, "xread")
        assert looks == 1
        assert reads <= 1  # some servers count a blocked read when it begins, some when it ends
        await manual.finish({job_id: n for n, job_id in enumerate(job_ids)})
        assert await asyncio.gather(*tasks) == list(range(400))
        await until_blocked(running)
        assert calls(running, "mget") - looks == 1
        assert calls(running, "xread") - reads == 1

    async def test_nothing_is_read_while_nothing_happens(
        self, reader: ResultReader, running: RunningServer
    ) -> None:
        reset_calls(running)
        waits = [reader.wait(f"job-{n}", 1.5) for n in range(20)]
        outcomes = await asyncio.gather(*waits, return_exceptions=True)
        assert all(isinstance(outcome, ResultTimeout) for outcome in outcomes)
        assert calls(running, "xread") <= 1
        assert calls(running, "mget") <= 8, "few looks at each end, for all together"

    async def test_a_notice_of_other_jobs_reads_no_values(
        self, reader: ResultReader, manual: ManualWorker, running: RunningServer
    ) -> None:
        (task,) = await waiting(reader, running, ["a"])
        looks, reads = calls(running, "mget"), calls(running, "xread")
        await manual.finish({"b": 1, "c": 2})
        await wait_until(
            lambda: calls(running, "xread") > reads, within=SOON, sentence="the notice was read"
        )
        await until_blocked(running)
        assert calls(running, "mget") == looks
        assert not task.done()
        task.cancel()

    async def test_a_new_caller_does_not_wait_for_the_blocking_read(
        self,
        reader: ResultReader,
        manual: ManualWorker,
        running: RunningServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(listening, "BLOCK_S", 40.0)
        (task,) = await waiting(reader, running, ["slow"])
        await manual.finish({"a": 1})
        await until_blocked(running)
        assert await asyncio.wait_for(reader.wait("a", 40), 10) == 1
        task.cancel()

    async def test_trimmed_notices_do_not_lose_a_result(
        self, reader: ResultReader, running: RunningServer
    ) -> None:
        (task,) = await waiting(reader, running, ["a"])
        with running.admin() as admin, admin.pipeline(transaction=True) as step:
            step.set(KEYS.result("a"), encode_result(7, max_bytes=9))
            for job_id in ["a", *["other"] * 2000]:
                step.xadd(
                    KEYS.notices, {"ids": encode_notice([job_id])}, maxlen=1000, approximate=False
                )
            step.execute()
        assert await asyncio.wait_for(task, 10) == 7

    @pytest.mark.parametrize("fields", [("ids", b"\xc1"), ("ids", b"\x2a"), ("what", b"")])
    async def test_an_unreadable_notice_reads_all_awaited_results(
        self, reader: ResultReader, lane: Lane, running: RunningServer, fields: tuple[str, bytes]
    ) -> None:
        (task,) = await waiting(reader, running, ["a"])
        await lane.call("SET", KEYS.result("a"), encode_result(7, max_bytes=9))
        await lane.call("XADD", KEYS.notices, "*", *fields)
        assert await asyncio.wait_for(task, 10) == 7

    async def test_the_reader_ends_when_nobody_waits_and_starts_again(
        self,
        reader: ResultReader,
        manual: ManualWorker,
        running: RunningServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(results, "LINGER_S", 0.05)
        for n in range(3):
            task = asyncio.create_task(reader.wait(f"job-{n}", SOON))
            await until_blocked(running)
            await manual.finish({f"job-{n}": n})
            assert await task == n
            await wait_until(lambda: readers() == 0, within=SOON, sentence="the reader ended")


class TestGetMany:
    async def test_results_of_finished_jobs_are_in_the_given_order(
        self, reader: ResultReader, manual: ManualWorker, lane: Lane
    ) -> None:
        await manual.finish({"a": 1, "b": None})
        await manual.bury("c", BuryReason.UNRECOVERABLE, Failure("Boom", "no"))
        await lane.call("SET", KEYS.result("d"), b"\xc1")
        found = await reader.get_many(["d", "nobody", "c", "b", "a", "a"])
        assert list(found) == ["d", "c", "b", "a"]
        assert (found["a"], found["b"]) == (1, None)
        assert isinstance(found["c"], JobFailed)
        assert found["c"].message == "no"
        assert isinstance(found["d"], DecodeError)

    async def test_thousands_of_results_take_few_calls(
        self, reader: ResultReader, manual: ManualWorker, running: RunningServer
    ) -> None:
        job_ids = [f"job-{n}" for n in range(1200)]
        for first in range(0, 1200, 400):
            await manual.finish({job_id: job_id for job_id in job_ids[first : first + 400]})
        reset_calls(running)
        assert await reader.get_many(job_ids) == {job_id: job_id for job_id in job_ids}
        assert calls(running, "mget") == 3
        assert calls(running, "xread") == 0

    async def test_an_empty_list_makes_no_call(
        self, reader: ResultReader, running: RunningServer
    ) -> None:
        reset_calls(running)
        assert await reader.get_many([]) == {}
        assert calls(running, "mget") == 0
