"""Workers whose clock differs from the server's: their history is right by the server's."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from tampu.admin.history import failure_groups, processes_of, read_history
from tampu.consumer.recorder import Recorder
from tampu.consumer.settle import EndedAttempt, release
from tampu.metrics.history import Span, sum_figures
from tampu.outcome import Failed
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tampu.server.streams import server_time_ms
from tampu.util.clock import instant, now_ms
from tampu.wire.dead import Failure
from tests.contract.workers import KEYS, SOON, Gate, Harness
from tests.servers import RunningServer
from tests.unit.consumer.deliveries import delivery as make_delivery
from tests.waiting import wait_until

NEAR_MS = 120_000  # an hour off is far, whatever the machine does


@pytest.fixture
async def lane(running: RunningServer) -> AsyncIterator[Lane]:
    async with await connect(running.url) as server, await Lane.open(server, KEYS.stream) as opened:
        yield opened


class OffClock:
    """A clock of this machine that differs from the server's."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return now_ms() + self.ahead_ms


@pytest.fixture(params=[3_600_000, -3_600_000], ids=["ahead", "behind"])
def off_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> OffClock:
    """The clock of workers, an hour off."""
    clock = OffClock()
    clock.ahead_ms = request.param
    monkeypatch.setattr("tampu.consumer.recorder.now_ms", clock.now_ms)
    return clock


async def assert_times_are_right(lane: Lane, recorder: Recorder) -> None:
    """An attempt that waited for ten seconds is recorded as such, at the right minute."""
    server_ms = await server_time_ms(lane)
    assert abs(recorder.server_ms() - server_ms) < NEAR_MS
    waited = replace(make_delivery(), entry_id=b"%d-0" % (server_ms - 10_000))
    attempt = EndedAttempt(waited, Failed(Failure("ValueError", "no")), 1_000_000)
    recorder.note_attempt(attempt, release(waited))
    await recorder.flush()
    history = await read_history(lane, KEYS, Span.HOUR)
    recent = sum_figures(each.total for each in history.buckets[-3:])
    assert recent.wait.count == 1
    wait_s = recent.wait.quantile(0.5)
    assert wait_s is not None
    assert 9 < wait_s < NEAR_MS / 1000
    (group,) = await failure_groups(lane, KEYS)
    assert abs((group.last_at - instant(server_ms)).total_seconds()) < NEAR_MS / 1000


async def test_a_worker_whose_clock_is_off_records_by_the_server_s(
    lane: Lane, off_clock: OffClock
) -> None:
    recorder = Recorder(lane, KEYS)
    assert abs(recorder.server_ms() - await server_time_ms(lane)) > NEAR_MS, (
        "it does not know it yet"
    )
    recorder.learn_clock(await server_time_ms(lane))
    await assert_times_are_right(lane, recorder)


async def test_a_clock_that_is_set_while_a_worker_runs_is_noticed_with_the_next_flush(
    lane: Lane, off_clock: OffClock
) -> None:
    recorder = Recorder(lane, KEYS)
    recorder.learn_clock(await server_time_ms(lane))
    off_clock.ahead_ms = 0
    assert abs(recorder.server_ms() - await server_time_ms(lane)) > NEAR_MS
    await recorder.flush()
    await assert_times_are_right(lane, recorder)


@pytest.mark.usefixtures("off_clock")
async def test_running_jobs_are_reported_by_the_server_s_clock(
    harness: Harness, lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tampu.consumer.history.EVERY_S", 1.0)
    gate = Gate()
    worker = await harness.start_worker(gate)
    await harness.queue.add("x")
    await gate.until(1)

    async def is_reported() -> bool:
        return any(each.running for each in await processes_of(lane, KEYS))

    await wait_until(is_reported, within=SOON, sentence="its process reports the running job")
    (process,), now = await processes_of(lane, KEYS), instant(await server_time_ms(lane))
    for moment in (process.at, process.running[0].started_at):
        assert abs((now - moment).total_seconds()) < NEAR_MS / 1000
    gate.open.set()
    await worker.stop()
