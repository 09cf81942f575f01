"""Behaviours of connecting, 184 and 185 in ChasquiMQ's re-test list, and use from many loops."""

import asyncio
from typing import Any

import pytest

from tampu.compat.chasquimq import Consumer, Producer, Queue, Scheduler, Worker
from tampu.compat.chasquimq._url import apply_tls
from tests.compat.shop import KEYS, QUEUE, SOON, echo, nothing
from tests.conftest import Start
from tests.servers import RunningServer
from tests.waiting import wait_until

SECRET = "open sesame"  # noqa: S105 - of a server that lives for one test


class Provider:
    """Gives what it is told to, and notes for which servers."""

    def __init__(self, gives: object = (None, None)) -> None:
        self.asked: list[str | None] = []
        self.loops: set[asyncio.AbstractEventLoop] = set()
        self._gives = gives

    async def __call__(self, host: str | None) -> Any:  # noqa: ANN401 - wrong shapes too
        self.asked.append(host)
        self.loops.add(asyncio.get_running_loop())
        if isinstance(self._gives, Exception):
            raise self._gives
        return self._gives


class TestCredentials:
    async def test_184_the_provider_is_asked_when_it_is_first_needed(
        self, running: RunningServer
    ) -> None:
        provider = Provider()
        async with Queue(QUEUE, redis_url=running.url, credential_provider=provider) as queue:
            assert provider.asked == []
            await queue.add("n", 1)
        assert set(provider.asked) == {f"127.0.0.1:{running.port}"}

    async def test_184_what_it_gives_is_what_the_server_gets(self, start: Start) -> None:
        server = start("--requirepass", SECRET)
        provider = Provider((None, SECRET))
        with server.admin(password=SECRET) as admin:
            async with Queue(QUEUE, redis_url=server.url, credential_provider=provider) as queue:
                worker = Worker(QUEUE, echo, redis_url=server.url, credential_provider=provider)
                working = asyncio.create_task(worker.run())
                await queue.add("n", 1)
                await wait_until(
                    lambda: admin.xlen(KEYS.stream) == 0, within=SOON, sentence="it runs"
                )
                await worker.close()
                await asyncio.wait_for(working, SOON)
        assert provider.loops == {asyncio.get_running_loop()}, "also for the thread of the leases"

    @pytest.mark.parametrize(
        "gives", [ValueError(SECRET), "x", ("a", "b", "c"), (1, 2)], ids=["raises", *"tri"]
    )
    async def test_184_what_it_cannot_give_is_an_error_without_its_words(
        self, running: RunningServer, gives: object
    ) -> None:
        queue = Queue(QUEUE, redis_url=running.url, credential_provider=Provider(gives))
        with pytest.raises(RuntimeError, match=r"^redis: .*credential") as told:
            await queue.add("n", 1)
        assert SECRET not in str(told.value)

    async def test_184_the_others_take_it_too(self, running: RunningServer) -> None:
        provider = Provider()
        options: dict[str, Any] = {"credential_provider": provider}
        consumer = Consumer(running.url, QUEUE, **options)
        scheduler = Scheduler(running.url, QUEUE, **options)
        working = [
            asyncio.ensure_future(consumer.run(nothing)),
            asyncio.ensure_future(scheduler.run()),
        ]
        await Producer(running.url, QUEUE, **options).shutdown()
        await wait_until(lambda: len(provider.asked) > 3, within=SOON, sentence="both connect")
        consumer.shutdown()
        scheduler.shutdown()
        await asyncio.wait_for(asyncio.gather(*working), SOON)

    def test_184_the_low_level_ones_need_a_running_loop_for_it(self) -> None:
        for kind in (Producer, Consumer, Scheduler):
            with pytest.raises(RuntimeError, match="no running event loop"):
                kind("redis://127.0.0.1:1", QUEUE, credential_provider=Provider())
        Worker(QUEUE, echo, credential_provider=Provider())
        Queue(QUEUE, credential_provider=Provider())


@pytest.mark.parametrize(
    ("given", "tls", "made"),
    [
        ("redis://h:1", False, "redis://h:1"),
        ("redis://h:1", True, "rediss://h:1"),
        ("REDIS://h:1", True, "rediss://h:1"),
        ("rediss://h:1", True, "rediss://h:1"),
        ("h:1", True, "rediss://h:1"),
    ],
)
def test_185_tls_is_a_matter_of_the_scheme(
    given: str,
    tls: bool,  # noqa: FBT001 - as its caller has it
    made: str,
) -> None:
    assert apply_tls(given, tls) == made


async def test_a_queue_may_be_used_from_several_loops_at_once(running: RunningServer) -> None:
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


def test_a_queue_may_be_used_from_one_loop_after_another(running: RunningServer) -> None:
    queue = Queue(QUEUE, redis_url=running.url)

    async def add() -> str:
        job = await queue.add("n", 1)
        await queue.close()
        return job.id

    assert len({asyncio.run(add()) for _ in range(3)}) == 3
    with running.admin() as admin:
        assert admin.xlen(KEYS.stream) == 3
