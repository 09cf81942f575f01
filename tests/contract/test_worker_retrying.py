"""Jobs that fail on real servers: run again, as often and as late as was asked for."""

import asyncio
from itertools import pairwise
from time import monotonic
from typing import Any

import pytest

from tampu.backoff import Backoff
from tampu.consumer.handler import Function, Handler
from tampu.job import Job
from tampu.metrics import MemorySink, RetryScheduled
from tampu.outcome import Retry, Snooze
from tampu.util.clock import instant, now_ms
from tampu.wire.entry import decode_member
from tampu.wire.envelope import RetryOverride, WireBackoff, decode_envelope
from tests.contract.workers import KEYS, SOON, Boom, Calls, Crew, envelope
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server

AT_ONCE = Backoff.fixed(0)
SHORT = Backoff.fixed(0.01)


class Timed(Boom):
    """A handler that fails and notes when."""

    def __init__(self, error: BaseException | None = None, *, times: int | None = None) -> None:
        super().__init__(error, times=times)
        self.at: list[float] = []

    async def __call__(self, job: Job[Any]) -> object:
        self.at.append(monotonic())
        return await super().__call__(job)

    @property
    def gaps_ms(self) -> list[float]:
        return [(later - sooner) * 1000 for sooner, later in pairwise(self.at)]


class TestHowOften:
    @pytest.mark.parametrize("backoff", [AT_ONCE, SHORT])
    async def test_a_job_that_keeps_failing_runs_exactly_its_attempts_and_is_buried(
        self, crew: Crew, backoff: Backoff
    ) -> None:
        boom = Boom()
        await crew.hire(boom, attempts=3, backoff=backoff)
        added = await crew.queue.add("boom", 1)
        (letter,) = await crew.dead()
        await crew.settled()
        assert boom.attempts == [1, 2, 3]
        assert (letter.job_id, letter.attempt) == (added.id, 3)
        assert letter.reason.value == "retries_exhausted"
        assert letter.failure.error_type == "ValueError"
        assert crew.pending() == 0

    async def test_a_job_that_fails_twice_and_then_succeeds_is_no_dead_letter(
        self, crew: Crew
    ) -> None:
        boom = Boom(times=2)
        await crew.hire(boom, attempts=5, backoff=SHORT)
        await crew.queue.add("boom", 1)
        await boom.until(3)
        await crew.settled()
        assert boom.attempts == [1, 2, 3]
        assert crew.admin.exists(KEYS.dead) == 0

    @pytest.mark.parametrize("own", [1, 5])
    async def test_the_attempts_of_a_job_count_before_those_of_the_worker(
        self, crew: Crew, own: int
    ) -> None:
        boom = Boom()
        await crew.hire(boom, attempts=3, backoff=AT_ONCE)
        await crew.queue.add("boom", attempts=own)
        await crew.dead()
        assert boom.attempts == list(range(1, own + 1))

    async def test_the_attempts_of_a_handler_count_before_those_of_the_worker(
        self, crew: Crew
    ) -> None:
        mine, yours = Boom(), Boom()
        handlers: dict[str, Function | Handler] = {
            "mine": Handler(mine, attempts=4, backoff=AT_ONCE),
            "yours": yours,
        }
        await crew.hire(handlers, attempts=2, backoff=AT_ONCE)
        await crew.queue.add("mine")
        await crew.queue.add("yours")
        await crew.dead(2)
        assert (len(mine), len(yours)) == (4, 2)

    async def test_a_job_that_arrives_with_its_attempts_spent_is_buried_unrun(
        self, crew: Crew
    ) -> None:
        calls = Calls()
        await crew.hire(calls, attempts=3)
        crew.put({b"d": envelope(attempt=3), b"n": b"late"})
        (letter,) = await crew.dead()
        assert (letter.reason.value, letter.attempt, letter.name) == (
            "retries_exhausted",
            3,
            "late",
        )
        assert len(calls) == 0

    async def test_retries_keep_name_data_id_and_time(self, crew: Crew) -> None:
        boom = Boom(times=2)
        await crew.hire(boom, backoff=SHORT)
        added = await crew.queue.add("named", {"k": [1]})
        await boom.until(3)
        seen = {(job.id, job.name, job.created_at_ms) for job in boom.jobs}
        assert seen == {(added.id, "named", added.created_at_ms)}
        assert boom.data == [{"k": [1]}] * 3


