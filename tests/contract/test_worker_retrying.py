"""Failed jobs run again, as often and as late as their options say."""

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
from tests.contract.workers import KEYS, SOON, Boom, Calls, Harness, envelope
from tests.waiting import wait_until

AT_ONCE = Backoff.fixed(0)
SHORT = Backoff.fixed(0.01)


class Timed(Boom):
    """A handler that fails and records when."""

    def __init__(self, error: BaseException | None = None, *, times: int | None = None) -> None:
        super().__init__(error, times=times)
        self.at: list[float] = []

    async def __call__(self, job: Job[Any]) -> object:
        self.at.append(monotonic())
        return await super().__call__(job)

    @property
    def gaps_ms(self) -> list[float]:
        return [(later - sooner) * 1000 for sooner, later in pairwise(self.at)]


@pytest.mark.every_server
class TestAttempts:
    @pytest.mark.parametrize("backoff", [AT_ONCE, SHORT])
    async def test_a_job_that_keeps_failing_runs_exactly_its_attempts_and_is_buried(
        self, harness: Harness, backoff: Backoff
    ) -> None:
        boom = Boom()
        await harness.start_worker(boom, attempts=3, backoff=backoff)
        added = await harness.queue.add("boom", 1)
        (letter,) = await harness.dead_letters()
        await harness.until_settled()
        assert boom.attempts == [1, 2, 3]
        assert (letter.job_id, letter.attempt) == (added.id, 3)
        assert letter.reason.value == "retries_exhausted"
        assert letter.failure.error_type == "ValueError"
        assert harness.pending() == 0

    async def test_a_job_that_fails_twice_and_then_succeeds_is_not_buried(
        self, harness: Harness
    ) -> None:
        boom = Boom(times=2)
        await harness.start_worker(boom, attempts=5, backoff=SHORT)
        await harness.queue.add("boom", 1)
        await boom.until(3)
        await harness.until_settled()
        assert boom.attempts == [1, 2, 3]
        assert harness.admin.exists(KEYS.dead) == 0

    @pytest.mark.parametrize("own", [1, 5])
    async def test_the_attempts_of_a_job_count_before_those_of_the_worker(
        self, harness: Harness, own: int
    ) -> None:
        boom = Boom()
        await harness.start_worker(boom, attempts=3, backoff=AT_ONCE)
        await harness.queue.add("boom", attempts=own)
        await harness.dead_letters()
        assert boom.attempts == list(range(1, own + 1))

    async def test_the_attempts_of_a_handler_count_before_those_of_the_worker(
        self, harness: Harness
    ) -> None:
        mine, yours = Boom(), Boom()
        handlers: dict[str, Function | Handler] = {
            "mine": Handler(mine, attempts=4, backoff=AT_ONCE),
            "yours": yours,
        }
        await harness.start_worker(handlers, attempts=2, backoff=AT_ONCE)
        await harness.queue.add("mine")
        await harness.queue.add("yours")
        await harness.dead_letters(2)
        assert (len(mine), len(yours)) == (4, 2)

    async def test_a_job_that_arrives_without_attempts_left_is_buried_without_running(
        self, harness: Harness
    ) -> None:
        calls = Calls()
        await harness.start_worker(calls, attempts=3)
        harness.add_entry({b"d": envelope(attempt=3), b"n": b"late"})
        (letter,) = await harness.dead_letters()
        assert (letter.reason.value, letter.attempt, letter.name) == (
            "retries_exhausted",
            3,
            "late",
        )
        assert len(calls) == 0

    async def test_retries_keep_name_data_id_and_creation_time(self, harness: Harness) -> None:
        boom = Boom(times=2)
        await harness.start_worker(boom, backoff=SHORT)
        added = await harness.queue.add("named", {"k": [1]})
        await boom.until(3)
        seen = {(job.id, job.name, job.created_at_ms) for job in boom.jobs}
        assert seen == {(added.id, "named", added.created_at_ms)}
        assert boom.data == [{"k": [1]}] * 3


