"""What tests of results share."""

import asyncio
from collections.abc import Sequence

from tampu.results import ResultReader
from tampu.server.lane import Lane
from tampu.server.scripts.adding import AddKeys, AddRequest, PlainJobs, add
from tampu.server.scripts.settling import (
    BuriedEntry,
    Claim,
    DeadTarget,
    FinishedEntry,
    ResultTarget,
    bury,
    finish,
)
from tampu.server.streams import create_group, pack_read, read_entries
from tampu.wire.dead import BuryReason, Failure
from tampu.wire.keys import QueueKeys
from tampu.wire.result import NOTICE_FIELD, encode_failure, encode_notice, encode_result
from tests.servers import RunningServer
from tests.waiting import wait_until

KEYS = QueueKeys("results")
ADDING = AddKeys(
    stream=KEYS.stream,
    delayed=KEYS.delayed,
    memory=KEYS.producer("results-of-tests"),
    wakeup=KEYS.wakeup,
    gate=KEYS.gate,
    control=KEYS.control,
    notices=KEYS.notices,
)
CLAIM = Claim(KEYS.stream, b"default", KEYS.gate)
SOON = 60.0


class ManualWorker:
    """Adds, reads and settles jobs with the scripts alone."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._number = 0

    async def take(self, count: int) -> list[bytes]:
        """Add jobs and read them; the ids of their entries."""
        await create_group(self._lane, KEYS.stream, CLAIM.group)
        self._number += 1
        jobs = PlainJobs([b"e", b""] * count)
        await add(self._lane, AddRequest(keys=ADDING, jobs=jobs, number=self._number))
        read = pack_read(KEYS.stream, group=CLAIM.group, consumer=b"c", count=count, block_ms=0)
        return [entry_id for entry_id, _ in read_entries(await self._lane.send(read))]

    async def finish(self, values: dict[str, object]) -> None:
        """Have jobs end with these results."""
        entry_ids = await self.take(len(values))
        entries = [
            FinishedEntry(entry_id, encode_result(value, max_bytes=1000), KEYS.result(job_id))
            for entry_id, (job_id, value) in zip(entry_ids, values.items(), strict=True)
        ]
        shelf = ResultTarget(notices=KEYS.notices, notice=encode_notice(list(values)), ttl_s=60)
        assert await finish(self._lane, CLAIM, entries, target=shelf) == b"1" * len(values)

    async def bury(self, job_id: str, reason: BuryReason, failure: Failure | None) -> None:
        """Have a job end among the dead letters."""
        (entry_id,) = await self.take(1)
        told = encode_failure(reason, failure)
        buried = BuriedEntry(entry_id, [b"d", b"e"], failure=told, key=KEYS.failure(job_id))
        yard = DeadTarget(dead=KEYS.dead, notices=KEYS.notices, max_len=0, ttl_s=60)
        notice = encode_notice([job_id])
        assert await bury(self._lane, CLAIM, [buried], target=yard, notice=notice) == b"1"


def readers() -> int:
    """How many readers of notices run in this loop."""
    return sum(task.get_name() == "tampu-results" for task in asyncio.all_tasks())


def calls(running: RunningServer, command: str) -> int:
    """How often the server was asked since the last reset."""
    with running.admin() as admin:
        stats = admin.info("commandstats")
    return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])


def reset_calls(running: RunningServer) -> None:
    with running.admin() as admin:
        admin.config_resetstat()


def store(running: RunningServer, job_id: str, value: object) -> None:
    """What `finish` keeps and tells, over a connection that was not there before."""
    with running.admin() as admin, admin.pipeline(transaction=True) as step:
        step.set(KEYS.result(job_id), encode_result(value, max_bytes=1000))
        step.xadd(KEYS.notices, {NOTICE_FIELD: encode_notice([job_id])})
        step.execute()


async def until_blocked(running: RunningServer, reads: int = 1) -> None:
    """Return when so many blocking reads wait at the server."""

    def blocked() -> bool:
        with running.admin() as admin:
            return int(admin.info("clients")["blocked_clients"]) == reads

    await wait_until(blocked, within=SOON, sentence="the reader waits at the server")


async def waiting(
    reader: ResultReader, running: RunningServer, job_ids: Sequence[str], timeout_s: float = 20.0
) -> list[asyncio.Task[object]]:
    """Tasks that wait for results, past their first look."""
    reset_calls(running)
    tasks = [asyncio.create_task(reader.wait(job_id, timeout_s)) for job_id in job_ids]

    def looked() -> bool:
        names = [task.get_name() for task in asyncio.all_tasks()]
        known = set(reader._waiters.all_ids()) == set(job_ids)
        return known and "tampu-results-read" not in names

    await wait_until(looked, within=SOON, sentence="all have looked")
    await until_blocked(running)
    return tasks