class TestHowLate:
    async def waited_ms(self, crew: Crew, workers: Backoff, **options: Any) -> list[int]:  # noqa: ANN401 - of a job
        """The waits that a job was given, each of which it has waited at least."""
        sink, boom = MemorySink(), Timed(times=3)
        await crew.hire(boom, backoff=workers, metrics=sink)
        await crew.queue.add("boom", **options)
        await boom.until(4)
        await wait_until(
            lambda: len(sink.of(RetryScheduled)) == 3, within=SOON, sentence="all are told of"
        )
        waits_ms = [told.backoff_ms for told in sink.of(RetryScheduled)]
        assert all(gap >= wait - 1 for gap, wait in zip(boom.gaps_ms, waits_ms, strict=True)), (
            "it ran too early"
        )
        return waits_ms

    async def test_waits_grow_as_the_worker_says(self, crew: Crew) -> None:
        assert await self.waited_ms(crew, Backoff.exponential(0.05)) == [50, 100, 200]

    async def test_a_fixed_wait_of_a_job_does_not_grow(self, crew: Crew) -> None:
        own = Backoff.fixed(0.08)
        assert await self.waited_ms(crew, Backoff.exponential(5), backoff=own) == [80, 80, 80]

    async def test_a_growing_wait_of_a_job_counts_before_the_workers(self, crew: Crew) -> None:
        own = Backoff.exponential(0.05, multiplier=3)
        assert await self.waited_ms(crew, AT_ONCE, attempts=4, backoff=own) == [50, 150, 450]

    async def test_a_wait_is_no_longer_than_its_cap(self, crew: Crew) -> None:
        steep = Backoff.exponential(0.02, max=0.05, multiplier=100)
        assert await self.waited_ms(crew, steep) == [20, 50, 50]

    async def test_a_job_of_three_attempts_with_short_waits_is_buried_soon(
        self, crew: Crew
    ) -> None:
        boom = Boom()
        await crew.hire(boom, attempts=3, backoff=Backoff.exponential(0.05))
        await crew.queue.add("boom")
        await crew.dead(1)  # has a limit
        assert len(boom) == 3


class TestOverride:
    def waiting_override(self, crew: Crew) -> RetryOverride | None:
        (member,) = crew.admin.zrange(KEYS.delayed, 0, -1)
        return decode_envelope(decode_member(member).envelope).retry

    async def test_what_a_job_asks_for_survives_every_retry(self, crew: Crew) -> None:
        wanted = RetryOverride(7, WireBackoff("later-kind", 20, None, None, 0))
        boom = Boom()
        await crew.hire(boom, attempts=2, promote=False)
        crew.put({b"d": envelope(retry=wanted)})
        for runs in range(1, 4):
            await boom.until(runs)
            await wait_until(
                lambda: crew.admin.zcard(KEYS.delayed) == 1, within=SOON, sentence="it waits"
            )
            assert self.waiting_override(crew) == wanted
            (member,) = crew.admin.zrange(KEYS.delayed, 0, -1)
            crew.admin.zrem(KEYS.delayed, member)
            crew.put({b"d": decode_member(member).envelope})

    async def test_what_a_delayed_job_asks_for_holds_when_it_runs(self, crew: Crew) -> None:
        boom = Boom()
        await crew.hire(boom, attempts=2, backoff=AT_ONCE)
        at = instant(now_ms() + 100)
        await crew.queue.add("boom", at=at, attempts=4, backoff=AT_ONCE)
        await crew.dead()
        assert boom.attempts == [1, 2, 3, 4]

    async def test_what_a_job_asks_for_holds_after_it_was_taken_from_a_peer(
        self, crew: Crew
    ) -> None:
        retry = RetryOverride(7, WireBackoff("fixed", 0, None, None, 0))
        entry_id = crew.put({b"d": envelope(retry=retry), b"n": b"boom"})
        crew.held_by_peer(entry_id, deliveries=1)
        boom = Boom()
        await crew.hire(boom, attempts=2)
        (letter,) = await crew.dead()
        assert boom.attempts == [2, 3, 4, 5, 6, 7]
        assert letter.attempt == 7


