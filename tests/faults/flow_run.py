"""A queue with all kinds of jobs, whose workers die, and what must be true of it all the time."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, Unpack

from msgspec.structs import replace

from tampu import Job, JobState, NewJob, Queue, QueueFull
from tampu.limits import Concurrency
from tampu.producer.options import QueueOptions
from tampu.wire.keys import QueueKeys
from tests.faults.flow_jobs import CHANGED, REPLACED, FlowJobs, declare_shared
from tests.faults.flow_process import COUNT, DONE, EXCEEDED, ORDER
from tests.gates import assert_empty, look_at_gate
from tests.servers import ROOT, RunningServer
from tests.waiting import wait_until

FLOW_S = float(os.environ.get("TAMPU_FAULTS_FLOW_S", "5"))  # `make faults`: longer
KILL_EVERY_S = 0.3
WORKERS = 4
REST_LIMIT_S = 90.0
JOBS_A_S = 300


class Workers:
    """Worker processes that die and are replaced."""

    def __init__(
        self, url: str, outside: RunningServer, *, queue: str, directory: Path, rng: Random
    ) -> None:
        self._told = [url, queue, outside.url]
        self._directory, self._rng = directory, rng
        self._starting: set[asyncio.Task[None]] = set()
        self._failed = 0  # how many ended before they had started
        self.alive: dict[str, subprocess.Popen[bytes]] = {}  # by the worker's id
        self.killed: dict[str, float] = {}  # by the process's id, the server's time of its end

    def start(self) -> None:
        """Have one more, soon."""
        task = asyncio.create_task(self._start())
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _start(self) -> None:
        process = self._spawn()
        try:
            assert process.stdout is not None
            told = await asyncio.to_thread(process.stdout.readline)
            if not told:
                self._failed += 1
                self._close(process)
                return
            self.alive[told.decode().strip()] = process
        except asyncio.CancelledError:
            process.kill()
            raise

    def _spawn(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "tests.faults.flow_process", *self._told]
        with (self._directory / "errors").open("ab") as errors:
            return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors)

    def kill_one(self, outside: Any) -> bool:  # noqa: ANN401 - a redis client
        """Kill one that works, if there is one; what it counted is forgotten."""
        if not self.alive:
            return False
        process = self.alive.pop(self._rng.choice(sorted(self.alive)))
        seconds, micros = outside.time()
        process.kill()
        process.wait()
        self.killed[str(process.pid)] = seconds + micros / 1e6
        for key in outside.scan_iter(COUNT + "*"):
            outside.hdel(key, process.pid)
        self._close(process)
        return True

    def have_lapsed(self) -> bool:
        """Whether one that lived has lost its leases, as on a machine that is far too busy."""
        return "have lapsed" in (self._directory / "errors").read_text()

    async def all_started(self) -> None:
        """Return when no other is being started."""
        while self._starting:
            await asyncio.wait(self._starting)
        assert not self._failed, (self._directory / "errors").read_text()[-2000:]

    async def stop(self) -> None:
        """End them in good order."""
        await self.all_started()
        for process in self.alive.values():
            process.terminate()
        for process in self.alive.values():
            code = await asyncio.to_thread(process.wait, 60)
            assert code == 0, (code, (self._directory / "errors").read_text()[-2000:])
            self._close(process)
        self.alive.clear()

    async def end(self) -> None:
        for task in [*self._starting]:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        for process in self.alive.values():
            process.kill()
            process.wait()
            self._close(process)

    @staticmethod
    def _close(process: "subprocess.Popen[bytes]") -> None:
        if process.stdout is not None:
            process.stdout.close()


class FlowRun:
    """A queue with all kinds of jobs, its workers, and a look at its gate after each step."""

    def __init__(self, queue: Queue, workers: Workers, admin: Any, outside: Any, seed: int) -> None:  # noqa: ANN401
        self.keys = QueueKeys(queue.name)
        self.queue, self.workers = queue, workers
        self.admin, self.outside = admin, outside
        self.rng = Random(seed)  # noqa: S311 - jobs and deaths
        self.jobs = FlowJobs(self.rng)
        self.added: dict[str, NewJob] = {}  # by id
        self.cancelled: set[str] = set()
        self.looks = 0
        self.refused = 0  # calls that a server at its memory limit refused
        self.has_peers = False  # what they settle is noticed a little later

    def look(self) -> int:
        """Look at the gate; how many jobs wait there."""
        state = look_at_gate(self.admin, self.keys)
        self.looks += 1
        # More may run than a limit allows that was lowered meanwhile, but not than it ever allowed.
        lowered = tuple(f"too many {name}" for name in CHANGED)
        assert not [problem for problem in state.problems if not problem.startswith(lowered)]
        assert self.has_peers or not state.gone
        return state.lined

    def make_job(self) -> NewJob:
        job = self.jobs.make()
        if not job.ordered and job.debounce is None and self.rng.random() < 0.15:
            job = replace(job, delay=self.rng.random() * 0.5)
        if self.rng.random() < 0.05:
            job = replace(job, job_id=f"own-{self.rng.getrandbits(60)}")
        return job

    async def step(self) -> None:
        """Add some jobs, cancel some, change something, and look."""
        count = self.rng.choice((1, 5, 40))
        added = await self.add([self.make_job() for _ in range(count)])
        if added and self.rng.random() < 0.2:
            some = [job.id for job in self.rng.sample(added, min(2, count))]
            self.cancelled |= set(some)
            await self.queue.cancel_many(some)
        if self.rng.random() < 0.3:
            with suppress(QueueFull):  # Redis 6.2 refuses some of it at its memory limit
                await self.rng.choice((self._set_limit, self._weigh, self._pause, self._forget))()
        self.look()

    async def add(self, made: list[NewJob]) -> list[Job[Any]]:
        """Add jobs, and note which; none if the server is at its memory limit."""
        try:
            added = await self.queue.add_many(made)
        except QueueFull:
            self.refused += 1
            return []
        self.added |= {job.id: new for job, new in zip(added, made, strict=True)}
        return added

    async def _set_limit(self) -> None:
        """Set a limit to no more than what the jobs themselves count."""
        name = self.rng.choice(sorted(CHANGED))
        await self.queue.limits.set(name, Concurrency(self.rng.randint(1, CHANGED[name])))
        self.look()
        value = self.rng.randrange(3)
        await self.queue.limits.set("n2(t)", Concurrency(self.rng.randint(1, 2)), value=value)

    async def _weigh(self) -> None:
        await self.queue.limits.weigh(f"k{self.rng.randrange(5)}", self.rng.choice((0.5, 3, None)))

    async def _pause(self) -> None:
        until = self.rng.choice(("50ms", "200ms"))
        what = {"task": f"n{self.rng.randrange(4)}", "key": f"k{self.rng.randrange(3)}"}
        for name in self.rng.sample(sorted(what), self.rng.choice((1, 1, 2))):
            await self.queue.pause(until=until, **{name: what[name]})
        if self.rng.random() < 0.3:
            await self.queue.resume(**what)

    async def _forget(self) -> None:
        """The server forgets its scripts."""
        self.admin.script_flush()

    async def go(self, seconds: float, *, kills: bool = True) -> None:
        """Steps for a while, in which workers die."""
        began = killed_at = time.monotonic()
        while (now := time.monotonic()) < began + seconds:
            if len(self.added) < 200 + JOBS_A_S * (now - began):
                await self.step()
            if kills and now > killed_at + KILL_EVERY_S and self.workers.kill_one(self.outside):
                killed_at = now
                self.workers.start()
            self.look()
            await asyncio.sleep(0.02)  # what workers do in that time is the subject

    async def rest(
        self, done_elsewhere: set[str] | None = None, *, is_counted: bool = True
    ) -> None:
        """Return when all is done; fail if something is left, lost or was too much at a time."""
        await self.end(is_counted=is_counted)
        lost = self.added.keys() - self.done() - self.cancelled - (done_elsewhere or set())
        lost -= await self.dropped({each for each in lost if self.added[each].name in REPLACED})
        assert self.refused == 0 or self.done() <= self.added.keys(), "a refused job has run"
        dead = self.admin.xlen(self.keys.dead)
        letters = self.admin.xrange(self.keys.dead, count=3)
        assert (len(lost), dead) == (0, 0), (
            f"lost {[(each, self.added[each]) for each in lost][:3]}, dead {letters}"
        )
        for key in self.jobs.of_key:
            firsts = self.order_of(key)
            assert firsts == sorted(firsts), f"{key} is out of order"

    async def end(self, *, is_counted: bool = True) -> None:
        """Return when no job is left; fail if a slot or a line is, or if a limit was exceeded."""
        await self.workers.all_started()
        await wait_until(self.is_over, within=REST_LIMIT_S, sentence="all jobs have ended")
        await wait_until(self._is_free, within=REST_LIMIT_S, sentence="nobody dead has room")
        assert_empty(self.admin, self.keys)
        await wait_until(self._none_within, within=REST_LIMIT_S, sentence="no handler runs")
        # Who was cut off for longer than its lease may go on beside those who took its jobs over.
        is_counted = is_counted and not self.workers.have_lapsed()
        exceeded = self._exceeded() if is_counted else []
        assert not exceeded, f"{len(exceeded)} times, first: {exceeded[:4]}"

    def order_of(self, key: str) -> list[int]:
        """The numbers of the ordered jobs of a key, as they were done for the first time."""
        order = [int(number) for number in self.outside.lrange(ORDER + key, 0, -1)]
        return list(dict.fromkeys(order))  # a killed worker's job may run again

    def done(self) -> set[str]:
        """The ids of the jobs whose handlers have said that they are done."""
        return {each.decode() for each in self.outside.smembers(DONE)}

    async def dropped(self, ids: set[str]) -> set[str]:
        """Those of these jobs that were dropped, as the queue says."""
        states = {each: (await self.queue.job(each).info()).state for each in sorted(ids)}
        return {each for each, state in states.items() if state is JobState.CANCELLED}

    def is_over(self) -> bool:
        """Whether no job waits, runs or is delayed. Asked in one step: jobs move about."""
        self.look()
        with self.admin.pipeline(transaction=True) as asked:
            asked.xlen(self.keys.stream)
            asked.zcard(self.keys.delayed)
            asked.hget(self.keys.gate, "waiting")
            left = asked.execute()
        return not any(int(each or 0) for each in left)

    def _is_free(self) -> bool:
        """Whether nothing is held, and only workers that live can have entries."""
        held = self.admin.hlen(self.keys.gate + b":held")
        wanted = {each.decode() for each in self.admin.hkeys(self.keys.gate + b":want")}
        return held == 1 and wanted <= {*self.workers.alive, ""}

    def _none_within(self) -> bool:
        """Whether the handlers themselves say that none of them runs."""
        found = [self.outside.hgetall(key) for key in self.outside.scan_iter(COUNT + "*")]
        within = {
            pid.decode() for counts in found for pid, count in counts.items() if count != b"0"
        }
        return within <= self.workers.killed.keys()

    def _exceeded(self) -> list[Any]:
        """Where workers that were alive had more jobs than a limit allows."""
        found = []
        for text in self.outside.lrange(EXCEEDED, 0, -1):
            at, key, most, flat = json.loads(text)
            counts = dict(zip(flat[::2], map(int, flat[1::2]), strict=True))
            for pid, count in counts.items():
                if count and self.workers.killed.get(pid, at + 1) <= at:
                    counts[pid] = 0
            if sum(counts.values()) > int(most):
                found.append((at, key, most, counts))
        return found


@asynccontextmanager
async def flow_run(
    server: RunningServer,
    directory: Path,
    seed: int,
    *,
    outside: RunningServer | None = None,
    url: str | None = None,
    name: str = "",
    count: int = WORKERS,
    **options: Unpack[QueueOptions],
) -> AsyncIterator[FlowRun]:
    """A run with so many workers; `outside` is where they count, if that is another server."""
    outside, url = outside or server, url or server.url
    with server.admin() as admin, outside.admin() as counts:
        # A name of its own: nothing that another test has left can take its jobs.
        name = name or f"flow-{os.urandom(6).hex()}"
        async with Queue(name, url, **options) as queue:
            dying = Random(seed)  # noqa: S311 - who dies
            workers = Workers(url, outside, queue=name, directory=directory, rng=dying)
            run = FlowRun(queue, workers, admin, counts, seed)
            declare_shared(admin, run.keys)
            try:
                for _ in range(count):
                    workers.start()
                await workers.all_started()
                yield run
            finally:
                await workers.end()
