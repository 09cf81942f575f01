"""What a sink is told by a worker on real servers."""

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
    Promotion,
    RetryScheduled,
    RunEnd,
)
from tampu.outcome import Bury, Snooze
from tampu.wire.dead import BuryReason
from tests.contract.workers import SOON, Boom, Calls, Crew, Gate, envelope
from tests.waiting import wait_until


async def until_told(sink: MemorySink, kind: type[Fact], count: int = 1) -> None:
    await wait_until(
        lambda: len(sink.of(kind)) >= count, within=SOON, sentence=f"{kind.__name__} is told"
    )


class TestRuns:
    async def test_jobs_that_succeed(self, crew: Crew) -> None:
        sink = MemorySink()
        await crew.hire(Calls(), metrics=sink)
        await crew.queue.add_each("greet", range(5))
        await crew.settled()
        ended = sink.of(JobEnded)
        assert [(each.name, each.attempt, each.end) for each in ended] == [
            ("greet", 1, RunEnd.DONE)
        ] * 5
        assert all(0 <= each.duration_us < 10_000_000 for each in ended)
        assert sum(each.size for each in sink.of(BatchRead)) == 5
        assert sum(each.taken_over for each in sink.of(BatchRead)) == 0
        assert not sink.of(RetryScheduled)
        assert not sink.of(JobBuried)

    async def test_a_job_that_is_retried(self, crew: Crew) -> None:
        sink = MemorySink()
        await crew.hire(Boom(times=2), metrics=sink, backoff=Backoff.exponential(0.01))
        await crew.queue.add("greet")
        await until_told(sink, JobEnded, 3)
        ends = [(each.attempt, each.end) for each in sink.of(JobEnded)]
        assert ends == [(1, RunEnd.FAILED), (2, RunEnd.FAILED), (3, RunEnd.DONE)]
        assert sink.of(RetryScheduled) == [
            RetryScheduled("greet", 2, 10),
            RetryScheduled("greet", 3, 20),
        ]

    async def test_a_job_that_is_given_up(self, crew: Crew) -> None:
        sink = MemorySink()
        await crew.hire(Boom(), metrics=sink, attempts=2, backoff=Backoff.fixed(0))
        await crew.queue.add("greet")
        await until_told(sink, JobBuried)
        assert [each.end for each in sink.of(JobEnded)] == [RunEnd.FAILED] * 2
        assert [each.attempt for each in sink.of(RetryScheduled)] == [2]
        assert sink.of(JobBuried) == [JobBuried("greet", BuryReason.RETRIES_EXHAUSTED, 2)]

    @pytest.mark.parametrize(
        ("error", "end"), [(Snooze(0.01), RunEnd.PUT_OFF), (Bury(), RunEnd.HOPELESS)]
    )
    async def test_what_a_handler_says_about_its_job(
        self, crew: Crew, error: Exception, end: RunEnd
    ) -> None:
        sink = MemorySink()
        await crew.hire(Boom(error, times=1), metrics=sink)
        await crew.queue.add("greet")
        await until_told(sink, JobEnded)
        assert sink.of(JobEnded)[0].end is end
        await crew.settled()
        assert sink.of(RetryScheduled) == []

    async def test_a_run_that_the_stop_ended(self, crew: Crew) -> None:
        sink, gate = MemorySink(), Gate()
        worker = await crew.hire(gate, metrics=sink)
        await crew.queue.add("greet")
        await gate.until(1)
        await worker.stop(grace=0)
        assert [each.end for each in sink.of(JobEnded)] == [RunEnd.ABANDONED]
        assert sink.of(RetryScheduled) == []


class TestEntriesThatAreNotRun:
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
    async def test_they_are_read_and_buried_and_no_run_is_told(
        self, crew: Crew, fields: dict[bytes, bytes], reason: BuryReason, attempt: int
    ) -> None:
        sink = MemorySink()
        await crew.hire(Calls(), metrics=sink, max_payload=2000, attempts=5)
        crew.put(fields)
        await until_told(sink, JobBuried)
        assert sink.of(JobBuried) == [JobBuried("odd", reason, attempt)]
        assert sink.of(JobEnded) == []
        assert [each.size for each in sink.of(BatchRead)] == [1]

    async def test_what_was_taken_over_is_told_as_such(self, crew: Crew) -> None:
        crew.held_by_peer(crew.put({b"d": envelope()}), deliveries=1)
        sink = MemorySink()
        await crew.hire(Calls(), metrics=sink)
        await until_told(sink, JobEnded)
        assert sink.of(BatchRead) == [BatchRead(1, taken_over=1)]
        assert sink.of(JobEnded)[0].attempt == 2


class TestServices:
    async def test_promotions_and_the_lead_are_told(self, crew: Crew) -> None:
        sink = MemorySink()
        await crew.queue.add("greet", delay=0.05)
        await crew.queue.add("greet", delay=60)
        worker = await crew.hire(Calls(), metrics=sink, schedule=False)
        await wait_until(
            lambda: sum(each.moved for each in sink.of(Promotion)) == 1,
            within=SOON,
            sentence="a promotion is told",
        )
        assert sink.of(Promotion)[-1].remaining == 1
        await worker.stop()
        assert sink.of(LeadChanged) == [
            LeadChanged("promoter", leads=True),
            LeadChanged("promoter", leads=False),
        ]

    async def test_a_worker_that_does_not_promote_tells_of_no_promotion(self, crew: Crew) -> None:
        sink = MemorySink()
        await crew.queue.add("greet", delay=0.001)
        await crew.hire(Calls(), metrics=sink, promote=False, schedule=False)
        await crew.queue.add("greet")
        await until_told(sink, JobEnded)
        assert not sink.of(Promotion)
        assert not sink.of(LeadChanged)
        assert (await crew.queue.counts()).delayed == 1


class TestTrouble:
    async def test_a_sink_that_fails_is_logged_once_and_fails_no_job(
        self, crew: Crew, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Broken:
            def record(self, facts: Sequence[Fact]) -> None:
                raise ValueError("no room for facts")

        calls = Calls()
        await crew.hire(calls, metrics=Broken())
        await crew.queue.add_each("greet", range(20))
        await crew.settled()
        assert len(calls) == 20
        assert caplog.messages.count("metrics sink failed") == 1
