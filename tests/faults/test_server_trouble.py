"""Under load, with a server that refuses, forgets, hangs up, falls silent or dies.

Each time: what was added is done or buried, nothing was added twice, no producer was told of
anything but a full server, and the worker was not restarted.
"""

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial

import pytest
import redis

from tests.conftest import Start
from tests.faults.ledger import Ledger
from tests.faults.load import Load, load_on
from tests.servers import Backend, RunningServer, free_port
from tests.waiting import wait_until

STREAM = "{chasqui:load}:stream"
TROUBLE_S = float(os.environ.get("TAMPU_FAULTS_TROUBLE_S", "1"))  # `make faults`: longer


async def again_and_again(trouble: Callable[[], object], *, every: float = 0.05) -> int:
    """Make the same trouble for a while, ten times or more; how often it was made."""
    end, times = time.monotonic() + TROUBLE_S, 0
    while time.monotonic() < end or times < 10:
        trouble()
        times += 1
        await asyncio.sleep(every)
    return times


@pytest.mark.every_server
async def test_at_the_memory_limit_adding_fails_and_the_worker_continues(
    running: RunningServer, backend: Backend, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    with running.admin() as admin:
        admin.config_set("maxmemory-policy", "noeviction")
        async with load_on(running.url, ledger, caplog, backlog=4000) as load:
            admin.config_set("maxmemory", 1)
            end = time.monotonic() + TROUBLE_S
            try:
                await wait_until(
                    lambda: load.refused >= 20, within=60, sentence="producers are refused"
                )
                await until_worked_off(load, admin, promotes=backend.version >= (7, 0))
                await asyncio.sleep(max(0, end - time.monotonic()))
                refused = load.refused
            finally:
                admin.config_set("maxmemory", 0)
            await load.more_done()
            report = await load.rest()
    report.assert_sound()
    assert refused >= 20


async def until_worked_off(load: Load, admin: redis.Redis, *, promotes: bool) -> None:
    """Return when all that was there at the limit is settled; before 7.0 retries wait outside."""

    async def is_worked_off() -> bool:
        counts = await load.queue.counts()
        return counts.waiting + counts.active == 0 and (counts.delayed == 0 or not promotes)

    await wait_until(is_worked_off, within=40, sentence="the worker goes on at the limit")
    assert admin.config_get("maxmemory")["maxmemory"] == "1"


@pytest.mark.every_server
async def test_a_server_that_is_a_replica_for_a_while_costs_nothing(
    running: RunningServer, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    with running.admin() as admin:
        async with load_on(running.url, ledger, caplog) as load:
            admin.replicaof("127.0.0.1", free_port())
            try:
                done = load.done
                await asyncio.sleep(TROUBLE_S)
                stood_still = load.done - done
            finally:
                admin.replicaof("NO", "ONE")
            await load.more_done()
            report = await load.rest()
    report.assert_sound()
    assert stood_still < 200


@pytest.mark.every_server
async def test_scripts_that_the_server_forgets_all_the_time_cost_nothing(
    running: RunningServer, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    with running.admin() as admin:
        async with load_on(running.url, ledger, caplog) as load:
            await again_and_again(admin.script_flush)
            await load.more_done()
            report = await load.rest()
    report.assert_sound()


@pytest.mark.every_server
async def test_a_deleted_group_is_created_again_and_nothing_is_lost(
    running: RunningServer, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    with running.admin() as admin:
        async with load_on(running.url, ledger, caplog) as load:
            destroy = partial(admin.xgroup_destroy, STREAM, "default")
            times = await again_and_again(destroy, every=0.2)
            await load.more_done()
            report = await load.rest()
    # What was pending is delivered again: it may have been running, or done and not yet settled.
    report.assert_sound(unexplained=times * 200)
    assert max(report.runs.values()) <= 2 + times
    assert "was deleted: creating it" in caplog.text


async def test_connections_that_are_cut_all_the_time_cost_nothing(
    running: RunningServer, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    with running.admin() as admin:

        def cut() -> None:
            admin.execute_command("CLIENT KILL TYPE normal SKIPME yes")

        async with load_on(running.url, ledger, caplog) as load:
            await again_and_again(cut)
            await load.more_done()
            report = await load.rest()
    report.assert_sound()


async def test_a_server_that_falls_silent_for_a_while_costs_nothing(
    running: RunningServer, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    with running.admin() as admin:
        async with load_on(running.url, ledger, caplog) as load:
            admin.execute_command("CLIENT PAUSE", 2000, "ALL")
            done = load.done
            await asyncio.to_thread(admin.ping)
            stood_still = load.done - done
            await load.more_done()
            report = await load.rest()
    report.assert_sound()
    assert stood_still < 200


async def test_a_server_that_is_killed_and_started_again_costs_nothing(
    start: Start, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    # Not "everysec": while the disk is busy, it may write up to two seconds after its answer.
    server = start("--appendonly", "yes", "--appendfsync", "no")
    async with load_on(server.url, ledger, caplog) as load:
        for stopped_first in (False, True):
            await load.more_done(200)
            if stopped_first:
                # What is sent now has no answer, and a server that starts knows no script.
                server.pause()
                await asyncio.sleep(0.1)  # time itself is the subject: calls pile up unanswered
            await asyncio.to_thread(server.kill)
            await asyncio.sleep(0.3)  # and here: there is no server for so long
            await asyncio.to_thread(server.restart)
        await load.more_done(200)
        report = await load.rest()
    report.assert_sound()
