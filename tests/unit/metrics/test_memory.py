"""The sink that keeps what it is told."""

from tampu.metrics import BatchRead, JobEnded, LeadChanged, MemorySink, RunEnd


class TestMemorySink:
    def test_facts_are_kept_in_order_and_told_by_kind(self) -> None:
        sink = MemorySink()
        sink.record([BatchRead(1), JobEnded("a", 1, RunEnd.DONE, 5)])
        sink.record([BatchRead(2, taken_over=2)])
        assert sink.of(BatchRead) == [BatchRead(1), BatchRead(2, taken_over=2)]
        assert sink.of(JobEnded) == [JobEnded("a", 1, RunEnd.DONE, 5)]
        assert sink.of(LeadChanged) == []

    def test_the_oldest_facts_go_when_there_are_too_many(self) -> None:
        sink = MemorySink(most=2)
        sink.record([BatchRead(size) for size in range(5)])
        assert sink.of(BatchRead) == [BatchRead(3), BatchRead(4)]
