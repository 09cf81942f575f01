"""Workers of both worlds on one queue, under load, coming and going; and what all of them did."""

import asyncio
import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tampu import Backoff, Every, Job, Missed, Worker
from tampu.wire.event import EventKind, decode_event
from tampu.wire.holders import CONSUMER_PREFIX
from tests.interop.peer.values import packed
from tests.interop.shared_queue import SharedQueue

BACKOFF_MS: Final = 20
IDLE_MS: Final = 4_000  # what a worker left behind when it ended is taken by others after that
INTERVALS_MS: Final = (90, 150, 310)
A_ROUND: Final = 8
WORKERS: Final = 2
_FAILING_OF: Final = 5
_LONG_MS: Final = 60_000
_LEAD_S = 10.0  # longer than a lead lasts without renewal
_TICKS_MS: Final = 500  # many ticks of the peer's schedulers
_OPTIONS: Final = {"concurrency": 20, "claim_min_idle_ms": IDLE_MS}


@dataclass(frozen=True, slots=True)
class Run:
    """A handler was called; what the job was, and whether the handler failed."""

    world: str
    job_id: str
    tag: str
    failed: bool


@dataclass(frozen=True, slots=True)
class Fired:
    """A schedule at the end of a load: its first instant, and what came of it."""

    name: str
    interval_ms: int
    first_ms: int
    next_ms: int
    count: int


