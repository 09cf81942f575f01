"""What is counted of the shop."""

from tampu.demo.tally import Tally
from tampu.metrics.facts import Firings, JobBuried, JobEnded, Promotion, RetryScheduled, RunEnd
from tampu.wire.dead import BuryReason


def test_each_run_counts_once_whatever_it_ended_in() -> None:
    tally = Tally(["pack", "send"])
    tally.record([JobEnded("pack", 1, RunEnd.DONE, 5), JobEnded("send", 1, RunEnd.FAILED, 5)])
    tally.record([RetryScheduled("send", 2, 300), JobEnded("send", 2, RunEnd.FAILED, 5)])
    tally.record([JobBuried("send", BuryReason.RETRIES_EXHAUSTED, 2)])
    pack, send = tally.tasks["pack"], tally.tasks["send"]
    assert (pack.runs, pack.done, pack.retried, pack.dead) == (1, 1, 0, 0)
    assert (send.runs, send.done, send.retried, send.dead) == (2, 0, 1, 1)


def test_what_is_out_of_the_ordinary_is_news() -> None:
    tally = Tally(["send"])
    tally.record([JobEnded("send", 1, RunEnd.DONE, 5), Firings(0), Promotion(1, 0)])
    assert tally.news == []
    tally.record([RetryScheduled("send", 2, 300), Firings(1)])
    tally.record([JobBuried("send", BuryReason.UNRECOVERABLE, 2)])
    assert tally.news == [
        "send failed; attempt 2 follows in 300 ms",
        "a schedule has fired",
        "send is a dead letter after attempt 2: unrecoverable",
    ]