class TestBackoff:
    async def waited_ms(self, harness: Harness, workers: Backoff, **options: Any) -> list[int]:  # noqa: ANN401 - of a job
        """The backoffs of a job; checks that it waited at least as long."""
        sink, boom = MemorySink(), Timed(times=3)
        await harness.start_worker(boom, backoff=workers, metrics=sink)
        await harness.queue.add("boom", **options)
        await boom.until(4)
        await wait_until(
            lambda: len(sink.of(RetryScheduled)) == 3,
            within=SOON,
            sentence="all retries are recorded",
        )
        waits_ms = [told.backoff_ms for told in sink.of(RetryScheduled)]
        assert all(gap >= wait - 1 for gap, wait in zip(boom.gaps_ms, waits_ms, strict=True)), (
            "it ran too early"
        )
        return waits_ms

    async def test_waits_grow_by_the_backoff_of_the_worker(self, harness: Harness) -> None:
        assert await self.waited_ms(harness, Backoff.exponential(0.05)) == [50, 100, 200]

    async def test_a_fixed_backoff_of_a_job_does_not_grow(self, harness: Harness) -> None:
        own = Backoff.fixed(0.08)
        assert await self.waited_ms(harness, Backoff.exponential(5), backoff=own) == [80, 80, 80]

    async def test_the_backoff_of_a_job_counts_before_that_of_the_worker(
        self, harness: Harness
    ) -> None:
        own = Backoff.exponential(0.05, multiplier=3)
        assert await self.waited_ms(harness, AT_ONCE, attempts=4, backoff=own) == [50, 150, 450]

    async def test_a_wait_is_never_longer_than_its_maximum(self, harness: Harness) -> None:
        steep = Backoff.exponential(0.02, max=0.05, multiplier=100)
        assert await self.waited_ms(harness, steep) == [20, 50, 50]

    async def test_a_job_of_three_attempts_with_short_waits_is_buried_soon(
        self, harness: Harness
    ) -> None:
        boom = Boom()
        await harness.start_worker(boom, attempts=3, backoff=Backoff.exponential(0.05))
        await harness.queue.add("boom")
        await harness.dead_letters(1)  # has a limit
        assert len(boom) == 3


class TestOverride:
    def waiting_override(self, harness: Harness) -> RetryOverride | None:
        (member,) = harness.admin.zrange(KEYS.delayed, 0, -1)
        return decode_envelope(decode_member(member).envelope).retry

    async def test_the_options_of_a_job_survive_every_retry(self, harness: Harness) -> None:
        wanted = RetryOverride(7, WireBackoff("later-kind", 20, None, None, 0))
        boom = Boom()
        await harness.start_worker(boom, attempts=2, promote=False)
        harness.add_entry({b"d": envelope(retry=wanted)})
        for runs in range(1, 4):
            await boom.until(runs)
            await wait_until(
                lambda: harness.admin.zcard(KEYS.delayed) == 1, within=SOON, sentence="it waits"
            )
            assert self.waiting_override(harness) == wanted
            (member,) = harness.admin.zrange(KEYS.delayed, 0, -1)
            harness.admin.zrem(KEYS.delayed, member)
            harness.add_entry({b"d": decode_member(member).envelope})

    async def test_the_options_of_a_delayed_job_count_when_it_runs(self, harness: Harness) -> None:
        boom = Boom()
        await harness.start_worker(boom, attempts=2, backoff=AT_ONCE)
        at = instant(now_ms() + 100)
        await harness.queue.add("boom", at=at, attempts=4, backoff=AT_ONCE)
        await harness.dead_letters()
        assert boom.attempts == [1, 2, 3, 4]

    async def test_the_options_of_a_job_count_after_a_takeover_from_a_peer(
        self, harness: Harness
    ) -> None:
        retry = RetryOverride(7, WireBackoff("fixed", 0, None, None, 0))
        entry_id = harness.add_entry({b"d": envelope(retry=retry), b"n": b"boom"})
        harness.hold_as_peer(entry_id, deliveries=1)
        boom = Boom()
        await harness.start_worker(boom, attempts=2)
        (letter,) = await harness.dead_letters()
        assert boom.attempts == [2, 3, 4, 5, 6, 7]
        assert letter.attempt == 7


