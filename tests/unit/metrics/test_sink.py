"""Who hands facts to a sink."""

from collections.abc import Sequence

import pytest

from tampu.metrics import BatchRead, Fact, MemorySink
from tampu.metrics.sinks import Teller


class Broken:
    """A sink that takes nothing."""

    def record(self, facts: Sequence[Fact]) -> None:
        raise OSError("no room")


class TestTeller:
    def test_facts_reach_the_sink_together(self) -> None:
        sink = MemorySink()
        Teller(sink).tell(BatchRead(1), BatchRead(2))
        assert sink.of(BatchRead) == [BatchRead(1), BatchRead(2)]

    def test_without_a_sink_nobody_is_told(self) -> None:
        Teller(None).tell(BatchRead(1))

    def test_a_sink_that_fails_is_logged_the_first_time_only(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        teller = Teller(Broken())
        for _ in range(3):
            teller.tell(BatchRead(1))
        (told,) = caplog.records
        assert (told.message, told.levelname) == ("metrics sink failed", "WARNING")
        assert told.exc_info is not None
