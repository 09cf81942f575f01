"""Virtual time: delayed jobs, retries and schedules at their instants, in order."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from time import monotonic
from zoneinfo import ZoneInfo

import pytest

from tampu import (
    INJECTED,
    App,
    Backoff,
    BuryReason,
    CancelState,
    Cron,
    Every,
    Job,
    Missed,
    OptionError,
    Overlap,
    Retry,
    Snooze,
)
from tampu.testing import Kit
from tests.effort import cases

BERLIN = ZoneInfo("Europe/Berlin")

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


class Diary:
    """An app whose tasks write down when they ran."""

    def __init__(self) -> None:
        self.app = App("redis://192.0.2.1", max_delay="500d")
        self.seen: list[tuple[str, datetime]] = []

        @self.app.task
        async def note(text: str) -> None:
            self.write(text)

        self.note = note

    def write(self, text: str) -> None:
        # From the clock of the process, which the kit has set.
        from tampu.util.clock import instant, now_ms  # noqa: PLC0415

        self.seen.append((text, instant(now_ms())))


DAYS, JOBS = cases(400), cases(1000)


@pytest.fixture
def diary() -> Diary:
    return Diary()


async def test_many_days_of_a_schedule_and_many_delayed_jobs(tampu: Kit, diary: Diary) -> None:
    rule = Cron("30 2 * * *", tz="Europe/Berlin")

    @diary.app.schedule(rule)
    @diary.app.task
    async def daily(job: Job[None] = INJECTED) -> None:
        assert job.scheduled_at == jobs.now()
        diary.write("daily")

    days = {f"job {n}": START + n * timedelta(hours=9, minutes=35, seconds=n) for n in range(JOBS)}
    end = START + DAYS * DAY
    async with tampu.use(diary.app, now=START) as jobs:
        calls = [diary.note.options(at=at).call(text) for text, at in days.items()]
        await diary.note.enqueue_many(calls)
        began = monotonic()
        ran = await jobs.travel(f"{DAYS}d")
        took_s = monotonic() - began
        assert jobs.now() == end
    assert took_s < 60, "a journey takes as long as its jobs, not as its days"
    expected = [(text, at) for text, at in days.items() if at <= end]
    fires = [at for at in rule.next_n(DAYS + 10, START) if at <= end]
    assert len(fires) == DAYS
    expected += [("daily", at) for at in fires]
    assert diary.seen == sorted(expected, key=lambda each: each[1])
    assert [each.at for each in ran] == [at for _, at in diary.seen]


@pytest.mark.parametrize(
    ("day", "hours"),
    [
        pytest.param(datetime(2026, 3, 29, tzinfo=BERLIN), [1, 3, 4], id="an hour is left out"),
        pytest.param(datetime(2026, 10, 25, tzinfo=BERLIN), [1, 2, 2, 3, 4], id="an hour twice"),
    ],
)
async def test_hours_on_the_days_when_clocks_change(
    tampu: Kit, diary: Diary, day: datetime, hours: list[int]
) -> None:
    diary.app.schedule(Cron("0 * * * *", tz="Europe/Berlin"), args={"text": "hour"})(diary.note)
    async with tampu.use(diary.app, now=day.replace(minute=30)) as jobs:
        await jobs.travel(day.replace(hour=4))
    assert [at.astimezone(BERLIN).hour for _, at in diary.seen] == hours
    instants = [at for _, at in diary.seen]
    assert all(later - earlier == HOUR for earlier, later in pairwise(instants))


async def test_retries_wait_their_time_and_snoozes_too(tampu: Kit, diary: Diary) -> None:
    @diary.app.task(attempts=4, backoff=Backoff.fixed("5m"))
    def unsteady(job: Job[None] = INJECTED) -> None:
        diary.write(f"attempt {job.attempt}")
        if job.attempt == 1:
            raise ValueError
        if job.attempt == 2:
            raise Retry(after="1h")
        if len(diary.seen) == 3:
            raise Snooze("1d")

    async with tampu.use(diary.app, now=START) as jobs:
        await unsteady.enqueue()
        await jobs.travel("3d", raise_errors=False)
    first, second = START + timedelta(minutes=5), START + timedelta(minutes=65)
    assert diary.seen == [
        ("attempt 1", START),
        ("attempt 2", first),
        ("attempt 3", second),
        ("attempt 3", second + DAY),
    ]


async def test_jobs_that_are_added_on_the_way_land_at_their_instants(
    tampu: Kit, diary: Diary
) -> None:
    @diary.app.task(queue="chains")
    async def chain(left: int) -> None:
        diary.write(f"left {left}")
        if left:
            await chain.options(delay="1h").enqueue(left - 1)
            await diary.note.options(at=jobs.now() + HOUR / 2).enqueue(f"after {left}")

    async with tampu.use(diary.app, now=START) as jobs:
        await chain.options(delay="1h").enqueue(2)
        await jobs.travel("2h30m")
        assert [text for text, _ in diary.seen] == ["left 2", "after 2", "left 1", "after 1"]
        await jobs.travel("30m")
    hours = [(at - START) / HOUR for _, at in diary.seen]
    assert hours == [1, 1.5, 2, 2.5, 3]


async def test_jobs_with_the_same_instant_keep_their_order(tampu: Kit, diary: Diary) -> None:
    texts = [f"{n}" for n in range(40)]
    async with tampu.use(diary.app) as jobs:
        for text in texts:
            await diary.note.options(delay=60).enqueue(text)
        await jobs.travel(60)
    assert [text for text, _ in diary.seen] == texts


async def test_time_stands_still_and_running_does_not_move_it(tampu: Kit, diary: Diary) -> None:
    async with tampu.use(diary.app, now=START) as jobs:
        job = await diary.note.options(delay="1ms").enqueue("later")
        assert job.created_at == START
        assert await jobs.run() == []
        assert jobs.now() == START
        assert [each.due_at for each in jobs.enqueued()] == [START + timedelta(milliseconds=1)]
        assert len(await jobs.travel("1ms")) == 1
        assert await jobs.travel(0) == []


async def test_an_error_stops_time_where_it_is(tampu: Kit, diary: Diary) -> None:
    @diary.app.task(attempts=1)
    async def fail() -> None:
        raise ZeroDivisionError

    async with tampu.use(diary.app, now=START) as jobs:
        await fail.options(delay="1d").enqueue()
        await diary.note.options(delay="2d").enqueue("after")
        with pytest.raises(ZeroDivisionError):
            await jobs.travel("5d")
        assert (jobs.now(), diary.seen) == (START + DAY, [])
        await jobs.travel(START + 5 * DAY)
        assert diary.seen == [("after", START + 2 * DAY)]


async def test_time_never_goes_back(tampu: Kit, diary: Diary) -> None:
    async with tampu.use(diary.app, now=START) as jobs:
        with pytest.raises(OptionError, match="is before now, which is 2026-03-01 12:00"):
            await jobs.travel(START - DAY)
        with pytest.raises(OptionError, match="expected a timedelta"):
            await jobs.travel(-1)
        with pytest.raises(OptionError, match="aware"):
            await jobs.travel(datetime(2026, 4, 1))  # noqa: DTZ001 - as a test may do


async def test_random_waits_are_the_same_in_every_run(tampu: Kit, diary: Diary) -> None:
    @diary.app.task(attempts=5, backoff=Backoff.exponential(10, jitter=0.5))
    async def fail() -> None:
        raise ValueError

    seen: list[list[datetime]] = []
    for _ in range(2):
        async with tampu.use(diary.app, now=START) as jobs:
            await fail.enqueue()
            seen.append([each.at for each in await jobs.travel("1h", raise_errors=False)])
    assert seen[0] == seen[1]
    assert len(seen[0]) == 5


class TestWithoutWorker:
    async def test_missed_fires_follow_their_policy(self, tampu: Kit, diary: Diary) -> None:
        policies = {"skip": Missed.SKIP, "once": Missed.ONCE, "all": Missed.all()}
        for key, policy in policies.items():
            declare = diary.app.schedule(Every("1h"), args={"text": key}, key=key, missed=policy)
            declare(diary.note)
        async with tampu.use(diary.app, now=START) as jobs:
            assert await jobs.travel("3h30m", run=False) == []
            await jobs.run()
        assert sorted(text for text, _ in diary.seen) == ["all"] * 3 + ["once"]
        assert {at for _, at in diary.seen} == {START + 3.5 * HOUR}

    async def test_a_job_expires_without_being_run(self, tampu: Kit, diary: Diary) -> None:
        async with tampu.use(diary.app, now=START) as jobs:
            await diary.note.options(expires="1h").enqueue("too late")
            await jobs.travel("2h", run=False)
            assert await jobs.run() == []
            (letter,) = await diary.app.queue().dead.peek()
        assert (letter.reason, diary.seen) == (BuryReason.EXPIRED, [])


class TestExpiry:
    async def test_a_job_id_stays_taken_for_its_time(self, tampu: Kit, diary: Diary) -> None:
        once = diary.note.options(job_id="welcome:ada", unique_for="1d")
        async with tampu.use(diary.app) as jobs:
            assert not (await once.enqueue("first")).duplicate
            await jobs.travel("23h")
            assert (await once.enqueue("second")).duplicate
            await jobs.travel("2h")
            assert not (await once.enqueue("third")).duplicate
            await jobs.run()
        assert [text for text, _ in diary.seen] == ["first", "third"]

    async def test_results_stay_for_the_whole_test(self, tampu: Kit, diary: Diary) -> None:
        @diary.app.task
        async def answer() -> int:
            return 42

        async with tampu.use(diary.app) as jobs:
            job = await answer.enqueue()
            await jobs.run()
            await jobs.travel("300d")
            assert await job.result(0) == 42

    async def test_old_dead_letters_are_purged_by_the_time_of_the_test(
        self, tampu: Kit, diary: Diary
    ) -> None:
        @diary.app.task(attempts=1)
        async def fail() -> None:
            raise ValueError

        async with tampu.use(diary.app, now=START) as jobs:
            for _ in range(2):
                await fail.enqueue()
                await jobs.travel("1d", raise_errors=False)
            assert await diary.app.queue().dead.purge(older_than="36h") == 1


class TestDelayedJobs:
    async def test_they_can_be_cancelled_moved_and_run_at_once(
        self, tampu: Kit, diary: Diary
    ) -> None:
        async with tampu.use(diary.app, now=START) as jobs:
            queue = diary.app.queue()
            for text in ("gone", "moved", "now", "kept"):
                await diary.note.options(delay="1d", job_id=text).enqueue(text)
            assert await queue.job("gone").cancel() is CancelState.CANCELLED
            assert await queue.job("moved").reschedule(delay="1h")
            assert await queue.job("now").run_now()
            await jobs.travel("2d")
        assert diary.seen == [("now", START), ("moved", START + HOUR), ("kept", START + DAY)]


class TestSchedules:
    async def test_they_are_stored_paused_and_resumed_in_virtual_time(
        self, tampu: Kit, diary: Diary
    ) -> None:
        async with tampu.use(diary.app, now=START) as jobs:
            schedules = diary.app.queue().schedules
            await schedules.add("note", Every("1h"), {"text": "hourly"}, key="hourly")
            assert (await schedules.preview("hourly", 1)) == [START + HOUR]
            await jobs.travel("2h")
            await schedules.pause("hourly")
            await jobs.travel("2h")
            await schedules.resume("hourly")
            await jobs.travel("2h")
        assert [(at - START) / HOUR for _, at in diary.seen] == [1, 2, 5, 6]

    async def test_one_that_waits_for_the_job_before_it_does_not_stop_time(
        self, tampu: Kit, diary: Diary
    ) -> None:
        @diary.app.schedule(Every("1h"), overlap=Overlap.QUEUE_ONE, missed=Missed.all())
        @diary.app.task
        async def hourly(job: Job[None] = INJECTED) -> None:
            diary.write(f"{(job.scheduled_at or START) - START}")

        async with tampu.use(diary.app, now=START) as jobs:
            await jobs.travel("150m", run=False)
            await jobs.run()
            await jobs.travel("1h")
        assert [text for text, _ in diary.seen] == ["1:00:00", "2:00:00", "3:00:00"]

    async def test_an_unreadable_one_is_left_alone(
        self, tampu: Kit, diary: Diary, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with tampu.use(diary.app, now=START) as jobs:
            queue = diary.app.queue()
            await queue.schedules.add("note", Every("1h"), {"text": "hourly"}, key="readable")
            connection = await queue._connect()
            keys = queue._keys
            await connection.lane.call("ZADD", keys.repeat, 0, b"odd")
            await connection.lane.call("HSET", keys.raw_spec(b"odd"), "spec", "odd")
            await jobs.travel("2h")
        assert len(diary.seen) == 2
        assert "cannot read schedule 'odd'" in caplog.text
