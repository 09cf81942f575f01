"""Runs are counted, and the user's own sink hears of everything."""

from tampu.cli.working.tally import Tally
from tampu.metrics import BatchRead, JobEnded, MemorySink, RunEnd

RUN = JobEnded("x", 1, RunEnd.DONE, 5)


def test_enough_is_said_when_so_many_have_run() -> None:
    said: list[bool] = []
    sink = MemorySink()
    tally = Tally(sink, most=3, enough=lambda: said.append(True))
    tally.record([RUN, BatchRead(5), RUN])
    assert said == []
    tally.record([RUN])
    assert said == [True]
    assert (len(sink.of(JobEnded)), len(sink.of(BatchRead))) == (3, 1)


def test_without_a_limit_it_is_never_enough() -> None:
    said: list[bool] = []
    tally = Tally(None, most=None, enough=lambda: said.append(True))
    tally.record([RUN] * 1000)
    assert said == []
