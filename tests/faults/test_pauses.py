"""Workers that do not answer for a while: stopped by the system, or by their own handlers."""

from pathlib import Path

from tampu import Queue
from tampu.worker import Worker
from tests.faults.conftest import QUEUE, Hire
from tests.faults.ledger import Kind, Ledger, check
from tests.faults.worker_process import Deeds
from tests.servers import RunningServer
from tests.waiting import wait_until

KINDS = ("value", "bury", "retry")
EACH = 10
DOUBT_S = 3.0  # of a worker with the default lease


async def add(queue: Queue, ledger: Ledger, name: str, tag: int) -> str:
    ledger.sent(tag)
    job = await queue.add(name, tag)
    ledger.added(tag)
    return job.id


async def is_at_rest(queue: Queue) -> bool:
    counts = await queue.counts()
    return counts.waiting == counts.active == counts.delayed == 0


async def test_a_worker_that_was_stopped_for_longer_than_its_lease_disturbs_nobody(
    running: RunningServer, queue: Queue, ledger: Ledger, hire: Hire, tmp_path: Path
) -> None:
    stopped = await hire(lease="1s", store_results=True)
    names = [name for name in KINDS for _ in range(EACH)]
    ids = [await add(queue, ledger, name, tag) for tag, name in enumerate(names)]
    await wait_until(
        lambda: ledger.count(Kind.STARTED) == len(ids), within=10, sentence="all jobs are running"
    )
    stopped.pause()
    deeds = Deeds(ledger, lambda: other.id)
    async with Worker(QUEUE, deeds.by_name(), running.url, lease="1s", store_results=True) as other:
        await wait_until(lambda: is_at_rest(queue), within=10, sentence="another has done them")
    values = await queue.results(ids[:EACH])
    assert set(values.values()) == {other.id}
    settled = await queue.counts()
    assert settled.dead == EACH

    ended = ledger.count(Kind.DONE) + ledger.count(Kind.FAILED)
    (tmp_path / "ledger.gate").touch()
    stopped.resume()
    await wait_until(
        lambda: ledger.count(Kind.DONE) + ledger.count(Kind.FAILED) == ended + len(ids),
        within=10,
        sentence="the stopped worker has ended its runs too",
    )
    new_id = await add(queue, ledger, "value", len(ids))
    assert await queue.result(new_id, timeout=10) == stopped.id
    await stopped.stop()  # behind which nothing is left to be settled

    assert await queue.results(ids[:EACH]) == values
    assert await queue.counts() == settled
    report = check(ledger.lines(), [letter.data for letter in await queue.dead.peek(100)])
    report.assert_sound()
    runs = [report.runs[str(tag)] for tag in range(len(ids))]
    assert runs == [2] * EACH + [2] * EACH + [3] * EACH


async def test_a_handler_that_keeps_the_interpreter_to_itself_runs_once(
    running: RunningServer, queue: Queue, ledger: Ledger, hire: Hire
) -> None:
    busy = await hire()
    await add(queue, ledger, "hold", 0)
    await wait_until(lambda: ledger.count(Kind.STARTED) == 1, within=10, sentence="it is running")
    deeds = Deeds(ledger, lambda: other.id)
    async with Worker(QUEUE, deeds.by_name(), running.url) as other:
        await wait_until(lambda: is_at_rest(queue), within=40, sentence="it is done")
    await busy.stop()
    report = check(ledger.lines())
    report.assert_sound()
    assert report.runs == {"0": 1}
    began, ended = (line for line in ledger.lines() if line.worker == busy.id)
    assert ended.at - began.at > DOUBT_S
