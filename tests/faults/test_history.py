"""The history of a queue whose workers are killed: its counts are those of the ledger."""

import asyncio
import os
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from tampu import CancelState, Concurrency, Queue
from tampu.admin.history import read_totals
from tampu.job import JobOptions
from tampu.metrics.history import Figures
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys
from tests.faults.conftest import QUEUE, StartWorker
from tests.faults.jobs import add_all, is_at_rest
from tests.faults.ledger import Kind, Ledger, Line, check
from tests.faults.worker_process import gate_of
from tests.servers import RunningServer
from tests.waiting import wait_until

KILLS = int(os.environ.get("TAMPU_FAULTS_KILLS", "3"))  # `make faults` kills more often
A_KILL = {"short": 600, "gated": 200, "bury": 25, "retry": 25, "snooze": 25, "stay": 10}
"""How many jobs of each kind are added for each kill."""
NOT_DONE = ("bury", "stay")
OPTIONS: dict[str, JobOptions] = {"gated": {"limits": [Concurrency(20)], "key": "k"}}


class Run:
    """Adds jobs of all kinds, and cancels those that never end."""

    def __init__(self, queue: Queue, ledger: Ledger) -> None:
        self._queue, self._ledger = queue, ledger
        self.tags: dict[str, list[int]] = {name: [] for name in A_KILL}
        self.cancelling = 0  # jobs that a worker was asked to stop

    async def add(self) -> list[str]:
        """Add jobs; the ids of those that never end."""
        for name, count in A_KILL.items():
            first = sum(map(len, self.tags.values()))
            tags = range(first, first + count)
            ids = await add_all(self._queue, self._ledger, name, tags, **OPTIONS.get(name, {}))
            self.tags[name] += tags
        return ids

    async def cancel(self, ids: list[str]) -> None:
        """Cancel some of these."""
        states = await self._queue.cancel_many(ids)
        assert CancelState.TOO_LATE not in states
        self.cancelling += states.count(CancelState.CANCELLING)

    async def until_done(self, share: float) -> None:
        """Wait until this share of all jobs that were added before is done."""
        ending = [len(tags) for name, tags in self.tags.items() if name not in NOT_DONE]
        left = (1 - share) * sum(count for name, count in A_KILL.items() if name not in NOT_DONE)
        await wait_until(
            lambda: self._ledger.count(Kind.DONE) >= sum(ending) - left,
            within=120,
            sentence="some more jobs are done",
        )

    def assert_exact(self, tasks: dict[str, Figures]) -> None:
        """What was counted is what happened."""
        for name in ("short", "gated"):
            figures = tasks[name]
            assert (figures.done, figures.failed, figures.dead) == (len(self.tags[name]), 0, 0)
        bury, retry, snooze, stay = (tasks[name] for name in ("bury", "retry", "snooze", "stay"))
        count = len(self.tags["bury"])
        assert (bury.done, bury.failed, bury.dead, bury.retried) == (0, count, count, 0)
        assert (retry.done, retry.dead, retry.failed) == (count, 0, retry.retried)
        assert (snooze.done, snooze.failed, snooze.dead) == (count, 0, 0)
        least, most = self._count_snoozes()
        assert least <= snooze.snoozed <= most
        assert retry.failed + bury.failed <= self._ledger.count(Kind.FAILED) - least
        assert (stay.done, stay.failed, stay.dead) == (0, 0, 0)
        assert stay.cancelled == self.cancelling > 0

    def _count_snoozes(self) -> tuple[int, int]:
        """How often jobs were snoozed, at least and at most.

        If a worker was killed between that and the next start, nobody knows whether it had told
        the server.
        """
        told, last, faults = Counter[bool](), dict[str, Line](), dict[str, float]()
        mine = set(map(str, self.tags["snooze"]))
        for line in self._ledger.lines():
            if line.kind is Kind.FAULT:
                faults[line.worker] = line.at
            elif line.tag in mine and line.kind not in {Kind.SENT, Kind.ADDED}:
                before = last.get(line.tag)
                if line.kind is Kind.STARTED and before is not None and before.kind is Kind.FAILED:
                    told[faults.get(before.worker, 0) < before.at] += 1
                last[line.tag] = line
        return told[True], told.total()


@pytest.mark.timeout(120 + 20 * KILLS)
async def test_counts_are_exact_although_workers_are_killed(
    running: RunningServer, queue: Queue, ledger: Ledger, start_worker: StartWorker
) -> None:
    rng, run = Random(7), Run(queue, ledger)  # noqa: S311 - who is killed
    gate_of(ledger, 1).touch()
    gate_of(ledger, 2).touch()
    workers = list(await asyncio.gather(*(start_worker(concurrency=25) for _ in range(3))))
    for _ in range(KILLS):
        staying = await run.add()
        await run.until_done(0.5)
        await run.cancel(staying[::2])
        await workers.pop(rng.randrange(len(workers))).kill()
        workers.append(await start_worker(concurrency=25))
        await run.until_done(1)
        await run.cancel(staying[1::2])
    await wait_until(lambda: is_at_rest(queue), within=60, sentence="all are settled")
    await asyncio.gather(*(process.stop() for process in workers))
    async with await connect(running.url) as server:
        async with await Lane.open(server, QueueKeys(QUEUE).stream) as lane:
            totals = await read_totals(lane, QueueKeys(QUEUE))
    dead = [letter.data for letter in await queue.dead.peek(len(run.tags["bury"]))]
    report = check(ledger.lines(), dead)
    assert report.lost == set(map(str, run.tags["stay"]))
    replace(report, lost=set()).assert_sound()
    assert totals.unknown == 0
    run.assert_exact(totals.tasks)