class MixedLoad:
    """Some workers of each world; each add and each run is noted."""

    def __init__(self, shared: SharedQueue) -> None:
        self.shared = shared
        self.sent: dict[str, str] = {}  # the id of each tag
        self.delayed: set[str] = set()  # ids of jobs that were added with a delay
        self.leaders: dict[str, list[str]] = {"promoter": [], "scheduler": []}  # one after another
        self.changes = self.ended = 0  # of the world that leads; workers that have ended
        self._ours: list[Worker] = []
        self._theirs: list[str] = []
        self._left: list[str] = []
        self._here: list[Run] = []
        self._tags = itertools.count()
        self._random = Random(7)  # noqa: S311 - delays, the same each time

    async def start(self) -> None:
        """Ours first: whoever leads one service is to lead the other as well."""
        for _ in range(WORKERS):
            await self._start_worker()
        services = self.leaders
        await self.shared.until(
            lambda: None not in {self.shared.holder(each) for each in services}, "somebody leads"
        )
        for _ in range(WORKERS):
            await self._start_peer_worker()

    # --- adding ---------------------------------------------------------------------------------

    async def produce_here(self) -> None:
        """One round of ours: most at once, some delayed, half of those with an id."""
        queue, backoff = self.shared.queue, Backoff.fixed(BACKOFF_MS / 1000)
        for data in self._datas("here"):
            delay = self._random.choice([None, None, 0.02, 0.3])
            job_id = data["tag"] if delay and self._random.random() < 0.5 else None
            job = await queue.add("work", data, delay=delay, job_id=job_id, backoff=backoff)
            self._note(data["tag"], job.id, delayed=delay is not None)

    async def produce_there(self) -> None:
        """One round of theirs."""
        (first, *rest) = self._datas("there")
        options = {"backoff": BACKOFF_MS, "delay_ms": self._random.choice([20, 300])}
        if self._random.random() < 0.5:
            options["job_id"] = first["tag"]
        self._note(first["tag"], await self.shared.peer_add("work", first, **options), delayed=True)
        ids = await self.shared.ask("add_many", name="work", datas=[packed(data) for data in rest])
        for data, job_id in zip(rest, ids, strict=True):
            self._note(data["tag"], job_id, delayed=False)

    def _datas(self, world: str) -> list[dict[str, Any]]:
        numbers = itertools.islice(self._tags, A_ROUND)
        return [{"tag": f"{world}-{n}", "fails": int(n % _FAILING_OF == 0)} for n in numbers]

    def _note(self, tag: str, job_id: str, *, delayed: bool) -> None:
        self.sent[tag] = job_id
        if delayed:
            self.delayed.add(job_id)

    # --- schedules ------------------------------------------------------------------------------

    async def schedule(self) -> None:
        """Schedules of both worlds that make up for whatever is missed."""
        policy = {"kind": "fire-all", "max_catchup": 1000}
        for ms in INTERVALS_MS:
            name, every = f"every-here-{ms}", Every(ms / 1000)
            data = {"tag": name, "fails": 0}
            await self.shared.queue.schedules.add(
                name, every, data, key=name, missed=Missed.all(max=1000)
            )
            name = f"every-there-{ms}"
            spec = {
                "key": name,
                "job_name": name,
                "pattern": {"kind": "every", "interval_ms": ms},
                "missed_fires": policy,
            }
            data = {"tag": name, "fails": 0}
            await self.shared.ask("repeat_as", data=packed(data), spec=spec)

    async def unschedule(self, first_ms: dict[str, int]) -> list[Fired]:
        """Remove the schedules; what each had come to.

        A third takes the lead before: a scheduler of the peer's that is about to fire a schedule
        does so even if that is removed meanwhile.
        """
        lock, found = self.shared.keys.scheduler_lock, []
        self.shared.admin.set(lock, "nobody", px=_LONG_MS)
        await self.shared.until(
            lambda: self.shared.admin.pttl(lock) < _LONG_MS - _TICKS_MS, "nobody fires any more"
        )
        for name, at_ms in first_ms.items():
            hash_key = self.shared.keys.spec(name)
            with self.shared.admin.pipeline(transaction=True) as look:
                look.zscore(self.shared.keys.repeat, name)
                look.hget(hash_key, "fired")
                look.zrem(self.shared.keys.repeat, name)
                look.delete(hash_key)
                next_ms, count, *_ = look.execute()
            interval_ms = int(name.rpartition("-")[2])
            found.append(Fired(name, interval_ms, at_ms, int(next_ms), int(count or 0)))
        return found

    def armed(self) -> dict[str, int]:
        """What each schedule is armed for."""
        found = self.shared.admin.zrange(self.shared.keys.repeat, 0, -1, withscores=True)
        return {key.decode(): int(score) for key, score in found}

    # --- workers --------------------------------------------------------------------------------

    async def change(self) -> None:
        """Have the workers of the world that leads end, so that the other leads; then come back."""
        self.look()
        before = {service: known[-1] for service, known in self.leaders.items()}
        was_here = before["promoter"].startswith(CONSUMER_PREFIX.decode())
        await (self._end_here() if was_here else self._end_there())
        ended_at = time.monotonic()

        def is_held() -> bool:
            """Whether the same one still leads: then the other world had that lead already."""
            is_over = time.monotonic() - ended_at > _LEAD_S
            return is_over and self.shared.admin.pttl(self.shared.keys.scheduler_lock) > 0

        def has_changed() -> bool:
            self.look()
            now = {service: known[-1] for service, known in self.leaders.items()}
            is_here = now["promoter"].startswith(CONSUMER_PREFIX.decode())
            return is_here is not was_here and (
                now["scheduler"] != before["scheduler"] or is_held()
            )

        await self.shared.until(has_changed, "the other world leads")
        self.changes += 1
        for _ in range(WORKERS):
            await (self._start_worker() if was_here else self._start_peer_worker())

    def look(self) -> None:
        """Note who leads."""
        for service, known in self.leaders.items():
            holder = self.shared.holder(service)
            if holder is not None and known[-1:] != [holder]:
                known.append(holder)

    async def _end_here(self) -> None:
        while self._ours:
            await self._ours.pop().stop(grace=5)
            self.ended += 1

    async def _end_there(self) -> None:
        while self._theirs:
            await self.shared.peer.ask("stop_worker", worker=self._theirs.pop())
            self.ended += 1

    async def _start_worker(self) -> None:
        worker = await self.shared.start_worker(self._work, concurrency=20, lease=IDLE_MS / 1000)
        self._ours.append(worker)

    async def _start_peer_worker(self) -> None:
        worker = await self.shared.start_peer_worker(handler={"takes_s": 0.002}, **_OPTIONS)
        self._theirs.append(worker)
        self._left.append(worker)

    async def _work(self, job: Job[Any]) -> None:
        await asyncio.sleep(0.002)
        failed = job.attempt <= job.data["fails"]
        self._here.append(Run("here", job.id, job.data["tag"], failed))
        if failed:
            raise ValueError("boom")

    # --- judging --------------------------------------------------------------------------------

    async def runs(self) -> list[Run]:
        """All runs of both worlds."""
        found = list(self._here)
        for worker in self._left:
            found += [
                Run("there", call["id"], call["data"]["tag"], "failed" in call)
                for call in await self.shared.peer.calls(worker)
            ]
        return found

    def promotions(self) -> Counter[str]:
        """How often each job was told to have been promoted."""
        entries = self.shared.admin.xrange(self.shared.keys.events)
        told = [
            decode_event([each for pair in fields.items() for each in pair])
            for _, fields in entries
        ]
        return Counter(event.job_id for event in told if event.kind is EventKind.WAITING)


def more_than_once(runs: Iterable[Run]) -> list[str]:
    """The ids of jobs that ran again although they had not failed."""
    by_id: dict[str, list[bool]] = defaultdict(list)
    for run in runs:
        by_id[run.job_id].append(run.failed)
    return [job_id for job_id, failed in by_id.items() if len(failed) != sum(failed) + 1]
