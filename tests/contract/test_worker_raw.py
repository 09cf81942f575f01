"""Payloads and results that are nobody's MessagePack: bytes in, bytes out."""

from typing import Any

from msgspec import Raw

from tampu.job import Job
from tampu.outcome import NO_RESULT
from tests.contract.workers import Boom, Calls, Crew

ODD = [b"\xc1", b"", b"\x91" * 300]


class Reverse(Calls):
    """A handler of bytes."""

    async def __call__(self, job: Job[Any]) -> object:
        self.jobs.append(job)
        return Raw(job.data[::-1]) if job.data else NO_RESULT


async def test_bytes_come_and_go_as_they_are(crew: Crew) -> None:
    reverse = Reverse()
    worker = await crew.hire(reverse, raw=True, store_results=True, name="host-7")
    assert worker.id.startswith("t-host-7-")
    jobs = await crew.queue.add_each("n", [Raw(data) for data in ODD])
    await crew.settled()
    assert sorted(reverse.data) == sorted(ODD)
    stored = await crew.queue.raw_results([*(job.id for job in jobs), "unknown"])
    assert stored == [b"\xc1", None, b"\x91" * 300, None]
    assert await crew.queue.raw_results([]) == []


async def test_dead_letters_of_bytes_are_put_back(crew: Crew) -> None:
    await crew.hire(Boom(times=1), raw=True, attempts=1)
    job = await crew.queue.add("n", Raw(b"\xc1"))
    (letter,) = await crew.dead()
    assert (letter.job_id, letter.data) == (job.id, None)
    assert letter.source_id.partition("-")[0].isdecimal()
    assert await crew.queue.dead.replay() == 1
    await crew.settled()
    assert await crew.queue.dead.peek() == []
