"""Starting and stopping: once, whoever asks."""

import asyncio
import math

import pytest

from tampu.errors import WrongContext
from tampu.util.lifecycle import Lifetime, Shared, cancel_all
from tests.waiting import wait_until


class Resource:
    """Counts how often it was opened and closed; opens and closes only when it may."""

    def __init__(self, error: Exception | None = None) -> None:
        self.may_open = asyncio.Event()
        self.may_close = asyncio.Event()
        self.opened = self.closed = 0
        self.grace_s = math.inf
        self.error = error

    async def open(self) -> "Resource":
        await self.may_open.wait()
        if self.error is not None:
            raise self.error
        self.opened += 1
        return self

    async def close(self) -> None:
        await self.may_close.wait()
        self.closed += 1

    async def close_with_grace(self, grace_s: float) -> None:
        await self.hurry(grace_s)
        await wait_until(lambda: self.grace_s == 0, within=60, sentence="it may be closed")
        self.closed += 1

    async def hurry(self, grace_s: float) -> None:
        self.grace_s = min(self.grace_s, grace_s)


def lifetime_of(resource: Resource) -> Lifetime[Resource]:
    return Lifetime("thing", resource.open, Resource.close_with_grace, hurry=Resource.hurry)


class TestLifetime:
    @pytest.fixture
    def resource(self) -> Resource:
        resource = Resource()
        resource.may_open.set()
        return resource

    async def test_several_stops_close_it_once(self, resource: Resource) -> None:
        life = lifetime_of(resource)
        running = asyncio.create_task(life.run())
        await asyncio.sleep(0)
        await asyncio.gather(*[life.stop() for _ in range(3)])
        await asyncio.wait_for(running, 10)
        assert (resource.opened, resource.closed) == (1, 1)

    async def test_it_cannot_be_started_twice(self, resource: Resource) -> None:
        life = lifetime_of(resource)
        await life.start()
        await life.stop()
        with pytest.raises(WrongContext) as refusal:
            await life.start()
        assert str(refusal.value) == (
            "Cannot start this thing again: it can be started only once; create a new one."
        )

    async def test_a_resource_that_failed_to_open_is_not_closed(self, resource: Resource) -> None:
        resource.error = ValueError("no")
        life = lifetime_of(resource)
        with pytest.raises(ValueError, match="no"):
            await life.start()
        await life.stop()
        assert resource.closed == 0

    async def test_a_stop_during_the_start_waits_for_it(self) -> None:
        resource = Resource()
        life = lifetime_of(resource)
        starting = asyncio.create_task(life.start())
        await asyncio.sleep(0)
        stopping = asyncio.create_task(life.stop())
        await asyncio.sleep(0)
        resource.may_open.set()
        await asyncio.gather(starting, stopping)
        assert (resource.opened, resource.closed) == (1, 1)

    async def test_a_cancelled_start_opens_nothing(self) -> None:
        resource = Resource()
        life = lifetime_of(resource)
        starting = asyncio.create_task(life.start())
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        resource.may_open.set()
        await life.stop()
        assert (resource.opened, resource.closed) == (0, 0)

    async def test_a_cancelled_run_closes_the_resource(self, resource: Resource) -> None:
        running = asyncio.create_task(lifetime_of(resource).run())
        await wait_until(lambda: resource.opened == 1, within=60, sentence="it is open")
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        assert (resource.opened, resource.closed) == (1, 1)

    async def test_a_cancelled_run_hurries_a_slow_stop(self, resource: Resource) -> None:
        life = lifetime_of(resource)
        running = asyncio.create_task(life.run())
        await wait_until(lambda: resource.opened == 1, within=60, sentence="it is open")
        stopping = asyncio.create_task(life.stop(60))
        await wait_until(lambda: resource.grace_s == 60, within=60, sentence="it is closing")
        running.cancel()
        await asyncio.wait_for(stopping, 10)
        await asyncio.wait([running])
        assert running.cancelled()
        assert (resource.grace_s, resource.closed) == (0, 1)

    async def test_after_a_stop_it_cannot_be_started(self, resource: Resource) -> None:
        life = lifetime_of(resource)
        await life.stop()
        with pytest.raises(WrongContext):
            await life.start()
        assert resource.opened == 0


