"""Attempts are counted, and the app's own sink still gets everything."""

from tampu.cli.worker.process import RunCounter
from tampu.metrics import BatchRead, JobEnded, MemorySink, OutcomeKind

RUN = JobEnded("x", 1, OutcomeKind.DONE, 5)


def test_the_counter_reports_when_the_limit_is_reached() -> None:
    reached: list[bool] = []
    sink = MemorySink()
    counter = RunCounter(sink, limit=3, on_limit=lambda: reached.append(True))
    counter.record([RUN, BatchRead(5), RUN])
    assert reached == []
    counter.record([RUN])
    assert reached == [True]
    assert (len(sink.of(JobEnded)), len(sink.of(BatchRead))) == (3, 1)


def test_without_a_limit_it_never_reports() -> None:
    reached: list[bool] = []
    counter = RunCounter(None, limit=None, on_limit=lambda: reached.append(True))
    counter.record([RUN] * 1000)
    assert reached == []
