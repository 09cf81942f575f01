"""Items are sent in batches."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tampu.consumer.batch_sender import BatchSender, SendSteps
from tampu.errors import ConnectionLost, ServerBusy
from tampu.server.outage import Outage, Trouble
from tests.waiting import wait_until

SOON = 60.0


class FakeServer:
    """Takes batches; it can block, and it can fail."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.errors: list[Exception] = []
        self.poison: set[int] = set()

    async def send(self, batch: list[int]) -> None:
        await self.open.wait()
        if self.errors:
            raise self.errors.pop(0)
        if self.poison & set(batch):
            raise TypeError("cannot be packed")
        self.batches.append(list(batch))

    @property
    def items(self) -> list[int]:
        return [item for batch in self.batches for item in batch]

    async def until(self, count: int) -> None:
        await wait_until(lambda: len(self.items) >= count, within=SOON, sentence="all are sent")


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


def trouble() -> Trouble:
    return Outage("here").part("tests")


@asynccontextmanager
async def running(sender: BatchSender[int]) -> AsyncIterator[BatchSender[int]]:
    sender.start()
    await asyncio.sleep(0)
    yield sender
    await sender.stop()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "tampu-tests"]


@pytest.fixture
async def sender(server: FakeServer) -> AsyncIterator[BatchSender[int]]:
    async with running(
        BatchSender("tests", SendSteps(server.send), trouble=trouble(), most=10)
    ) as sender:
        yield sender


@pytest.fixture
async def awaited(server: FakeServer) -> AsyncIterator[BatchSender[int]]:
    async with running(
        BatchSender("tests", SendSteps(server.send), trouble=trouble(), most=10, awaited=True)
    ) as sender:
        yield sender


async def a_few_turns() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


class TestBatches:
    async def test_a_single_item_is_sent_at_once(
        self, sender: BatchSender[int], server: FakeServer
    ) -> None:
        sender.put(1)
        await a_few_turns()
        assert server.batches == [[1]]

    async def test_items_put_during_a_call_are_sent_together_in_order(
        self, sender: BatchSender[int], server: FakeServer
    ) -> None:
        server.open.clear()
        sender.put(0)
        await asyncio.sleep(0)
        for i in range(1, 25):
            sender.put(i)
        assert (len(sender), sender.items) == (25, list(range(25)))
        server.open.set()
        await server.until(25)
        assert server.items == list(range(25))
        assert [len(batch) for batch in server.batches] == [1, 10, 10, 4]
        await wait_until(lambda: len(sender) == 0, within=SOON, sentence="nothing is left")

    async def test_items_put_just_after_a_call_wait_for_more(
        self, sender: BatchSender[int], server: FakeServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tampu.consumer.batch_sender._LINGER_S", 0.1)
        for i in range(5):
            sender.put(i)
            await a_few_turns()
        await server.until(5)
        assert server.batches == [[0], [1, 2, 3, 4]]

    async def test_a_limit_that_changes_holds_from_the_next_batch_on(
        self, server: FakeServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tampu.consumer.batch_sender._LINGER_S", 3600.0)
        limit = 3
        steps = SendSteps(server.send, limit=lambda: limit)
        async with running(BatchSender("tests", steps, trouble=trouble(), most=5)) as sender:
            sender.put(0)
            await server.until(1)
            for number in range(1, 8):
                sender.put(number)
            await server.until(7)  # that is all but the last one, which waits for more
            limit = 10
            for number in range(8, 12):
                sender.put(number)
            await server.until(12)
        assert server.batches == [[0], [1, 2, 3], [4, 5, 6], [7, 8, 9, 10, 11]]

    async def test_awaited_items_do_not_wait_for_more(
        self, awaited: BatchSender[int], server: FakeServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tampu.consumer.batch_sender._LINGER_S", 3600.0)
        for i in range(3):
            awaited.put(i)
            await a_few_turns()
        assert server.batches == [[0], [1], [2]]

    async def test_awaited_items_put_during_a_call_wait_for_more(
        self, awaited: BatchSender[int], server: FakeServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tampu.consumer.batch_sender._LINGER_S", 0.1)
        server.open.clear()
        awaited.put(0)
        await a_few_turns()
        awaited.put(1)
        server.open.set()
        await a_few_turns()
        awaited.put(2)
        await server.until(3)
        assert server.batches == [[0], [1, 2]]


class TestDraining:
    async def test_it_returns_when_all_is_sent(
        self, sender: BatchSender[int], server: FakeServer
    ) -> None:
        server.open.clear()
        for i in range(25):
            sender.put(i)
        draining = asyncio.create_task(sender.drain(SOON))
        await asyncio.sleep(0)
        assert not draining.done()
        server.open.set()
        assert await draining
        assert server.items == list(range(25))

    async def test_with_nothing_to_send_it_returns_at_once(self, sender: BatchSender[int]) -> None:
        assert await sender.drain(0.001)

    async def test_it_returns_false_if_it_takes_too_long(
        self, sender: BatchSender[int], server: FakeServer
    ) -> None:
        server.open.clear()
        sender.put(1)
        assert not await sender.drain(0.01)
        assert sender.items == [1]


class TestTrouble:
    async def test_a_batch_is_sent_again_until_it_is_taken_and_the_outage_is_logged_once(
        self, sender: BatchSender[int], server: FakeServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        lost = ConnectionLost("here", "it broke")
        server.errors = [lost, ServerBusy("here", "LOADING", "not yet"), lost]
        sender.put(1)
        await asyncio.sleep(0)
        sender.put(2)
        await server.until(2)
        assert server.items == [1, 2]
        begin, end = caplog.messages
        assert begin == "here is unavailable, retrying: it broke"
        assert end.startswith("here is available again after ")

    async def test_an_item_that_cannot_be_sent_does_not_stop_the_others(
        self, sender: BatchSender[int], server: FakeServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        server.poison = {3}
        for i in range(6):
            sender.put(i)
        await server.until(5)
        assert server.items == [0, 1, 2, 4, 5]
        assert "one of the tests cannot be sent: its entry stays pending" in caplog.messages
        sender.put(6)
        await server.until(6)
        assert await sender.drain(SOON)


class TestSteps:
    async def test_a_batch_is_noted_once_right_before_it_is_sent_for_the_first_time(
        self, server: FakeServer
    ) -> None:
        told: list[object] = []

        async def prepare() -> None:
            told.append("prepared")
            if told.count("prepared") == 1:
                raise ServerBusy("here", "BUSY", "busy")

        async def send(batch: list[int]) -> None:
            told.append("sent")
            await server.send(batch)

        server.errors = [ServerBusy("here", "BUSY", "busy"), TypeError("cannot be packed")]
        steps = SendSteps(send, prepare, before=lambda batch: told.append(list(batch)))
        sender = BatchSender("tests", steps, trouble=trouble(), most=10)
        for number in (1, 2):
            sender.put(number)
        async with running(sender):
            await server.until(2)
        again = ["prepared", "sent"]
        assert told == ["prepared", "prepared", [1, 2], "sent", *again, *again, *again]
        assert server.batches == [[1], [2]]
