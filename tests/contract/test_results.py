"""Results on real servers: pushed to those who wait, with one reader for all of them."""

import asyncio

import pytest

from tampu import results
from tampu.errors import DecodeError, JobFailed, OptionError, ResultTimeout
from tampu.results import ResultReader
from tampu.server.connect import Server
from tampu.server.lane import Lane
from tampu.wire.dead import BuryReason, Failure
from tampu.wire.result import encode_notice, encode_result
from tests.contract.results import (
    KEYS,
    SOON,
    Desk,
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
    async def test_a_result_that_is_there_is_given_at_once(
        self, reader: ResultReader, desk: Desk
    ) -> None:
        await desk.finish({"a": {"sent": 1}})
        assert await reader.wait("a", SOON) == {"sent": 1}
        assert await reader.wait("a", 0) == {"sent": 1}

    async def test_a_result_that_comes_later_is_pushed(
        self, reader: ResultReader, desk: Desk, running: RunningServer
    ) -> None:
        (task,) = await waiting(reader, running, ["a"])
        await desk.finish({"a": [1, 2]})
        assert await asyncio.wait_for(task, 10) == [1, 2]

    @pytest.mark.parametrize("value", [None, 0, "", [], False])
    async def test_none_and_other_empty_values_are_results(
        self, reader: ResultReader, desk: Desk, value: object
    ) -> None:
        task = asyncio.create_task(reader.wait("a", SOON))
        await desk.finish({"a": value})
        assert await task == value
        assert await reader.get_many(["a"]) == {"a": value}

    async def test_a_buried_job_raises_what_happened_where_it_ran(
        self, reader: ResultReader, desk: Desk, running: RunningServer
    ) -> None:
        (task,) = await waiting(reader, running, ["a"])
        told = Failure("shop.NoMoney", "3 are missing", "Traceback: line 7")
        await desk.bury("a", BuryReason.RETRIES_EXHAUSTED, told)
        for wait in (task, reader.wait("a", 0)):
            with pytest.raises(JobFailed, match=r"shop\.NoMoney: 3 are missing") as caught:
                await wait
            error = caught.value
            assert (error.job_id, error.reason) == ("a", "retries_exhausted")
            assert error.error_type == "shop.NoMoney"
            assert (error.message, error.traceback) == ("3 are missing", "Traceback: line 7")

    async def test_a_job_buried_without_an_exception_raises_its_reason(
        self, reader: ResultReader, desk: Desk
    ) -> None:
        await desk.bury("a", BuryReason.EXPIRED, None)
        with pytest.raises(JobFailed, match="expired") as caught:
            await reader.wait("a", SOON)
        assert (caught.value.error_type, caught.value.message) == ("", "")

    async def test_the_time_given_is_the_time_waited(self, reader: ResultReader) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(ResultTimeout, match=r"no result of job a within 0\.3 s"):
            await reader.wait("a", 0.3)
        assert 0.29 < loop.time() - began < SOON

    async def test_no_time_means_one_look_and_no_reader(
        self, reader: ResultReader, running: RunningServer
    ) -> None:
        reset_calls(running)
        with pytest.raises(ResultTimeout):
            await reader.wait("a", 0)
        assert (calls(running, "mget"), calls(running, "xread")) == (1, 0)

    async def test_what_a_peer_kept_without_a_word_is_found_when_the_time_is_up(
        self, reader: ResultReader, lane: Lane, running: RunningServer
    ) -> None:
        (task,) = await waiting(reader, running, ["a"], timeout_s=0.5)
        assert not task.done()
        await lane.call("SET", KEYS.result("a"), encode_result(5, max_bytes=9))
        assert await task == 5

    async def test_all_who_wait_for_one_job_get_a_value_of_their_own(
        self, reader: ResultReader, desk: Desk, running: RunningServer
    ) -> None:
        tasks = await waiting(reader, running, ["a"] * 3)
        await desk.finish({"a": {"n": 1}})
        values = await asyncio.gather(*tasks)
        assert values == [{"n": 1}] * 3
        assert len({id(value) for value in values}) == 3

    async def test_a_result_that_cannot_be_read_is_told_to_all_who_wait(
        self, reader: ResultReader, desk: Desk, lane: Lane, running: RunningServer
    ) -> None:
        tasks = await waiting(reader, running, ["a", "a", "b"])
        await lane.call("SET", KEYS.result("a"), b"\xc1")
        await desk.finish({"b": 1})  # its notice alone does not wake the others
        await lane.call("XADD", KEYS.notices, "*", "ids", encode_notice(["a"]))
        for task in tasks[:2]:
            with pytest.raises(DecodeError, match="result"):
                await task
        assert await tasks[2] == 1

    @pytest.mark.parametrize("job_id", ["", " ", "\ud800", "x" * 600])
    async def test_an_id_that_cannot_be_is_refused_at_the_call(
        self, reader: ResultReader, job_id: str
    ) -> None:
        with pytest.raises(OptionError, match="job_id"):
            await reader.wait(job_id, 1)
        with pytest.raises(OptionError, match="job_id"):
            await reader.get_many(["a", job_id])

    async def test_nothing_falls_between_the_look_and_the_notice(
        self, reader: ResultReader, server: Server, desk: Desk
    ) -> None:
        async with asyncio.timeout(20):
            for n in range(150):
                # Every third round begins with a reader that does not run yet.
                one = reader if n % 3 else ResultReader(server, KEYS)
                job_id = f"job-{n}"
                task = asyncio.create_task(one.wait(job_id, 3))
                for _ in range(n % 7):
                    await asyncio.sleep(0)
                await desk.finish({job_id: n})
                assert await task == n
                if one is not reader:
                    await one.close()


class TestOneReaderForAll:
    async def test_hundreds_of_waiters_cost_one_read_and_two_looks(
        self, reader: ResultReader, desk: Desk, running: RunningServer
    ) -> None:
        job_ids = [f"job-{n}" for n in range(400)]
        tasks = await waiting(reader, running, job_ids)
        looks, reads = calls(running, "mget"), calls(running, "xread")
        assert looks == 1
        assert reads <= 1  # some servers count a blocked read when it begins, some when it ends
        await desk.finish({job_id: n for n, job_id in enumerate(job_ids)})
        assert await asyncio.gather(*tasks) == list(range(400))
        await until_blocked(running)
        assert calls(running, "mget") - looks == 1
        assert calls(running, "xread") - reads == 1

    async def test_nobody_asks_while_nothing_happens(
        self, reader: ResultReader, running: RunningServer
    ) -> None:
        reset_calls(running)
        waits = [reader.wait(f"job-{n}", 1.5) for n in range(20)]
        outcomes = await asyncio.gather(*waits, return_exceptions=True)
        assert all(isinstance(outcome, ResultTimeout) for outcome in outcomes)
        assert calls(running, "xread") <= 1
        assert calls(running, "mget") <= 8, "few looks at each end, for all together"

    async def test_a_notice_of_others_wakes_nobody_and_looks_at_nothing(
        self, reader: ResultReader, desk: Desk, running: RunningServer
    ) -> None:
        (task,) = await waiting(reader, running, ["a"])
        looks, reads = calls(running, "mget"), calls(running, "xread")
        await desk.finish({"b": 1, "c": 2})
        await wait_until(
            lambda: calls(running, "xread") > reads, within=SOON, sentence="the notice was read"
        )
        await until_blocked(running)
        assert calls(running, "mget") == looks
        assert not task.done()
        task.cancel()

    async def test_a_new_waiter_does_not_stand_behind_the_blocked_read(
        self,
        reader: ResultReader,
        desk: Desk,
        running: RunningServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(results, "BLOCK_MS", 40_000)
        (task,) = await waiting(reader, running, ["slow"])
        await desk.finish({"a": 1})
        await until_blocked(running)
        assert await asyncio.wait_for(reader.wait("a", 40), 10) == 1
        task.cancel()

    async def test_notices_that_were_trimmed_away_unread_are_made_up_for(
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
    async def test_a_notice_that_cannot_be_read_has_all_looked_at(
        self, reader: ResultReader, lane: Lane, running: RunningServer, fields: tuple[str, bytes]
    ) -> None:
        (task,) = await waiting(reader, running, ["a"])
        await lane.call("SET", KEYS.result("a"), encode_result(7, max_bytes=9))
        await lane.call("XADD", KEYS.notices, "*", *fields)
        assert await asyncio.wait_for(task, 10) == 7

    async def test_the_reader_ends_when_nobody_waits_and_starts_again(
        self,
        reader: ResultReader,
        desk: Desk,
        running: RunningServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(results, "BLOCK_MS", 30)
        monkeypatch.setattr(results, "LINGER_S", 0.05)
        for n in range(3):
            task = asyncio.create_task(reader.wait(f"job-{n}", SOON))
            await until_blocked(running)
            await desk.finish({f"job-{n}": n})
            assert await task == n
            await wait_until(lambda: readers() == 0, within=SOON, sentence="the reader ended")


class TestGetMany:
    async def test_those_that_have_ended_are_given_in_the_order_asked_for(
        self, reader: ResultReader, desk: Desk, lane: Lane
    ) -> None:
        await desk.finish({"a": 1, "b": None})
        await desk.bury("c", BuryReason.UNRECOVERABLE, Failure("Boom", "no"))
        await lane.call("SET", KEYS.result("d"), b"\xc1")
        found = await reader.get_many(["d", "nobody", "c", "b", "a", "a"])
        assert list(found) == ["d", "c", "b", "a"]
        assert (found["a"], found["b"]) == (1, None)
        assert isinstance(found["c"], JobFailed)
        assert found["c"].message == "no"
        assert isinstance(found["d"], DecodeError)

    async def test_thousands_are_looked_up_in_few_calls(
        self, reader: ResultReader, desk: Desk, running: RunningServer
    ) -> None:
        job_ids = [f"job-{n}" for n in range(1200)]
        for first in range(0, 1200, 400):
            await desk.finish({job_id: job_id for job_id in job_ids[first : first + 400]})
        reset_calls(running)
        assert await reader.get_many(job_ids) == {job_id: job_id for job_id in job_ids}
        assert calls(running, "mget") == 3
        assert calls(running, "xread") == 0

    async def test_asking_for_nothing_asks_nobody(
        self, reader: ResultReader, running: RunningServer
    ) -> None:
        reset_calls(running)
        assert await reader.get_many([]) == {}
        assert calls(running, "mget") == 0
