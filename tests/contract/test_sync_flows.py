"""Flows, chains and batches from code without an event loop, with a worker."""

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tampu import (
    App,
    Closed,
    FlowRun,
    JobCancelled,
    JobFailed,
    OptionError,
    RunState,
    SyncFlowRun,
    SyncQueue,
    WrongContext,
    chain,
)
from tests.contract.apps import working
from tests.contract.workers import SOON
from tests.servers import RunningServer

T = TypeVar("T")


class Shop:
    """An app, and what its tasks have done."""

    def __init__(self, url: str) -> None:
        self.app = app = App(url)
        self.log: list[object] = []
        self.fails = True

        @app.task(attempts=1)
        def maybe(number: int) -> int:
            self.log.append(number)
            if number < 0 and self.fails:
                raise ValueError("negative")
            return number

        @app.task
        def add_up(numbers: list[int]) -> int:
            return sum(numbers)

        @app.task
        def more(left: int) -> None:
            self.log.append(left)
            if left:
                with app.own_batch_sync() as batch:
                    batch.add(more, left - 1)

        self.maybe, self.add_up, self.more = maybe, add_up, more


@pytest.fixture
def shop(running: RunningServer) -> Iterator[Shop]:
    made = Shop(running.url)
    yield made
    made.app.close_sync()


async def in_thread(call: Callable[[], T]) -> T:
    return await asyncio.wait_for(asyncio.to_thread(call), SOON)


async def test_a_flow_from_a_thread(shop: Shop) -> None:
    def start() -> list[object]:
        flow = shop.app.flow("sync")
        numbers = flow.map(shop.maybe, [1, 2, 3])
        run = flow.start_sync(result=flow.add(shop.add_up, numbers))
        found = run.completed(numbers)
        results = sorted(found)
        same = shop.app.flow_run_sync(run.id)
        assert repr(same) == f"<SyncFlowRun {run.id}>"
        assert (same.id, same.queue) == (run.id, "default")
        assert same.result(timeout=SOON) == 6
        assert list(run.completed(numbers, after=found.cursor)) == []
        info, progress = same.info(), same.progress()
        assert info is not None
        assert not same.cancel()
        with SyncQueue("default", shop.app.url) as queue:
            assert [each.id for each in queue.flows.newest()] == [run.id]
            assert queue.flows.info(run.id) == info
            assert not queue.flows.cancel(run.id)
        return [run.result(SOON), results, info.state, progress.done]

    async with working(shop.app):
        told = await in_thread(start)
    assert told == [6, [(0, 1), (1, 2), (2, 3)], RunState.DONE, 4]


async def test_a_flow_is_retried_and_cancelled_from_a_thread(shop: Shop) -> None:
    def start() -> None:
        flow = shop.app.flow()
        run = flow.start_sync(result=flow.add(shop.maybe, -1))
        with pytest.raises(JobFailed, match="negative"):
            run.result(timeout=SOON)
        shop.fails = False
        assert run.retry() == 1
        assert run.result(timeout=SOON) == -1

    async with working(shop.app):
        await in_thread(start)
    # No worker runs any more.
    flow = shop.app.flow()
    flow.add(shop.maybe, 1)
    run = await asyncio.to_thread(flow.start_sync)
    assert await asyncio.to_thread(run.cancel)
    with pytest.raises(JobCancelled):
        await asyncio.to_thread(run.result, SOON)
    shop.app.close_sync()


async def test_a_result_is_not_waited_for_where_an_event_loop_runs(shop: Shop) -> None:
    run: SyncFlowRun[int] = SyncFlowRun(FlowRun(shop.app, "default", "F"), shop.app.portal())
    with pytest.raises(WrongContext, match="event loop"):
        run.result()
    shop.app.close_sync()


async def test_a_chain_from_a_thread(shop: Shop) -> None:
    async with working(shop.app):
        job = await asyncio.to_thread(chain(shop.maybe.call(4), shop.maybe).enqueue_sync)
        assert await in_thread(lambda: job.result(timeout=SOON)) == 4
    assert shop.log == [4, 4]


async def test_a_batch_from_a_thread(shop: Shop) -> None:
    def fill() -> int:
        with shop.app.batch_sync(on_success=shop.maybe.call(1000)) as batch:
            for number in range(5):
                batch.add(shop.maybe, number)
            batch.flush()
            batch.add(shop.more, 3)
        with pytest.raises(Closed):
            batch.add(shop.maybe, 1)
        assert repr(batch) == "<SyncFlowBatch on 'default'>"
        batch.run.result(timeout=SOON)
        return batch.run.progress().jobs

    async with working(shop.app):
        assert await in_thread(fill) == 10
    assert shop.log[-1] == 1000
    assert sorted(map(str, shop.log[:-1])) == ["0", "0", "1", "1", "2", "2", "3", "3", "4"]


async def test_an_error_in_its_block_cancels_the_batch(shop: Shop) -> None:
    def fill() -> SyncFlowRun[None]:
        batch = shop.app.batch_sync(on_complete=shop.maybe.call(1000))
        with pytest.raises(OptionError), batch:
            batch.add(shop.maybe, 1)
            batch.add(shop.maybe.options(queue="other"), 1)
        return batch.run

    async with working(shop.app):
        run = await in_thread(fill)
        with pytest.raises(JobCancelled):
            await in_thread(lambda: run.result(timeout=SOON))
    assert shop.log == []
