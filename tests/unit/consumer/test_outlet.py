"""What many put in, one call carries."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tampu.consumer.batch_sender import BatchSender
from tampu.errors import ConnectionLost, ServerBusy
from tests.waiting import wait_until

SOON = 10.0


class Sent:
    """Where an outlet leads; it can be closed, and it can refuse."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.troubles: list[Exception] = []
        self.poison: set[int] = set()

    async def send(self, batch: list[int]) -> None:
        await self.open.wait()
        if self.troubles:
            raise self.troubles.pop(0)
        if self.poison & set(batch):
            raise TypeError("cannot be packed")
        self.batches.append(list(batch))

    @property
    def items(self) -> list[int]:
        return [item for batch in self.batches for item in batch]

    async def until(self, count: int) -> None:
        await wait_until(lambda: len(self.items) >= count, within=SOON, sentence="all are sent")


@pytest.fixture
def sent() -> Sent:
    return Sent()


@asynccontextmanager
async def opened(outlet: BatchSender[int]) -> AsyncIterator[BatchSender[int]]:
    outlet.start()
    await asyncio.sleep(0)
    yield outlet
    await outlet.close()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "tampu-tests"]


@pytest.fixture
async def outlet(sent: Sent) -> AsyncIterator[BatchSender[int]]:
    async with opened(BatchSender("tests", sent.send, most=10)) as outlet:
        yield outlet


@pytest.fixture
async def awaited(sent: Sent) -> AsyncIterator[BatchSender[int]]:
    async with opened(BatchSender("tests", sent.send, most=10, awaited=True)) as outlet:
        yield outlet


async def a_few_turns() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


class TestBatches:
    async def test_a_single_item_leaves_at_once(self, outlet: BatchSender[int], sent: Sent) -> None:
        outlet.put(1)
        await a_few_turns()
        assert sent.batches == [[1]]

    async def test_what_comes_during_a_call_leaves_together_in_order(
        self, outlet: BatchSender[int], sent: Sent
    ) -> None:
        sent.open.clear()
        outlet.put(0)
        await asyncio.sleep(0)
        for i in range(1, 25):
            outlet.put(i)
        assert (len(outlet), outlet.items) == (25, list(range(25)))
        sent.open.set()
        await sent.until(25)
        assert sent.items == list(range(25))
        assert [len(batch) for batch in sent.batches] == [1, 10, 10, 4]
        await wait_until(lambda: len(outlet) == 0, within=SOON, sentence="nothing is left")

    async def test_what_comes_just_behind_a_call_waits_for_company(
        self, outlet: BatchSender[int], sent: Sent, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tampu.consumer.batch_sender._LINGER_S", 0.1)
        for i in range(5):
            outlet.put(i)
            await a_few_turns()
        await sent.until(5)
        assert sent.batches == [[0], [1, 2, 3, 4]]

    async def test_what_is_awaited_waits_for_nobody(
        self, awaited: BatchSender[int], sent: Sent, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tampu.consumer.batch_sender._LINGER_S", 3600.0)
        for i in range(3):
            awaited.put(i)
            await a_few_turns()
        assert sent.batches == [[0], [1], [2]]

    async def test_what_is_awaited_and_comes_during_a_call_waits_for_company(
        self, awaited: BatchSender[int], sent: Sent, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tampu.consumer.batch_sender._LINGER_S", 0.1)
        sent.open.clear()
        awaited.put(0)
        await a_few_turns()
        awaited.put(1)
        sent.open.set()
        await a_few_turns()
        awaited.put(2)
        await sent.until(3)
        assert sent.batches == [[0], [1, 2]]


class TestDraining:
    async def test_it_returns_when_all_is_sent(self, outlet: BatchSender[int], sent: Sent) -> None:
        sent.open.clear()
        for i in range(25):
            outlet.put(i)
        draining = asyncio.create_task(outlet.drain(SOON))
        await asyncio.sleep(0)
        assert not draining.done()
        sent.open.set()
        assert await draining
        assert sent.items == list(range(25))

    async def test_with_nothing_to_send_it_returns_at_once(self, outlet: BatchSender[int]) -> None:
        assert await outlet.drain(0.001)

    async def test_it_says_so_if_it_cannot_be_done_in_time(
        self, outlet: BatchSender[int], sent: Sent
    ) -> None:
        sent.open.clear()
        outlet.put(1)
        assert not await outlet.drain(0.01)
        assert outlet.items == [1]


class TestTrouble:
    async def test_a_batch_is_sent_again_until_it_is_sent_and_that_is_logged_once(
        self, outlet: BatchSender[int], sent: Sent, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO")
        lost = ConnectionLost("here", "it broke")
        sent.troubles = [lost, ServerBusy("here", "LOADING", "not yet"), lost]
        outlet.put(1)
        await asyncio.sleep(0)
        outlet.put(2)
        await sent.until(2)
        assert sent.items == [1, 2]
        assert caplog.messages == ["settling is delayed", "settling goes on"]

    async def test_an_item_that_cannot_be_sent_does_not_stop_its_neighbours(
        self, outlet: BatchSender[int], sent: Sent, caplog: pytest.LogCaptureFixture
    ) -> None:
        sent.poison = {3}
        for i in range(6):
            outlet.put(i)
        await sent.until(5)
        assert sent.items == [0, 1, 2, 4, 5]
        assert "an entry cannot be settled: it stays" in caplog.messages
        outlet.put(6)
        await sent.until(6)
        assert await outlet.drain(SOON)
