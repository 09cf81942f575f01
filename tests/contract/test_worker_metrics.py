"""Facts that a worker records."""

from collections.abc import Sequence

import pytest

from tampu.backoff import Backoff
from tampu.metrics import (
    BatchRead,
    Fact,
    JobBuried,
    JobEnded,
    LeadChanged,
    MemorySink,
    OutcomeKind,
    Promotion,
    RetryScheduled,
)
from tampu.outcome import Bury, Snooze
from tampu.wire.dead import BuryReason
from tests.contract.workers import SOON, Boom, Calls, Gate, Harness, envelope
from tests.waiting import wait_until


async def until_recorded(sink: MemorySink, kind: type[Fact], count: int = 1) -> None:
    await wait_until(
        lambda: len(sink.of(kind)) >= count, within=SOON, sentence=f"{kind.__name__} is recorded"
    )


class TestAttempts:
    async def test_jobs_that_succeed_are_recorded(self, harness: Harness) -> None:
        sink = MemorySink()
        await harness.start_worker(Calls(), metrics=sink)
        await harness.queue.add_each("greet", range(5))
        await harness.until_settled()
        ended = sink.of(JobEnded)
        assert [(each.name, each.attempt, each.outcome) for each in ended] == [
            ("greet", 1, OutcomeKind.DONE)
        ] * 5
        assert all(0 <= each.duration_us < 10_000_000 for each in ended)
        assert sum(each.size for each in sink.of(BatchRead)) == 5
        assert sum(each.taken_over for each in sink.of(BatchRead)) == 0
        assert not sink.of(RetryScheduled)
        assert not sink.of(JobBuried)

    async def test_a_retried_job_is_recorded(self, harness: Harness) -> None:
        sink = MemorySink()
        await harness.start_worker(Boom(times=2), metrics=sink, backoff=Backoff.exponential(0.01))
        await harness.queue.add("greet")
        await until_recorded(sink, JobEnded, 3)
        outcomes = [(each.attempt, each.outcome) for each in sink.of(JobEnded)]
        assert outcomes == [(1, OutcomeKind.FAILED), (2, OutcomeKind.FAILED), (3, OutcomeKind.DONE)]
        assert sink.of(RetryScheduled) == [
            RetryScheduled("greet", 2, 10),
            RetryScheduled("greet", 3, 20),
        ]

    async def test_a_buried_job_is_recorded(self, harness: Harness) -> None:
        sink = MemorySink()
        await harness.start_worker(Boom(), metrics=sink, attempts=2, backoff=Backoff.fixed(0))
        await harness.queue.add("greet")
        await until_recorded(sink, JobBuried)
        assert [each.outcome for each in sink.of(JobEnded)] == [OutcomeKind.FAILED] * 2
        assert [each.attempt for each in sink.of(RetryScheduled)] == [2]
        assert sink.of(JobBuried) == [JobBuried("greet", BuryReason.RETRIES_EXHAUSTED, 2)]

    @pytest.mark.parametrize(
        ("error", "kind"),
        [(Snooze(0.01), OutcomeKind.SNOOZED), (Bury(), OutcomeKind.UNRECOVERABLE)],
    )
    async def test_snoozed_and_buried_jobs_are_recorded(
        self, harness: Harness, error: Exception, kind: OutcomeKind
    ) -> None:
        sink = MemorySink()
        await harness.start_worker(Boom(error, times=1), metrics=sink)
        await harness.queue.add("greet")
        await until_recorded(sink, JobEnded)
        assert sink.of(JobEnded)[0].outcome is kind
        await harness.until_settled()
        assert sink.of(RetryScheduled) == []

    async def test_a_released_job_is_recorded(self, harness: Harness) -> None:
        sink, gate = MemorySink(), Gate()
        worker = await harness.start_worker(gate, metrics=sink)
        await harness.queue.add("greet")
        await gate.until(1)
        await worker.stop(grace=0)
        assert [each.outcome for each in sink.of(JobEnded)] == [OutcomeKind.RELEASED]
        assert sink.of(RetryScheduled) == []


class TestRefusedEntries:
    @pytest.mark.parametrize(
        ("fields", "reason", "attempt"),
        [
            ({b"n": b"odd"}, BuryReason.MALFORMED, 0),
            ({b"n": b"odd", b"d": envelope(bytes(3000))}, BuryReason.OVERSIZE_PAYLOAD, 0),
            ({b"n": b"odd", b"d": b"\xc1"}, BuryReason.DECODE_FAILED, 0),
            ({b"n": b"odd", b"d": envelope(attempt=7)}, BuryReason.RETRIES_EXHAUSTED, 7),
        ],
        ids=["malformed", "oversize", "undecodable", "spent"],
    )
    async def test_a_refused_entry_is_recorded_as_read_and_buried_but_not_as_ended(
        self, harness: Harness, fields: dict[bytes, bytes], reason: BuryReason, attempt: int
    ) -> None:
        sink = MemorySink()
        await harness.start_worker(Calls(), metrics=sink, max_payload=2000, attempts=5)
        harness.add_entry(fields)
        await until_recorded(sink, JobBuried)
        assert sink.of(JobBuried) == [JobBuried("odd", reason, attempt)]
        assert sink.of(JobEnded) == []
        assert [each.size for each in sink.of(BatchRead)] == [1]

    async def test_entries_taken_over_are_recorded_as_such(self, harness: Harness) -> None:
        harness.hold_as_peer(harness.add_entry({b"d": envelope()}), deliveries=1)
        sink = MemorySink()
        await harness.start_worker(Calls(), metrics=sink)
        await until_recorded(sink, JobEnded)
        assert sink.of(BatchRead) == [BatchRead(1, taken_over=1)]
        assert sink.of(JobEnded)[0].attempt == 2


class TestServices:
    async def test_promotions_and_the_lead_are_recorded(self, harness: Harness) -> None:
        sink = MemorySink()
        await harness.queue.add("greet", delay=0.05)
        await harness.queue.add("greet", delay=60)
        worker = await harness.start_worker(Calls(), metrics=sink, schedule=False)
        await wait_until(
            lambda: sum(each.moved for each in sink.of(Promotion)) == 1,
            within=SOON,
            sentence="a promotion is recorded",
        )
        assert sink.of(Promotion)[-1].remaining == 1
        await worker.stop()
        assert sink.of(LeadChanged) == [
            LeadChanged("promoter", leads=True),
            LeadChanged("promoter", leads=False),
        ]

    async def test_a_worker_that_does_not_promote_records_no_promotion(
        self, harness: Harness
    ) -> None:
        sink = MemorySink()
        await harness.queue.add("greet", delay=0.001)
        await harness.start_worker(Calls(), metrics=sink, promote=False, schedule=False)
        await harness.queue.add("greet")
        await until_recorded(sink, JobEnded)
        assert not sink.of(Promotion)
        assert not sink.of(LeadChanged)
        assert (await harness.queue.counts()).delayed == 1


class TestTrouble:
    async def test_a_sink_that_fails_is_logged_once_and_fails_no_job(
        self, harness: Harness, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Broken:
            def record(self, facts: Sequence[Fact]) -> None:
                raise ValueError("no room for facts")

        calls = Calls()
        await harness.start_worker(calls, metrics=Broken())
        await harness.queue.add_each("greet", range(20))
        await harness.until_settled()
        assert len(calls) == 20
        assert len([each for each in caplog.messages if each.startswith("metrics sink ")]) == 1
