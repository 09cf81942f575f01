"""Raw workers: payloads and results are bytes that nobody decodes."""

from typing import Any

from msgspec import Raw

from tampu.job import Job
from tampu.outcome import NO_RESULT
from tests.contract.workers import Boom, Calls, Harness

ODD = [b"\xc1", b"", b"\x91" * 300]


class Reverse(Calls):
    """A handler that reverses bytes."""

    async def __call__(self, job: Job[Any]) -> object:
        self.jobs.append(job)
        return Raw(job.data[::-1]) if job.data else NO_RESULT


async def test_payloads_and_results_stay_bytes(harness: Harness) -> None:
    reverse = Reverse()
    worker = await harness.start_worker(reverse, raw=True, store_results=True, name="host-7")
    assert worker.id.startswith("t-host-7-")
    jobs = await harness.queue.add_each("n", [Raw(data) for data in ODD])
    await harness.until_settled()
    assert sorted(reverse.data) == sorted(ODD)
    stored = await harness.queue.raw_results([*(job.id for job in jobs), "unknown"])
    assert stored == [b"\xc1", None, b"\x91" * 300, None]
    assert await harness.queue.raw_results([]) == []


async def test_dead_letters_with_raw_bytes_can_be_replayed(harness: Harness) -> None:
    await harness.start_worker(Boom(times=1), raw=True, attempts=1)
    job = await harness.queue.add("n", Raw(b"\xc1"))
    (letter,) = await harness.dead_letters()
    assert (letter.job_id, letter.data) == (job.id, None)
    assert letter.source_id.partition("-")[0].isdecimal()
    assert await harness.queue.dead.replay() == 1
    await harness.until_settled()
    assert await harness.queue.dead.peek() == []
