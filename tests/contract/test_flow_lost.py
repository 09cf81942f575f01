"""Jobs of flows that a program which knows no flows has taken away."""

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis

from tampu import Backoff, FlowRun
from tampu.services import relay
from tests.contract.apps import working
from tests.contract.cli import tampu
from tests.contract.flow_runs import SOON, FlowShop, wait_for_state
from tests.servers import RunningServer
from tests.waiting import wait_until

STREAM = "{chasqui:default}:stream"
OTHER = "{chasqui:other}:stream"


@pytest.fixture
async def shop(running: RunningServer) -> AsyncIterator[FlowShop]:
    made = FlowShop(running.url)
    yield made
    await made.app.close()


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The relay looks for lost jobs more often than once a minute."""
    monkeypatch.setattr(relay, "_TIDY_S", 0.2)


@pytest.fixture
def errors(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """What was logged about lost jobs."""
    lines: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, handler = logging.getLogger("tampu.services.lost"), Collect()
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)


def take_away(admin: redis.Redis, stream: str, count: int = 1) -> list[bytes]:
    """Read, acknowledge and delete entries as a foreign worker does; returns their ids."""
    with suppress(redis.ResponseError):
        admin.xgroup_create(stream, "default", "0", mkstream=True)
    read: Any = admin.xreadgroup("default", "c-foreign", {stream: ">"}, count=count)
    ids = [entry_id for _, entries in read for entry_id, _ in entries]
    admin.xack(stream, "default", *ids)
    admin.xdel(stream, *ids)
    return ids


async def lost_of(run: FlowRun[Any]) -> tuple[str, ...]:
    info = await run.info()
    assert info is not None
    return info.lost


@pytest.mark.every_server
async def test_a_job_that_a_foreign_worker_acknowledged_is_reported_once(
    shop: FlowShop, admin: redis.Redis, errors: list[str], often: None, running: RunningServer
) -> None:
    run = await shop.start_sum()
    assert len(take_away(admin, STREAM)) == 1
    fine = await shop.start_sum()
    async with working(shop.app, {"default": 5, "other": 5}):

        async def is_lost() -> bool:
            return bool(await lost_of(run))

        await wait_until(is_lost, within=SOON, sentence="the job is reported")
        assert await lost_of(run) == (f"{run.id}~0",)
        assert await fine.result(20) == 3
    assert [line.partition(":")[0] for line in errors] == [
        f"flow {run.id} waits in vain for 1 of its jobs, such as {run.id}~0"
    ]
    shown = await tampu("flow", "show", "default", run.id, url=running.url)
    assert f"{run.id}~0" in shown.out
    assert "the flow waits in vain" in " ".join(shown.out.split())
    listing = ("flow", "ls", "default", "--state", "running", "--json")
    told = (await tampu(*listing, url=running.url)).json
    assert [each["lost"] for each in told["flows"]] == [[f"{run.id}~0"]]


async def test_flows_that_need_no_other_queue_are_looked_at_and_forgotten_too(
    shop: FlowShop, admin: redis.Redis, often: None
) -> None:
    """Their jobs pass no outbox, so nothing else starts the relay of their workers."""
    flow = shop.app.flow("short", result_ttl="1s")
    flow.add(shop.count, 1)
    async with working(shop.app, {"default": 5}):
        short = await flow.start()
        await short.result(20)

        def is_forgotten() -> bool:
            return admin.zscore("{chasqui:default}:tampu:flows", short.id) is None

        await wait_until(is_forgotten, within=SOON, sentence="the flow is forgotten")


async def test_flows_that_are_done_cost_nothing(shop: FlowShop, admin: redis.Redis) -> None:
    def calls(command: str) -> int:
        stats: Any = admin.info("commandstats")
        return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])

    async with working(shop.app, {"default": 5, "other": 5}):
        await (await shop.start_sum()).result(20)
        looked = calls("zrange")
        await wait_until(
            lambda: calls("zrange") >= looked + 8, within=SOON, sentence="services look for work"
        )
        looked, read = calls("zrange"), calls("xrange")
        await wait_until(
            lambda: calls("zrange") >= looked + 16, within=2 * SOON, sentence="they look again"
        )
        assert calls("xrange") - read <= 2, "the outbox is empty, and nobody said anything else"


async def test_jobs_of_maps_and_of_other_queues_are_missed_too(
    shop: FlowShop, admin: redis.Redis, often: None
) -> None:
    async with working(shop.app, {"default": 5}, concurrency=5):
        run, bad = await shop.start_sum(40), await shop.start_failing()

        def there() -> bool:
            return bool(admin.xlen(OTHER) == 2)

        await wait_until(there, within=SOON, sentence="both jobs are on the other queue")
        assert await lost_of(run) == ()
        assert len(take_away(admin, OTHER, count=2)) == 2

        async def are_lost() -> bool:
            return bool(await lost_of(run)) and bool(await lost_of(bad))

        await wait_until(are_lost, within=SOON, sentence="both are reported")
        assert await lost_of(run) == (f"{run.id}~2@default",)
        assert await lost_of(bad) == (f"{bad.id}~0@default",)
        assert await bad.cancel()
        assert await lost_of(bad) == ()


async def test_a_job_that_waits_for_its_next_attempt_or_runs_long_is_not_lost(
    shop: FlowShop, admin: redis.Redis, errors: list[str], often: None
) -> None:
    waiting = shop.app.task(name="waiting", attempts=5, backoff=Backoff.fixed("1h"))(_fail)
    flow = shop.app.flow("patient")
    flow.map(waiting, range(30))
    run = await flow.start()
    lost = await shop.start_sum()
    async with working(shop.app, {"default": 5}, concurrency=5):

        def delayed() -> bool:
            return bool(admin.zcard("{chasqui:default}:delayed") == 30)

        await wait_until(delayed, within=SOON, sentence="all wait for their next attempt")
        await wait_until(
            lambda: bool(admin.xlen(OTHER) == 1), within=SOON, sentence="the sum is on its queue"
        )
        take_away(admin, OTHER)

        async def is_lost() -> bool:
            return bool(await lost_of(lost))

        # The sweeps that find this one have looked at the other flow as well.
        await wait_until(is_lost, within=SOON, sentence="the job is reported")
        assert await lost_of(run) == ()
    assert len(errors) == 1


async def test_flows_whose_jobs_are_purged_end(
    shop: FlowShop, running: RunningServer, admin: redis.Redis
) -> None:
    run, bad = await shop.start_sum(), await shop.start_failing()
    async with working(shop.app, {"default": 5}):
        await wait_until(
            lambda: bool(admin.xlen(OTHER) == 2), within=SOON, sentence="both wait elsewhere"
        )
    last = FlowShop(running.url)
    again = await last.start_sum()
    for queue in ("default", "other"):
        done = await tampu("queue", "purge", queue, "--state", "waiting", "-y", url=running.url)
        assert done.code == 0
    async with working(shop.app, {"default": 5, "other": 5}):
        for each in (run, bad, again):
            await wait_for_state(each, "failed")
    await last.app.close()


async def _fail(number: int) -> None:
    raise ValueError(number)
