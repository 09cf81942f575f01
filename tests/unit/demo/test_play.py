"""What is counted while the shop runs."""

from tampu.demo.play import ShopCounts
from tampu.metrics.facts import Firings, JobBuried, JobEnded, OutcomeKind, Promotion, RetryScheduled
from tampu.wire.dead import BuryReason


def test_each_attempt_counts_once_whatever_its_outcome() -> None:
    counts = ShopCounts(["pack", "send"])
    counts.record(
        [JobEnded("pack", 1, OutcomeKind.DONE, 5), JobEnded("send", 1, OutcomeKind.FAILED, 5)]
    )
    counts.record([RetryScheduled("send", 2, 300), JobEnded("send", 2, OutcomeKind.FAILED, 5)])
    counts.record([JobBuried("send", BuryReason.RETRIES_EXHAUSTED, 2)])
    pack, send = counts.tasks["pack"], counts.tasks["send"]
    assert (pack.runs, pack.done, pack.retried, pack.dead) == (1, 1, 0, 0)
    assert (send.runs, send.done, send.retried, send.dead) == (2, 0, 1, 1)


def test_retries_burials_and_fires_are_news() -> None:
    counts = ShopCounts(["send"])
    counts.record([JobEnded("send", 1, OutcomeKind.DONE, 5), Firings(0), Promotion(1, 0)])
    assert counts.news == []
    counts.record([RetryScheduled("send", 2, 300), Firings(1)])
    counts.record([JobBuried("send", BuryReason.UNRECOVERABLE, 2)])
    assert counts.news == [
        "send failed; attempt 2 follows in 300 ms",
        "a schedule fired",
        "send was buried after attempt 2: unrecoverable",
    ]
