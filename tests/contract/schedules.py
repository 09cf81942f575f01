"""What tests of schedules share."""

import time
from typing import Any

from tampu import Schedule
from tests.contract.workers import KEYS, Calls, Harness
from tests.waiting import wait_until

SOON = 60.0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def instants(calls: Calls) -> list[int]:
    """The instants that jobs were fired for, in ms."""
    found = [job.extras.scheduled_at_ms for job in calls.jobs]
    assert None not in found
    return [at_ms for at_ms in found if at_ms is not None]


def score(harness: Harness, key: str) -> int | None:
    """What a schedule is armed for."""
    found = harness.admin.zscore(KEYS.repeat, key)
    return None if found is None else int(found)


def arm(harness: Harness, key: str, at_ms: int) -> None:
    """Have a schedule be armed for an instant, as if nobody had fired it since."""
    harness.admin.zadd(KEYS.repeat, {key: at_ms}, xx=True)


def fields(harness: Harness, key: str) -> dict[bytes, bytes]:
    """The schedule's hash."""
    found: dict[bytes, bytes] = harness.admin.hgetall(KEYS.spec(key))
    return found


async def the(harness: Harness, key: str) -> Schedule:
    """The schedule of a key, as the queue tells of it."""
    (found,) = [each for each in await harness.queue.schedules.list() if each.key == key]
    return found


async def until_counted(harness: Harness, key: str, **counts: int) -> Schedule:
    """The schedule, as soon as it has counted so many at least."""

    async def counted() -> bool:
        found = (await the(harness, key)).counts
        return all(getattr(found, name) >= least for name, least in counts.items())

    await wait_until(counted, within=SOON, sentence=f"{key} has counted {counts}")
    return await the(harness, key)


async def until_gone(harness: Harness, key: str) -> None:
    """Return when nothing is left of a schedule."""

    def is_gone() -> bool:
        return score(harness, key) is None and not harness.admin.exists(KEYS.spec(key))

    await wait_until(is_gone, within=SOON, sentence=f"{key} is removed")


def store_raw(harness: Harness, key: str, spec: Any, at_ms: int) -> None:  # noqa: ANN401 - bytes
    """Store a spec as a peer's program does."""
    with harness.admin.pipeline(transaction=True) as both:
        both.zadd(KEYS.repeat, {key: at_ms})
        both.hset(KEYS.spec(key), "spec", spec)
        both.execute()


class Lateness(Calls):
    """A handler that notes how late it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.late_ms: list[int] = []

    async def __call__(self, job: Any) -> object:  # noqa: ANN401 - a job
        self.late_ms.append(now_ms() - job.extras.scheduled_at_ms)
        return await super().__call__(job)