@pytest.mark.every_server
class TestTakeover:
    @pytest.mark.parametrize("deliveries", [1, 2])
    async def test_attempts_that_ended_with_their_worker_count(
        self, harness: Harness, deliveries: int
    ) -> None:
        entry_id = harness.add_entry({b"d": envelope()})
        harness.hold_as_peer(entry_id, deliveries=deliveries)
        boom = Boom()
        await harness.start_worker(boom, attempts=3, backoff=AT_ONCE)
        (letter,) = await harness.dead_letters()
        assert boom.attempts == list(range(deliveries + 1, 4))
        assert letter.attempt == 3

    @pytest.mark.parametrize("deliveries", [3, 4])
    async def test_a_job_that_crashed_its_worker_in_each_attempt_does_not_run_again(
        self, harness: Harness, deliveries: int
    ) -> None:
        entry_id = harness.add_entry({b"d": envelope(job_id="killer"), b"n": b"kill"})
        harness.hold_as_peer(entry_id, deliveries=deliveries)
        calls = Calls()
        await harness.start_worker(calls, attempts=3)
        (letter,) = await harness.dead_letters()
        assert (letter.reason.value, letter.job_id, letter.name) == ("crashed", "killer", "kill")
        assert letter.attempt == deliveries
        assert len(calls) == 0
        await harness.until_settled()

    async def test_attempts_before_and_after_a_retry_are_counted_together(
        self, harness: Harness
    ) -> None:
        """Two attempts failed, the third ended with its worker: one of four is left."""
        entry_id = harness.add_entry({b"d": envelope(attempt=2)})
        harness.hold_as_peer(entry_id, deliveries=1)
        boom = Boom()
        await harness.start_worker(boom, attempts=4, backoff=AT_ONCE)
        await harness.dead_letters()
        assert boom.attempts == [4]

    async def test_an_entry_that_a_peer_has_just_read_is_left_to_it(self, harness: Harness) -> None:
        fresh, old = (
            harness.add_entry({b"d": envelope(b"\x01")}),
            harness.add_entry({b"d": envelope(b"\x02")}),
        )
        harness.hold_as_peer(fresh, deliveries=1, idle_ms=0)
        harness.hold_as_peer(old, deliveries=1)
        calls = Calls()
        await harness.start_worker(calls)
        await calls.until(1)
        await wait_until(lambda: harness.pending() == 1, within=SOON, sentence="one is settled")
        assert calls.data == [2]
        assert harness.pending("c-x") == 1


@pytest.mark.every_server
class TestRetryAndSnooze:
    @pytest.mark.parametrize("returned", [False, True])
    async def test_retry_chooses_the_wait_and_counts(
        self,
        harness: Harness,
        returned: bool,  # noqa: FBT001
    ) -> None:
        at: list[float] = []
        attempts: list[int] = []

        async def handler(job: Job[Any]) -> object:
            at.append(monotonic())
            attempts.append(job.attempt)
            retry = Retry("not yet", after=0.05)
            if returned:
                return retry
            raise retry

        await harness.start_worker(handler, attempts=3, backoff=Backoff.fixed(60))
        await harness.queue.add("later")
        (letter,) = await harness.dead_letters()
        assert attempts == [1, 2, 3]
        assert all(later - sooner >= 0.049 for sooner, later in pairwise(at))
        assert letter.failure.error_type == "tampu.outcome.Retry"
        assert letter.failure.message == "not yet"

    async def test_retry_without_a_wait_uses_the_backoff(self, harness: Harness) -> None:
        boom = Timed(Retry(), times=1)
        await harness.start_worker(boom, backoff=Backoff.fixed(0.05))
        await harness.queue.add("later")
        await boom.until(2)
        assert boom.gaps_ms[0] >= 49

    async def test_retry_after_zero_seconds_runs_at_once(self, harness: Harness) -> None:
        boom = Boom(Retry(after=0), times=3)
        await harness.start_worker(boom, backoff=Backoff.fixed(60))
        await harness.queue.add("later")
        await boom.until(4)
        assert boom.attempts == [1, 2, 3, 4]

    @pytest.mark.parametrize("returned", [False, True])
    async def test_snooze_does_not_count_as_an_attempt(
        self,
        harness: Harness,
        returned: bool,  # noqa: FBT001
    ) -> None:
        calls = Calls()

        async def handler(job: Job[Any]) -> object:
            await calls(job)
            if len(calls) > 4:
                return None
            if returned:
                return Snooze(0.02)
            raise Snooze(0.02)

        await harness.start_worker(handler, attempts=1)
        await harness.queue.add("later")
        await calls.until(5)
        await harness.until_settled()
        assert calls.attempts == [1] * 5
        assert harness.admin.exists(KEYS.dead) == 0

    async def test_snooze_between_failures_does_not_change_the_count(
        self, harness: Harness
    ) -> None:
        calls = Calls()

        async def handler(job: Job[Any]) -> None:
            await calls(job)
            if len(calls) in {2, 3}:
                raise Snooze("10ms")
            raise ValueError

        await harness.start_worker(handler, attempts=3, backoff=AT_ONCE)
        await harness.queue.add("later")
        await harness.dead_letters()
        assert calls.attempts == [1, 2, 2, 2, 3]


@pytest.mark.every_server
class TestManyAtOnce:
    async def test_hundreds_of_failing_jobs_all_run_again(self, harness: Harness) -> None:
        failed: set[int] = set()
        done: list[int] = []

        async def handler(job: Job[Any]) -> None:
            await asyncio.sleep(0)
            if job.attempt == 1:
                failed.add(job.data)
                raise ValueError
            done.append(job.data)

        await harness.start_worker(handler, backoff=Backoff.fixed(0.05, jitter=0.05))
        await harness.queue.add_each("job", range(500))
        await harness.until_settled()
        assert failed == set(range(500))
        assert sorted(done) == list(range(500))