class TestTakenOver:
    @pytest.mark.parametrize("deliveries", [1, 2])
    async def test_runs_that_ended_with_a_worker_count_as_attempts(
        self, crew: Crew, deliveries: int
    ) -> None:
        entry_id = crew.put({b"d": envelope()})
        crew.held_by_peer(entry_id, deliveries=deliveries)
        boom = Boom()
        await crew.hire(boom, attempts=3, backoff=AT_ONCE)
        (letter,) = await crew.dead()
        assert boom.attempts == list(range(deliveries + 1, 4))
        assert letter.attempt == 3

    @pytest.mark.parametrize("deliveries", [3, 4])
    async def test_a_job_whose_workers_died_in_each_attempt_is_not_run_again(
        self, crew: Crew, deliveries: int
    ) -> None:
        entry_id = crew.put({b"d": envelope(job_id="killer"), b"n": b"kill"})
        crew.held_by_peer(entry_id, deliveries=deliveries)
        calls = Calls()
        await crew.hire(calls, attempts=3)
        (letter,) = await crew.dead()
        assert (letter.reason.value, letter.job_id, letter.name) == ("crashed", "killer", "kill")
        assert letter.attempt == deliveries
        assert len(calls) == 0
        await crew.settled()

    async def test_runs_before_and_after_a_retry_are_counted_together(self, crew: Crew) -> None:
        """Two attempts failed, the third ended with its worker: one is left of four."""
        entry_id = crew.put({b"d": envelope(attempt=2)})
        crew.held_by_peer(entry_id, deliveries=1)
        boom = Boom()
        await crew.hire(boom, attempts=4, backoff=AT_ONCE)
        await crew.dead()
        assert boom.attempts == [4]

    async def test_what_a_peer_was_given_just_now_is_left_to_it(self, crew: Crew) -> None:
        fresh, old = crew.put({b"d": envelope(b"\x01")}), crew.put({b"d": envelope(b"\x02")})
        crew.held_by_peer(fresh, deliveries=1, idle_ms=0)
        crew.held_by_peer(old, deliveries=1)
        calls = Calls()
        await crew.hire(calls)
        await calls.until(1)
        await wait_until(lambda: crew.pending() == 1, within=SOON, sentence="one is settled")
        assert calls.data == [2]
        assert crew.pending("c-x") == 1


class TestWhatTheHandlerSays:
    @pytest.mark.parametrize("returned", [False, True])
    async def test_retry_chooses_the_wait_and_counts(self, crew: Crew, returned: bool) -> None:  # noqa: FBT001
        at: list[float] = []
        attempts: list[int] = []

        async def handler(job: Job[Any]) -> object:
            at.append(monotonic())
            attempts.append(job.attempt)
            retry = Retry("not yet", after=0.05)
            if returned:
                return retry
            raise retry

        await crew.hire(handler, attempts=3, backoff=Backoff.fixed(60))
        await crew.queue.add("later")
        (letter,) = await crew.dead()
        assert attempts == [1, 2, 3]
        assert all(later - sooner >= 0.049 for sooner, later in pairwise(at))
        assert letter.failure.error_type == "tampu.outcome.Retry"
        assert letter.failure.message == "not yet"

    async def test_retry_without_a_wait_takes_the_usual_one(self, crew: Crew) -> None:
        boom = Timed(Retry(), times=1)
        await crew.hire(boom, backoff=Backoff.fixed(0.05))
        await crew.queue.add("later")
        await boom.until(2)
        assert boom.gaps_ms[0] >= 49

    async def test_retry_after_no_time_at_all_runs_at_once(self, crew: Crew) -> None:
        boom = Boom(Retry(after=0), times=3)
        await crew.hire(boom, backoff=Backoff.fixed(60))
        await crew.queue.add("later")
        await boom.until(4)
        assert boom.attempts == [1, 2, 3, 4]

    @pytest.mark.parametrize("returned", [False, True])
    async def test_snooze_counts_as_no_attempt(self, crew: Crew, returned: bool) -> None:  # noqa: FBT001
        calls = Calls()

        async def handler(job: Job[Any]) -> object:
            await calls(job)
            if len(calls) > 4:
                return None
            if returned:
                return Snooze(0.02)
            raise Snooze(0.02)

        await crew.hire(handler, attempts=1)
        await crew.queue.add("later")
        await calls.until(5)
        await crew.settled()
        assert calls.attempts == [1] * 5
        assert crew.admin.exists(KEYS.dead) == 0

    async def test_snooze_between_failures_leaves_the_count_as_it_was(self, crew: Crew) -> None:
        calls = Calls()

        async def handler(job: Job[Any]) -> None:
            await calls(job)
            if len(calls) in {2, 3}:
                raise Snooze("10ms")
            raise ValueError

        await crew.hire(handler, attempts=3, backoff=AT_ONCE)
        await crew.queue.add("later")
        await crew.dead()
        assert calls.attempts == [1, 2, 2, 2, 3]


class TestManyAtOnce:
    async def test_hundreds_of_failing_jobs_are_all_run_again(self, crew: Crew) -> None:
        failed: set[int] = set()
        done: list[int] = []

        async def handler(job: Job[Any]) -> None:
            await asyncio.sleep(0)
            if job.attempt == 1:
                failed.add(job.data)
                raise ValueError
            done.append(job.data)

        await crew.hire(handler, backoff=Backoff.fixed(0.05, jitter=0.05))
        await crew.queue.add_each("job", range(500))
        await crew.settled()
        assert failed == set(range(500))
        assert sorted(done) == list(range(500))