class TestShared:
    @pytest.fixture
    def resource(self) -> Resource:
        resource = Resource()
        resource.may_open.set()
        resource.may_close.set()
        return resource

    async def test_the_first_user_opens_it_and_the_last_one_closes_it(
        self, resource: Resource
    ) -> None:
        shared = Shared(resource.open, Resource.close)
        assert await shared.acquire() is resource
        assert await shared.acquire() is resource
        await shared.release()
        assert (resource.opened, resource.closed) == (1, 0)
        await shared.release()
        assert (resource.opened, resource.closed) == (1, 1)

    async def test_one_release_too_many_is_ignored(self, resource: Resource) -> None:
        shared = Shared(resource.open, Resource.close)
        await shared.release()
        await shared.acquire()
        assert (resource.opened, resource.closed) == (1, 0)

    async def test_it_can_be_opened_again(self, resource: Resource) -> None:
        shared = Shared(resource.open, Resource.close)
        for _ in range(3):
            await shared.acquire()
            await shared.release()
        assert (resource.opened, resource.closed) == (3, 3)

    async def test_users_that_come_together_wait_for_one_opening(self) -> None:
        resource = Resource()
        shared = Shared(resource.open, Resource.close)
        users = [asyncio.create_task(shared.acquire()) for _ in range(5)]
        await asyncio.sleep(0)
        resource.may_open.set()
        assert await asyncio.gather(*users) == [resource] * 5
        assert resource.opened == 1

    async def test_an_opening_that_fails_does_not_count(self, resource: Resource) -> None:
        shared = Shared(resource.open, Resource.close)
        resource.error = ValueError("no")
        with pytest.raises(ValueError, match="no"):
            await shared.acquire()
        resource.error = None
        await shared.acquire()
        await shared.release()
        assert (resource.opened, resource.closed) == (1, 1)

    async def test_a_new_user_during_the_closing_opens_it_again(self, resource: Resource) -> None:
        resource.may_close.clear()
        shared = Shared(resource.open, Resource.close)
        await shared.acquire()
        leaving = asyncio.create_task(shared.release())
        await asyncio.sleep(0)
        coming = asyncio.create_task(shared.acquire())
        await asyncio.sleep(0)
        assert resource.opened == 1
        resource.may_close.set()
        await asyncio.gather(leaving, coming)
        assert (resource.opened, resource.closed) == (2, 1)

    async def test_a_user_that_is_cancelled_while_it_waits_leaves_nothing_open(self) -> None:
        resource = Resource()
        resource.may_close.set()
        shared = Shared(resource.open, Resource.close)
        first = asyncio.create_task(shared.acquire())
        await asyncio.sleep(0)
        second = asyncio.create_task(shared.acquire())
        await asyncio.sleep(0)
        resource.may_open.set()
        second.cancel()
        await asyncio.wait([first, second])
        assert (second.cancelled(), resource.closed) == (True, 0)
        await shared.release()
        assert (resource.opened, resource.closed) == (1, 1)

    async def test_the_last_one_may_leave_while_a_new_one_is_cancelled(self) -> None:
        for turns in range(8):
            resource = Resource()
            resource.may_open.set()
            resource.may_close.set()
            shared = Shared(resource.open, Resource.close)
            await shared.acquire()
            coming = asyncio.create_task(shared.acquire())
            leaving = asyncio.create_task(shared.release())
            for _ in range(turns):
                await asyncio.sleep(0)
            if not coming.done():
                coming.cancel()
            await asyncio.wait([coming, leaving])
            if not coming.cancelled():
                await shared.release()
            assert resource.opened == resource.closed


async def test_cancel_all_waits_until_tasks_have_ended() -> None:
    ended: list[int] = []

    async def work(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(3)]
    await asyncio.sleep(0)
    await cancel_all(tasks)
    assert sorted(ended) == [0, 1, 2]
    await cancel_all([])
