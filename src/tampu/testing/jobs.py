"""What a test does with jobs: run them, let time pass, and look at what is enqueued."""

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from tampu.consumer.queue_config import new_consumer
from tampu.errors import OptionError, TampuError
from tampu.job import Job
from tampu.server.flows import FlowReader
from tampu.server.scripts.virtual_time import begin_test, empty_database
from tampu.tasks.handlers import app_steps, parse_worker_options
from tampu.tasks.task import AnyTask
from tampu.testing.bench import Bench, kit_settings
from tampu.testing.enqueued import (
    EnqueuedJob,
    Wanted,
    describe_all,
    describe_data,
    read_enqueued,
    wanted_job,
)
from tampu.testing.queue_bench import Attempt, BenchRules, Ended
from tampu.testing.runners import make_kit_plans
from tampu.testing.threads import KitPortal, KitThreads
from tampu.util.clock import Duration, instant, instant_ms, now_ms, to_ms
from tampu.util.options import at_least
from tampu.wire.flow import awaited_id, group_of, parse_member
from tampu.wire.keys import QueueKeys
from tampu.wire.names import FLOW_MARK

if TYPE_CHECKING:
    from tampu.app import App

LIMIT: Final = 10_000
"""The most attempts in one `run` or `travel`: a year of hours, and few enough to end soon."""
_DEEPEST: Final = 100
_CLOSE_S: Final = 5.0


