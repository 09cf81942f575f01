"""After a handler has met a rate limit, no job of that limit starts before it opens again."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from tampu.job import Job
from tampu.limits import Limit, Rate, RateLimited
from tampu.wire.extras import LINE_ALONE
from tests.contract.workers import KEYS, SOON, Harness, envelope, until_empty
from tests.gates import look_at_gate
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tampu.limits.model import AnyLimit

COUNT, QUICK = 4000, 500


class Caller:
    """Runs some jobs quickly, so that its worker reads ahead. The next one stops until `go_on`."""

    def __init__(self, error: RateLimited | None = None) -> None:
        self.error = error
        self.names = Counter[str]()
        self.is_stopped = False
        self.go_on = asyncio.Event()

    async def __call__(self, job: Job[Any]) -> None:
        self.names[job.name] += 1
        if job.name == "call" and self.names["call"] == QUICK:
            self.is_stopped = True
            await self.go_on.wait()
            if self.error is not None:
                raise self.error


def started(callers: Sequence[Caller]) -> int:
    return sum(each.names["call"] for each in callers)


async def start(harness: Harness, callers: Sequence[Caller]) -> None:
    """Let workers with one slot each read jobs ahead, and stop."""
    limits: list[AnyLimit] = [Limit("api"), Rate("1000000/s", burst=1_000_000)]
    harness.admin.hset(KEYS.gate + b":limits", "api", "10000 0 0 1 0")
    await harness.queue.add_each("call", range(COUNT), limits=limits)
    for each in callers:
        await harness.start_worker(each, concurrency=1)
    await wait_until(
        lambda: all(each.is_stopped for each in callers), within=SOON, sentence="all have stopped"
    )
    ahead = harness.pending() - len(callers)
    assert ahead > 0, "no job was read ahead: the test shows nothing"


async def until_given_back(harness: Harness, callers: Sequence[Caller], ended: int) -> None:
    """Return when workers have no jobs that have not started."""
    left = COUNT - started(callers) + ended
    await wait_until(
        lambda: look_at_gate(harness.admin, KEYS).lined == left,
        within=SOON,
        sentence="what was read ahead has been given back",
    )


async def run_another(harness: Harness, callers: Sequence[Caller]) -> None:
    """Return when a job without the limit has run after all that was there."""
    await harness.queue.add_each("other", range(10))
    await wait_until(
        lambda: sum(each.names["other"] for each in callers) == 10,
        within=SOON,
        sentence="others have run",
    )


@pytest.mark.parametrize("workers", [1, 2])
async def test_what_workers_have_read_already_does_not_start(
    harness: Harness, workers: int
) -> None:
    limited = Caller(RateLimited("1h", limit="api"))
    callers = [limited, *(Caller() for _ in range(workers - 1))]
    await start(harness, callers)
    before = started(callers)
    limited.go_on.set()
    await until_given_back(harness, callers, ended=1)
    for each in callers:
        each.go_on.set()
    await run_another(harness, callers)
    assert started(callers) == before
    assert await harness.queue.limits.open("api")
    await until_empty(harness)
    assert started(callers) == COUNT + 1


@pytest.mark.every_server
async def test_jobs_that_pass_when_it_has_opened_start(harness: Harness) -> None:
    limited, other = Caller(RateLimited("0.5s")), Caller()
    await start(harness, [limited, other])
    other.go_on.set()
    limited.go_on.set()
    await until_empty(harness)
    assert started([limited, other]) == COUNT + 1


@pytest.mark.every_server
async def test_a_worker_that_starts_later_learns_of_it(harness: Harness) -> None:
    limited, later = Caller(RateLimited("1h", limit="api")), Caller()
    later.go_on.set()
    await start(harness, [limited])
    limited.go_on.set()
    await until_given_back(harness, [limited], ended=1)
    await harness.workers[0].stop()
    # As if a job had passed before the limit was closed, and nobody had read it.
    last_ms = harness.admin.xinfo_stream(KEYS.stream)["last-generated-id"].split(b"-")[0]
    extras = LINE_ALONE + b"\xa55|api"
    harness.admin.xadd(
        KEYS.stream,
        {"d": envelope(job_id="left"), "n": "call", "x": extras},
        id=f"{last_ms.decode()}-999999",
    )
    await harness.start_worker(later, concurrency=1)
    await run_another(harness, [later])
    assert started([later]) == 0
    await harness.queue.limits.open("api")
    await until_empty(harness)
    assert started([limited, later]) == COUNT + 2
