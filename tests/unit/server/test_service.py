"""Background work: start, stop, ticks, and what happens when a tick fails."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tampu.errors import CommandRefused, ConnectionLost
from tampu.server.outage import Outage
from tampu.server.service import Service
from tests.waiting import wait_until

SOON = 60.0


class Ticker(Service):
    """Counts its ticks; fails while it has errors to raise."""

    name = "ticker"

    def __init__(self, outage: Outage) -> None:
        super().__init__(outage, "ticker of queue 'emails'")
        self.ticks = self.clean_ups = 0
        self.wait_s = 0.0
        self.errors: list[Exception] = []
        self.clean_up_error: Exception | None = None

    async def tick(self) -> float:
        self.ticks += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.wait_s

    async def clean_up(self) -> None:
        self.clean_ups += 1
        if self.clean_up_error is not None:
            raise self.clean_up_error

    async def until(self, ticks: int) -> None:
        await wait_until(lambda: self.ticks >= ticks, within=SOON, sentence=f"{ticks} ticks")


@pytest.fixture
async def ticker() -> AsyncIterator[Ticker]:
    service = Ticker(Outage("here"))
    yield service
    await service.stop()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "tampu-ticker"]


class TestLife:
    async def test_it_ticks_until_it_is_stopped_and_cleans_up_once(self, ticker: Ticker) -> None:
        ticker.start()
        await ticker.until(3)
        await ticker.stop()
        ticks = ticker.ticks
        await ticker.stop()
        assert (ticker.ticks, ticker.clean_ups) == (ticks, 1)

    async def test_a_second_start_does_nothing_while_it_runs(self, ticker: Ticker) -> None:
        ticker.start()
        ticker.start()
        tasks = [task for task in asyncio.all_tasks() if task.get_name() == "tampu-ticker"]
        assert len(tasks) == 1

    async def test_it_can_be_started_again_after_a_stop(self, ticker: Ticker) -> None:
        for round_number in range(50):
            ticker.start()
            if round_number % 2:
                await asyncio.sleep(0)
            await ticker.stop()
        assert ticker.clean_ups == 50

    async def test_stopping_before_the_start_does_nothing(self, ticker: Ticker) -> None:
        await ticker.stop()
        assert ticker.clean_ups == 0

    async def test_it_can_be_woken_before_its_time(self, ticker: Ticker) -> None:
        ticker.wait_s = 3600.0
        ticker.start()
        await ticker.until(1)
        ticker.wake()
        await ticker.until(2)


class TestTrouble:
    async def test_an_outage_is_logged_once_at_each_end(
        self, ticker: Ticker, caplog: pytest.LogCaptureFixture
    ) -> None:
        ticker.errors = [ConnectionLost("here", "it broke")] * 3
        ticker.start()
        await ticker.until(5)
        begin, end = caplog.messages
        assert begin == "here is unavailable, retrying: it broke"
        assert end.startswith("here is available again after ")

    async def test_a_refused_command_is_logged_with_the_service_and_its_queue(
        self, ticker: Ticker, caplog: pytest.LogCaptureFixture
    ) -> None:
        ticker.errors = [CommandRefused("here", "WRONGTYPE", "not a list")] * 2
        ticker.start()
        await ticker.until(4)
        assert caplog.messages == [
            "ticker of queue 'emails' failed, retrying: "
            "here refused a command: WRONGTYPE not a list",
            "ticker of queue 'emails' works again",
        ]

    async def test_an_unexpected_error_is_logged_with_its_traceback(
        self, ticker: Ticker, caplog: pytest.LogCaptureFixture
    ) -> None:
        ticker.errors = [KeyError("k"), KeyError("k")]
        ticker.start()
        await ticker.until(4)
        failed, works = caplog.records
        assert (failed.levelname, failed.exc_info is not None) == ("ERROR", True)
        assert works.message == "ticker of queue 'emails' works again"

    async def test_a_clean_up_that_fails_is_logged(
        self, ticker: Ticker, caplog: pytest.LogCaptureFixture
    ) -> None:
        ticker.clean_up_error = ConnectionLost("here", "it broke")
        ticker.start()
        await ticker.until(1)
        await ticker.stop()
        ticker.clean_up_error = None
        (message,) = caplog.messages
        assert message.startswith("ticker of queue 'emails' could not clean up: ")
