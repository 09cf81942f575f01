"""What type checkers know about `SyncQueue`; both of them check it, nobody runs it."""

from collections.abc import Generator
from datetime import UTC, datetime
from typing import Any, assert_type

from tampu import (
    CancelState,
    Counts,
    Cron,
    DeadLetter,
    JobEvent,
    JobInfo,
    NewJob,
    Schedule,
    SyncJob,
    SyncQueue,
)

NOW = datetime.now(UTC)
queue = SyncQueue("emails", max_len=5)


def results_are_values_not_coroutines() -> None:
    assert_type(queue.add("welcome", {"to": "ada"}, delay="90s", attempts=5), SyncJob[Any])
    assert_type(queue.add_many([NewJob("welcome")]), list[SyncJob[Any]])
    assert_type(queue.add_each("welcome", [1, 2], delay=1), list[SyncJob[Any]])
    assert_type(queue.job("id").cancel(), CancelState)
    assert_type(queue.job("id").info(), JobInfo)
    assert_type(queue.job("id").run_now(), bool)
    assert_type(queue.job("id").events(), Generator[JobEvent])
    assert_type(queue.cancel_many(["id"]), list[CancelState])
    assert_type(list(queue.jobs(state="dead")), list[JobInfo])
    assert_type(queue.pause(), bool)
    assert_type(queue.is_paused(), bool)
    assert_type(queue.drain(timeout="1s"), Counts)
    assert_type(queue.job("id").reschedule(delay=1), bool)
    assert_type(queue.schedules.add("tick", Cron("* * * * *"), key="daily"), Schedule)
    assert_type(queue.schedules.list(), list[Schedule])
    assert_type(queue.schedules.trigger("key"), SyncJob[Any])
    assert_type(queue.schedules.backfill("key", NOW, NOW, max=5), list[SyncJob[Any]])
    assert_type(queue.schedules.preview("key", n=2), list[datetime])
    assert_type(queue.counts(), Counts)
    assert_type(queue.job("id").result(1), Any)
    assert_type(queue.dead.peek(5, after="1-1"), list[DeadLetter])
    assert_type(queue.dead.get("1-1"), DeadLetter | None)
    assert_type(queue.dead.replay(ids=["1-1"]), int)
    assert_type(queue.dead.purge(everything=True), int)
    with queue as same:
        assert_type(same, SyncQueue)


def wrong_calls_are_errors() -> None:
    """Each of these must be an error: an ignore that nothing needs is reported."""
    queue.add()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    queue.add("welcome", None, dellay=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    queue.add("welcome", None, attempts="2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    queue.job(5).cancel()  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    queue.job("id").reschedule(5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    queue.counts(1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    queue.dead.peek(atfer="1-1")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    SyncQueue("emails", maxlen=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
