"""What a client that left a stream of server-sent events leaves behind: nothing."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from tampu import INJECTED, App, Job
from tampu.web import event_stream, sse
from tests.contract.apps import nothing_left, working
from tests.contract.web import declare_report, next_sent, parse, sent
from tests.contract.workers import SOON, connections, own_tasks
from tests.servers import RunningServer
from tests.waiting import wait_until


@pytest.fixture
def app(running: RunningServer) -> App:
    return App(running.url)


async def look(job: Job[Any]) -> None:
    """Follow a job for a moment, and leave."""
    async with aclosing(sse(job, heartbeat=0.02)) as body:
        for _ in range(3):
            await anext(body)


async def test_a_client_that_leaves_leaves_nothing_behind(app: App, running: RunningServer) -> None:
    report = declare_report(app)

    async def visit() -> None:
        async with app:
            job = await report.enqueue(1)
            with running.admin() as admin:
                await look(job)  # what waits for results stays for those who come after
                before = connections(admin)
                for _ in range(20):
                    await look(job)
                await wait_until(
                    lambda: not event_stream._reading and connections(admin) <= before,
                    within=SOON,
                    sentence="the readers have left",
                )
            assert not [name for name in own_tasks() if "sse" in name or "follow" in name]

    await nothing_left(running, visit)


async def test_also_if_it_is_cancelled_at_every_await(app: App, running: RunningServer) -> None:
    # As Starlette and Litestar do when they lose a client.
    @app.task
    async def never(job: Job = INJECTED) -> AsyncIterator[str]:
        yield "it"

    async def visit() -> None:
        async with app:
            job = await never.enqueue()
            async with anyio.create_task_group() as group:

                async def respond() -> None:
                    async for part in sse(job, heartbeat=0.05):
                        beats.append(part)  # noqa: PERF401 - looked at meanwhile

                beats: list[bytes] = []
                group.start_soon(respond)
                await wait_until(lambda: len(beats) > 3, within=SOON, sentence="it follows")
                group.cancel_scope.cancel()
            gc.collect()
            await wait_until(
                lambda: not event_stream._reading, within=SOON, sentence="the reader has left"
            )

    await nothing_left(running, visit)


async def test_also_if_the_server_forgets_the_response(app: App, running: RunningServer) -> None:
    report = declare_report(app)

    async def visit() -> None:
        async with app:
            body = sse(await report.enqueue(1), heartbeat=0.05)
            await anext(body)
            await anext(body)
            del body
            gc.collect()
            await wait_until(
                lambda: not event_stream._reading, within=SOON, sentence="the reader has left"
            )

    await nothing_left(running, visit)


async def test_a_client_that_takes_nothing_is_left_alone_and_can_come_back(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "_STALLED_S", 0.05)

    @app.task
    async def count() -> AsyncIterator[int]:
        for number in range(100):
            yield number

    async with working(app):
        job = await count.enqueue()
        async with aclosing(sse(job)) as body:
            await anext(body)
            first = await next_sent(body)
            await wait_until(lambda: not event_stream._reading, within=SOON, sentence="it gives up")
            late = parse(b"".join([part async for part in body]))
        seen = [*first, *late]
        assert len(seen) < 100
        rest = await sent(job, after=seen[-1].id)
    assert [each.data for each in seen + rest] == [*range(100), None]


async def test_a_server_that_goes_away_ends_it_and_says_so(
    running: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(running.url)
    report = declare_report(app)
    async with app:
        body = sse(await report.enqueue(1), heartbeat=0.05)
        assert await anext(body) == b":\n\n"
        await anext(body)
        await app.close()  # as at the end of a program
        async with asyncio.timeout(60):
            assert parse(b"".join([part async for part in body])) == []
    assert "ended the events of job" in caplog.text