class Jobs:
    """The jobs of an app in a test. Made by `tampu.use(app)`.

    Time stands still at `now()` until the test calls `travel`, for the server and for tampu. Code
    that asks for the time itself, as `datetime.now` does, gets the real one.
    """

    def __init__(self, app: "App", url: str, portal: KitPortal, *, inline: bool) -> None:
        self.url = url
        self._app, self._portal = app, portal
        self._threads = KitThreads()
        settings = kit_settings(parse_worker_options("App", app.worker))
        raised: dict[str, BaseException] = {}
        self._runtime, plans = make_kit_plans(app, settings, threads=self._threads, raised=raised)
        self._rules = BenchRules(
            url=url,
            consumer=new_consumer("testing"),
            settings=settings,
            plans=plans,
            raised=raised,
            running={},
            inline=inline,
        )
        self._inline = inline
        self._names = set(app.queues)
        self._benches: dict[asyncio.AbstractEventLoop, asyncio.Task[Bench]] = {}
        self._loops: set[asyncio.AbstractEventLoop] = set()  # that use the app
        self._home: Bench | None = None
        self._lifespan: AsyncExitStack | None = None
        self._history: list[Attempt] = []
        self._unseen: dict[str, BaseException] = {}  # inline jobs that failed, until looked at
        self._depth = 0  # of inline jobs that add inline jobs

    def __repr__(self) -> str:
        return f"<Jobs of {self._app!r}, now {self.now():%Y-%m-%d %H:%M:%S}>"

    def now(self) -> datetime:
        """The time of the test."""
        return instant(now_ms())

    @property
    def attempts(self) -> list[Attempt]:
        """All attempts so far, in order."""
        return list(self._history)

    # --- running --------------------------------------------------------------------------------

    async def run(self, *, raise_errors: bool = True, limit: int = LIMIT) -> list[Attempt]:
        """Run what is ready, one job after the other, until nothing is; returns the attempts.

        Ready are waiting jobs, and delayed jobs and schedules that are due. The first attempt that
        fails ends the run, and its error is raised, unless `raise_errors` is False. A `Snooze` is
        no error, and neither is a `Retry` if there is another attempt. After `limit` attempts it
        raises `TampuError`: jobs that add jobs may never end.
        """
        return await self._travel(now_ms(), raise_errors=raise_errors, limit=limit)

    async def travel(
        self,
        to: Duration | datetime,
        *,
        run: bool = True,
        raise_errors: bool = True,
        limit: int = LIMIT,
    ) -> list[Attempt]:
        """Let time pass, for a duration or up to an instant, and run what is due on the way.

        Time goes from one instant at which something is due to the next. Delayed jobs, retries and
        fires of schedules run at their own instants, in order. With `run=False` no worker is there:
        nothing runs, until the next `run`. Otherwise as `run`; an error stops time where it is.
        """
        if isinstance(to, datetime):
            latest_ms = instant_ms("to", to)
            if latest_ms < now_ms():
                raise OptionError("to", to, f"is before now, which is {self.now()}")
        else:
            latest_ms = now_ms() + to_ms("to", to)
        if run:
            return await self._travel(latest_ms, raise_errors=raise_errors, limit=limit)
        await self._bench_at_home().pass_time(latest_ms)
        return []

    async def _travel(self, latest_ms: int, *, raise_errors: bool, limit: int) -> list[Attempt]:
        at_least("limit", limit, 1)
        bench, began = self._bench_at_home(), len(self._history)
        await self._enter_lifespan()
        journey = _Journey(self, bench, raise_errors=raise_errors, limit=limit)
        try:
            await journey.go(latest_ms)
        finally:
            await bench.flush_events()
        return self._history[began:]

    async def run_next(self, bench: Bench) -> list[Ended]:
        """Run one job, or a batch of them, and remember the attempts."""
        await bench.serve(self._names)
        ended = await bench.run_next()
        self._history += [each.attempt for each in ended if each.attempt is not None]
        for each in ended:
            if each.error is not None and not isinstance(each.error, Exception):
                raise each.error  # Ctrl-C, or a verdict of pytest
        return ended

    # --- looking --------------------------------------------------------------------------------

    def enqueued(self, task: AnyTask | str | None = None) -> list[EnqueuedJob]:
        """The jobs that wait or are delayed, of one task or of all; those that run are left out."""
        name = task if isinstance(task, str) or task is None else task.name
        found = self._portal.call(self._read_enqueued)
        return [each for each in found if name in {None, each.name}]

    def assert_enqueued(
        self,
        task: AnyTask,
        /,
        *args: object,
        delay: Duration | None = None,
        at: datetime | None = None,
        **kwargs: object,
    ) -> EnqueuedJob:
        """Fail unless a job of the task waits or is delayed, with these arguments; returns it.

        Arguments that you leave out may have any value. `delay` is how long from now it is due, and
        0 means that it waits already; `at` is when. If the task has parameters with these names,
        use `task.options(delay=...)` instead.
        """
        __tracebackhide__ = True
        wanted = wanted_job(task, args, kwargs, delay=delay, at=at)
        found = self.enqueued()
        for each in found:
            if wanted.matches(each):
                return each
        raise AssertionError(self._explain(f"{wanted} is not enqueued.", wanted, found))

    def assert_not_enqueued(
        self,
        task: AnyTask,
        /,
        *args: object,
        delay: Duration | None = None,
        at: datetime | None = None,
        **kwargs: object,
    ) -> None:
        """Fail if a job of the task waits or is delayed, with these arguments."""
        __tracebackhide__ = True
        wanted = wanted_job(task, args, kwargs, delay=delay, at=at)
        found = [each for each in self.enqueued() if wanted.matches(each)]
        if found:
            raise AssertionError(f"{wanted} is enqueued:\n{describe_all(found, none='')}")

    def _explain(self, problem: str, wanted: Wanted, found: list[EnqueuedJob]) -> str:
        lines = [problem, "Enqueued are:", describe_all(found, none="no jobs")]
        name = wanted.task.name
        ran = [f"{each.name}({describe_data(each.job.data)})" for each in self._history]
        if ran := [each for each in ran if each.startswith(f"{name}(")]:
            lines += ["Have run already:", describe_all(ran, none="")]
        return "\n".join(lines)

    async def _read_enqueued(self) -> list[EnqueuedJob]:
        bench = await self.bench()
        await bench.relay(self._names)
        found: list[EnqueuedJob] = []
        for name in sorted(self._names):
            found += await read_enqueued(bench.lane, QueueKeys(name), without=self._rules.running)
        return found

    # --- inline ---------------------------------------------------------------------------------

    def check_depth(self) -> None:
        """Refuse to add a job inside of too many others."""
        if self._depth >= _DEEPEST:
            problem = f"Inline jobs have added each other {_DEEPEST} deep. Is there an end?"
            raise TampuError(problem)

    async def run_inline(self, jobs: Iterable[Job[Any]]) -> None:
        """Run jobs that were just added, on the loop of the caller."""
        bench = await self.bench()
        bench.look_again()
        self._depth += 1
        try:
            while ended := await self.run_next(bench):
                for each in ended:
                    if each.error is not None and each.is_final:
                        self._unseen[each.job_id] = each.error
        finally:
            self._depth -= 1
        here = asyncio.get_running_loop()
        for job in jobs:
            running = self._rules.running.get(job.id)
            if running is not None and running.get_loop() is here and not job.duplicate:
                await asyncio.wait([running])  # another task runs it

    async def run_flow(self, flow_id: str) -> None:
        """Run a flow or chain that was just started, on the loop of the caller."""
        await self.run_inline([])
        while running := self._running_of(flow_id):
            await asyncio.wait(running)  # another task runs a job of it
            await self.run_inline([])

    def _running_of(self, flow_id: str) -> list[asyncio.Future[None]]:
        here, group = asyncio.get_running_loop(), group_of(flow_id) or flow_id + FLOW_MARK
        return [
            running
            for job_id, running in self._rules.running.items()
            if group_of(job_id) == group and running.get_loop() is here
        ]

    def note_seen(self, awaited: str) -> None:
        """A test has asked for the result of an inline job or flow, and knows how it ended."""
        for job_id in list(self._unseen):
            member = parse_member(job_id)
            if awaited in {awaited_id(job_id), member and member.flow}:
                del self._unseen[job_id]

    async def _forget_handled(self, bench: Bench) -> None:
        """Leave out failures that their flow takes care of."""
        members = map(parse_member, self._unseen)
        for flow_id in {each.flow for each in members if each is not None}:
            for name in self._names:
                reader = FlowReader(bench.lane, QueueKeys(name), flow_id)
                state, bad = await reader.fields(["s", "bad"])
                if bad == b"0" and state != b"failed":
                    self.note_seen(flow_id)

    def first_unseen_error(self) -> BaseException | None:
        """The error of the first inline job that failed and was not asked for its result."""
        return next(iter(self._unseen.values()), None)

    # --- opening and closing --------------------------------------------------------------------

    def add_queue(self, name: str) -> None:
        """Run the jobs of one more queue, and close it in the end on the loop that uses it."""
        self._names.add(name)
        self._loops.add(asyncio.get_running_loop())

    async def open(self, at_ms: int, *, schedules: bool) -> None:
        """Begin on the loop of the test, with an empty database."""
        bench = await self.bench()
        await begin_test(bench.lane, at_ms)
        self._home = bench
        await bench.serve(self._names)
        if schedules:
            await self._app.store_schedules(self._app.check_schedules(self._names))
        if self._inline:
            await self._enter_lifespan()

    async def close(self) -> None:
        """End on the loop of the test: leave the lifespan, and disconnect."""
        opening = self._benches.pop(asyncio.get_running_loop())
        async with AsyncExitStack() as stack:  # left in reverse order
            bench = await opening
            stack.push_async_callback(bench.close)
            await self._forget_handled(bench)
            if self._home is not None:
                stack.push_async_callback(empty_database, bench.lane)
            stack.push_async_callback(bench.finish)
            stack.push_async_callback(self._app.close)
            if not self._portal.is_current:
                stack.callback(self._portal.end, self._leave_loop)
            stack.push_async_callback(self._leave_other_loops)
            stack.callback(self._threads.close)
            if self._lifespan is not None:
                stack.push_async_callback(self._lifespan.aclose)

    async def _leave_loop(self) -> None:
        """Disconnect what belongs to the running loop, if that is not the loop of the test."""
        opening = self._benches.pop(asyncio.get_running_loop(), None)
        if opening is not None:
            await (await opening).close()
        await self._app.close()

    async def bench(self) -> Bench:
        """The bench of the running loop."""
        loop = asyncio.get_running_loop()
        opening = self._benches.get(loop)
        if opening is None:
            opening = self._benches[loop] = loop.create_task(Bench.open(self._rules))
        return await asyncio.shield(opening)

    def _bench_at_home(self) -> Bench:
        assert self._home is not None  # noqa: S101 - opened before the test gets us
        return self._home

    async def _leave_other_loops(self) -> None:
        """Disconnect in loops that run in other threads, such as that of a web application."""
        here = asyncio.get_running_loop()
        for loop in self._loops - {here}:
            if loop.is_running() and not self._portal.runs(loop):
                leaving = asyncio.run_coroutine_threadsafe(self._leave_loop(), loop)
                await asyncio.wait_for(asyncio.wrap_future(leaving), _CLOSE_S)

    async def _enter_lifespan(self) -> None:
        if self._lifespan is None:
            app = self._app
            steps = app_steps(app.tasks.values(), app.overrides)
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(app.serve(steps, self._runtime))
                self._lifespan = stack.pop_all()


class _Journey:
    """One `run` or `travel`."""

    def __init__(self, jobs: Jobs, bench: Bench, *, raise_errors: bool, limit: int) -> None:
        self._jobs, self._bench = jobs, bench
        self._raise_errors, self._limit = raise_errors, limit
        self._left = limit

    async def go(self, latest_ms: int) -> None:
        """Run what waits, then go from instant to instant."""
        self._bench.look_again()
        await self._run_waiting()
        has_run = True
        # What stays due although nothing could be run, such as a schedule of a peer that nobody can
        # read, must not stop time.
        while await self._bench.move(latest_ms, with_now=has_run):
            has_run = await self._run_waiting()

    async def _run_waiting(self) -> bool:
        """Run jobs until none waits; whether there were any."""
        before = self._left
        while ended := await self._jobs.run_next(self._bench):
            for each in ended:
                if each.error is not None and self._raise_errors:
                    raise each.error
            self._left -= len(ended)
            if self._left <= 0:
                raise _endless(self._limit)
        return self._left < before


def _endless(limit: int) -> TampuError:
    return TampuError(
        f"{limit} jobs have run, and there may be more. Do jobs add each other without end? "
        "If there are so many, pass a larger limit."
    )
