"""Workers that do not answer for a while: stopped by the system, or by their own handlers."""

import asyncio

from tampu import Queue
from tampu.consumer.options import WorkerOptions
from tampu.worker import Worker
from tests.faults.conftest import QUEUE, StartWorker
from tests.faults.jobs import add_all, is_at_rest
from tests.faults.ledger import Kind, Ledger, check
from tests.faults.worker_process import Handlers, gate_of
from tests.servers import RunningServer
from tests.waiting import wait_until

KINDS = ("value", "bury", "retry")
EACH = 10
DOUBT_S = 3.0  # of a worker with the default lease


async def test_a_worker_frozen_past_its_lease_does_not_settle_jobs_of_others(
    running: RunningServer, queue: Queue, ledger: Ledger, start_worker: StartWorker
) -> None:
    stopped = await start_worker(lease="1s", store_results=True)
    ids: list[str] = []
    for name in KINDS:
        ids += await add_all(queue, ledger, name, range(len(ids), len(ids) + EACH))
    await until_told(ledger, Kind.STARTED, len(ids))
    stopped.pause()
    handlers = Handlers(ledger, lambda: other.id)
    options = WorkerOptions(concurrency=len(ids), lease="1s", store_results=True)
    async with Worker(QUEUE, handlers.by_name(), running.url, **options) as other:
        # Every second job is settled by the other when the stopped worker comes back to it, and
        # every second one still runs there. Retries among them must be over: whoever reads first
        # would run them.
        await until_told(ledger, Kind.DONE, EACH)
        await until_counts(queue, active=len(ids) // 2)
        values = await queue.results(ids[:EACH])
        assert list(values.values()) == [other.id] * (EACH // 2)
        settled = await queue.counts()
        assert settled.dead == EACH // 2
        gate_of(ledger, 1).touch()
        stopped.resume()
        await until_ended_by(ledger, stopped.id, len(ids))
        await stopped.stop()  # behind which nothing is left to be settled
        assert await queue.results(ids[:EACH]) == values
        assert await queue.counts() == settled

        gate_of(ledger, 2).touch()
        await until_counts(queue, active=0)
    results = await queue.results(ids[:EACH])
    assert list(results.values()) == [other.id] * EACH
    report = check(ledger.lines(), [letter.data for letter in await queue.dead.peek(100)])
    report.assert_sound()
    assert (await queue.counts()).dead == EACH
    runs = [report.runs[str(tag)] for tag in range(len(ids))]
    assert runs == [2] * EACH + [2] * EACH + [3] * EACH


async def test_a_worker_that_was_stopped_goes_on_working(
    queue: Queue, ledger: Ledger, start_worker: StartWorker
) -> None:
    gate_of(ledger, 1).touch()
    worker = await start_worker(lease="1s", store_results=True)
    (first_id,) = await add_all(queue, ledger, "value", [0])
    await queue.job(first_id).result(10)
    worker.pause()
    await asyncio.sleep(1.5)  # longer than its lease: time itself is the subject
    (new_id,) = await add_all(queue, ledger, "value", [1])
    worker.resume()
    assert await queue.job(new_id).result(10) == worker.id
    await worker.stop()
    check(ledger.lines()).assert_sound()


async def until_told(ledger: Ledger, kind: Kind, count: int) -> None:
    await wait_until(
        lambda: ledger.count(kind) == count, within=40, sentence=f"{count} jobs have {kind.value}"
    )


async def until_counts(queue: Queue, *, active: int) -> None:
    """Return when nothing waits and so many jobs run."""

    async def holds() -> bool:
        counts = await queue.counts()
        return (counts.waiting, counts.active, counts.delayed) == (0, active, 0)

    await wait_until(holds, within=40, sentence=f"{active} jobs run and no other is left")


async def until_ended_by(ledger: Ledger, worker: str, count: int) -> None:
    def ended() -> int:
        told = (line for line in ledger.lines() if line.worker == worker)
        return sum(line.kind in {Kind.DONE, Kind.FAILED} for line in told)

    await wait_until(lambda: ended() == count, within=40, sentence="it has ended its runs too")


async def test_a_handler_that_keeps_the_interpreter_to_itself_runs_once(
    running: RunningServer, queue: Queue, ledger: Ledger, start_worker: StartWorker
) -> None:
    busy = await start_worker()
    await add_all(queue, ledger, "hold", [0])
    await wait_until(lambda: ledger.count(Kind.STARTED) == 1, within=40, sentence="it is running")
    handlers = Handlers(ledger, lambda: other.id)
    async with Worker(QUEUE, handlers.by_name(), running.url) as other:
        await wait_until(lambda: is_at_rest(queue), within=40, sentence="it is done")
    await busy.stop()
    report = check(ledger.lines())
    report.assert_sound()
    assert report.runs == {"0": 1}
    began, ended = (line for line in ledger.lines() if line.worker == busy.id)
    assert ended.at - began.at > DOUBT_S
