"""Sinks: where facts go."""

from collections.abc import Sequence

import pytest

from tampu.errors import OptionError
from tampu.metrics import BatchRead, Fact, JobEnded, LeadChanged, MemorySink, OutcomeKind
from tampu.metrics.facts import SafeSink, check_sink


class BrokenSink:
    """A sink that raises."""

    def record(self, facts: Sequence[Fact]) -> None:
        raise OSError("no room")


class TestMemorySink:
    def test_facts_are_kept_in_order_and_found_by_kind(self) -> None:
        sink = MemorySink()
        sink.record([BatchRead(1), JobEnded("a", 1, OutcomeKind.DONE, 5)])
        sink.record([BatchRead(2, taken_over=2)])
        assert sink.of(BatchRead) == [BatchRead(1), BatchRead(2, taken_over=2)]
        assert sink.of(JobEnded) == [JobEnded("a", 1, OutcomeKind.DONE, 5)]
        assert sink.of(LeadChanged) == []

    def test_the_oldest_facts_are_dropped_when_there_are_too_many(self) -> None:
        sink = MemorySink(most=2)
        sink.record([BatchRead(size) for size in range(5)])
        assert sink.of(BatchRead) == [BatchRead(3), BatchRead(4)]


class TestSafeSink:
    def test_facts_reach_the_sink_together(self) -> None:
        sink = MemorySink()
        SafeSink(sink).record([BatchRead(1), BatchRead(2)])
        assert sink.of(BatchRead) == [BatchRead(1), BatchRead(2)]

    def test_without_a_sink_nothing_happens(self) -> None:
        SafeSink(None).record([BatchRead(1)])

    def test_a_sink_that_fails_is_logged_the_first_time_only(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        sink = SafeSink(BrokenSink())
        for _ in range(3):
            sink.record([BatchRead(1)])
        (record,) = caplog.records
        assert record.message.startswith("metrics sink <")
        assert record.levelname == "WARNING"
        assert record.exc_info is not None


def test_a_sink_must_have_a_record_method() -> None:
    check_sink("metrics", MemorySink())
    check_sink("metrics", None)
    with pytest.raises(OptionError, match="expected a sink"):
        check_sink("metrics", print)
