"""Connecting, and use from several event loops.

The numbers are those of the behaviours to re-test in the spec.
"""

import asyncio
from typing import Any

import pytest

from tampu.compat.chasquimq import Consumer, Producer, Queue, Scheduler, Worker
from tampu.compat.chasquimq._url import apply_tls
from tests.compat.harness import KEYS, QUEUE, SOON, do_nothing, echo
from tests.conftest import Start
from tests.servers import RunningServer
from tests.waiting import wait_until

SECRET = "open sesame"  # noqa: S105 - of a server for one test


class Provider:
    """A credential provider that records its calls; it returns or raises `outcome`."""

    def __init__(self, outcome: object = (None, None)) -> None:
        self.hosts: list[str | None] = []
        self.loops: set[asyncio.AbstractEventLoop] = set()
        self._outcome = outcome

    async def __call__(self, host: str | None) -> Any:  # noqa: ANN401 - wrong types too
        self.hosts.append(host)
        self.loops.add(asyncio.get_running_loop())
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class TestCredentials:
    async def test_the_provider_is_called_on_the_first_connection(
        self, running: RunningServer
    ) -> None:
        """Behaviour 184."""
        provider = Provider()
        async with Queue(QUEUE, redis_url=running.url, credential_provider=provider) as queue:
            assert provider.hosts == []
            await queue.add("n", 1)
        assert set(provider.hosts) == {f"127.0.0.1:{running.port}"}

    async def test_the_server_gets_the_password_of_the_provider(self, start: Start) -> None:
        """Behaviour 184."""
        server = start("--requirepass", SECRET)
        provider = Provider((None, SECRET))
        with server.admin(password=SECRET) as admin:
            async with Queue(QUEUE, redis_url=server.url, credential_provider=provider) as queue:
                worker = Worker(QUEUE, echo, redis_url=server.url, credential_provider=provider)
                working = asyncio.create_task(worker.run())
                await queue.add("n", 1)
                await wait_until(
                    lambda: admin.xlen(KEYS.stream) == 0, within=SOON, sentence="the job has run"
                )
                await worker.close()
                await asyncio.wait_for(working, SOON)
        assert provider.loops == {asyncio.get_running_loop()}, (
            "the lease thread also uses this loop"
        )

    @pytest.mark.parametrize(
        "outcome",
        [ValueError(SECRET), "x", ("a", "b", "c"), (1, 2)],
        ids=["raises", "text", "three", "numbers"],
    )
    async def test_an_error_of_the_provider_does_not_reveal_its_message(
        self, running: RunningServer, outcome: object
    ) -> None:
        """Behaviour 184."""
        queue = Queue(QUEUE, redis_url=running.url, credential_provider=Provider(outcome))
        with pytest.raises(RuntimeError, match=r"^redis: .*credential") as raised:
            await queue.add("n", 1)
        assert SECRET not in str(raised.value)

    async def test_consumer_scheduler_and_producer_accept_a_provider(
        self, running: RunningServer
    ) -> None:
        """Behaviour 184."""
        provider = Provider()
        options: dict[str, Any] = {"credential_provider": provider}
        consumer = Consumer(running.url, QUEUE, **options)
        scheduler = Scheduler(running.url, QUEUE, **options)
        working = [
            asyncio.ensure_future(consumer.run(do_nothing)),
            asyncio.ensure_future(scheduler.run()),
        ]
        await Producer(running.url, QUEUE, **options).shutdown()
        await wait_until(lambda: len(provider.hosts) > 3, within=SOON, sentence="both connect")
        consumer.shutdown()
        scheduler.shutdown()
        await asyncio.wait_for(asyncio.gather(*working), SOON)

    def test_the_low_level_classes_need_a_running_loop_for_a_provider(self) -> None:
        """Behaviour 184."""
        for kind in (Producer, Consumer, Scheduler):
            with pytest.raises(RuntimeError, match="no running event loop"):
                kind("redis://127.0.0.1:1", QUEUE, credential_provider=Provider())
        Worker(QUEUE, echo, credential_provider=Provider())
        Queue(QUEUE, credential_provider=Provider())


@pytest.mark.parametrize(
    ("given", "tls", "expected"),
    [
        ("redis://h:1", False, "redis://h:1"),
        ("redis://h:1", True, "rediss://h:1"),
        ("REDIS://h:1", True, "rediss://h:1"),
        ("rediss://h:1", True, "rediss://h:1"),
        ("h:1", True, "rediss://h:1"),
    ],
)
def test_tls_changes_the_scheme_of_the_url(
    given: str,
    tls: bool,  # noqa: FBT001 - as in chasquimq
    expected: str,
) -> None:
    """Behaviour 185."""
    assert apply_tls(given, tls) == expected


async def test_a_queue_can_be_used_from_several_event_loops_at_once(running: RunningServer) -> None:
    queue = Queue(QUEUE, redis_url=running.url)
    await queue.add("n", 1)

    async def elsewhere() -> None:
        await asyncio.gather(*(queue.add("n", number) for number in range(20)))
        await queue.close()  # on both loops

    await asyncio.to_thread(asyncio.run, elsewhere())
    await queue.add("n", 2)
    await queue.close()
    with running.admin() as admin:
        assert admin.xlen(KEYS.stream) == 22


def test_a_queue_can_be_used_from_one_event_loop_after_another(running: RunningServer) -> None:
    queue = Queue(QUEUE, redis_url=running.url)

    async def add() -> str:
        job = await queue.add("n", 1)
        await queue.close()
        return job.id

    assert len({asyncio.run(add()) for _ in range(3)}) == 3
    with running.admin() as admin:
        assert admin.xlen(KEYS.stream) == 3
