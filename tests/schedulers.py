"""Helpers of the tests of whole schedulers: wrong clocks, logs of runs and events, teams."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar, Unpack

import redis

from tampu.scheduler import (
    CoordinatedStore,
    Event,
    RedisGuard,
    RunSkipped,
    ScheduledTask,
    Scheduler,
    SkipReason,
    StateLoaded,
    Store,
    TaskHandle,
    TaskReport,
    TaskRun,
    TaskState,
)
from tampu.scheduler.clock import Alarm, WallClock
from tampu.scheduler.redis_guard import LeaseOptions
from tampu.scheduler.scheduler import SchedulerOptions
from tampu.scheduler.task import Function
from tampu.timing import Every, Missed, Rule
from tampu.util.clock import now_ms
from tests.proxy import Proxy
from tests.waiting import wait_until

TASK: Final = "t"
ANCHOR: Final = datetime(2026, 1, 1, tzinfo=UTC)
RUN_ALL_MISSED: Final = Missed.all(max=10_000)  # nothing is dropped, however slow the machine is
# So long that no lease expires by itself on a slow machine.
LONG_LEASE: Final[LeaseOptions] = {"lease": "3s", "renew_every": "500ms", "timeout": "2500ms"}
SHORT_LEASE: Final[LeaseOptions] = {"lease": "600ms", "renew_every": "150ms", "timeout": "400ms"}
WAIT_S: Final = 60.0

E = TypeVar("E", bound=Event)


def grid(interval: str = "200ms") -> Every:
    """An interval with an anchor: every scheduler has the same instants."""
    return Every(interval, anchor=ANCHOR)


class SkewedClock(WallClock):
    """The clock of the machine, wrong by some seconds."""

    def __init__(self, skew_s: float) -> None:
        self._skew_ms = round(skew_s * 1000)

    def now_ms(self) -> int:
        return super().now_ms() + self._skew_ms

    def call_at(self, at_ms: int, call: Callable[[], None]) -> Alarm:
        return super().call_at(at_ms - self._skew_ms, call)


class EventLog:
    """An observer that keeps every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def skipped(self, *reasons: SkipReason) -> list[int]:
        """The occurrences that were skipped for these reasons, one by one."""
        events = [event for event in self.of(RunSkipped) if event.reason in reasons]
        assert all(event.count == 1 for event in events)
        return [event.at_ms for event in events]


class FinishedRun(NamedTuple):
    """A run that reached its end."""

    owner: str
    at_ms: int
    manual: bool
    replayed: bool


class RunLog:
    """The function of the tasks: keeps what really ran. `deps` is the name of the scheduler."""

    def __init__(self, lasts_s: float = 0.0) -> None:
        self.done: list[FinishedRun] = []
        self.started: list[int] = []
        self.active = 0
        self.most_active = 0
        self.cancelled = 0
        self.gate = asyncio.Event()  # runs wait here
        self.gate.set()
        self._lasts_s = lasts_s

    async def __call__(self, run: TaskRun[Any]) -> None:
        self.started.append(run.at_ms)
        self.active += 1
        self.most_active = max(self.active, self.most_active)
        try:
            await asyncio.sleep(self._lasts_s)
            await self.gate.wait()
            self.done.append(FinishedRun(run.deps, run.at_ms, run.manual, run.replayed))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.active -= 1

    def instants(self, owner: str | None = None) -> list[int]:
        """The occurrences that ran, in order: of one scheduler, or of all."""
        return sorted(done.at_ms for done in self.done if owner in {None, done.owner})

    async def wait_for(self, count: int) -> None:
        """Wait until `count` runs have reached their end."""
        await wait_until(
            lambda: len(self.done) >= count, within=WAIT_S, sentence=f"{count} runs are done"
        )


class Member(NamedTuple):
    """One scheduler that runs the task."""

    name: str
    scheduler: Scheduler
    handle: TaskHandle
    log: EventLog

    @property
    def state(self) -> TaskState:
        return self.handle.report().state

    async def stop(self) -> TaskState:
        """Stop the task; return its last state."""
        self.handle.cancel()
        return (await self.finish()).state

    async def finish(self) -> TaskReport:
        """Wait until the task has ended."""
        return await asyncio.wait_for(self.handle.wait(), WAIT_S)

    async def wait_for(self, kind: type[Event], count: int = 1) -> None:
        """Wait until the scheduler has reported `count` events of a kind."""
        await wait_until(
            lambda: len(self.log.of(kind)) >= count,
            within=WAIT_S,
            sentence=f"{self.name} has reported {count} {kind.__name__}",
        )


class Team:
    """Schedulers in one process; all of them are closed at the end."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self.url = url
        self._stack = stack

    async def join(
        self,
        name: str,
        task: ScheduledTask[str],
        *,
        skew_s: float = 0,
        **options: Unpack[SchedulerOptions],
    ) -> Member:
        """Start one more scheduler for a task, and wait until it has loaded the state."""
        log = EventLog()
        options.setdefault("grace", "2s")
        options |= {"clock": SkewedClock(skew_s), "observers": [log]}
        scheduler = Scheduler(**options)
        await self._stack.enter_async_context(scheduler)
        member = Member(name, scheduler, scheduler.add(task), log)
        await member.wait_for(StateLoaded)
        return member

    async def join_guarded(
        self,
        name: str,
        task: ScheduledTask[str],
        store: Store,
        *,
        skew_s: float = 0,
        lease: LeaseOptions = LONG_LEASE,
    ) -> Member:
        """Start one more scheduler, with its own store and guard."""
        guard = RedisGuard(self.url, **lease)
        return await self.join(name, task, skew_s=skew_s, store=store, guard=guard)

    async def join_shared(
        self,
        name: str,
        task: ScheduledTask[str],
        *,
        lease: LeaseOptions = LONG_LEASE,
        url: str | None = None,
        **options: Any,  # noqa: ANN401 - those of a scheduler
    ) -> Member:
        """Start one more scheduler, which shares its tasks with the others."""
        store = CoordinatedStore(url or self.url, **lease)
        return await self.join(name, task, store=store, **options)

    async def join_two(
        self,
        rule: Rule,
        function: Function[str],
        **options: Any,  # noqa: ANN401 - those of a task
    ) -> list[Member]:
        """Start two schedulers that share a task: one clock is 5 s ahead, one is 5 s behind."""
        return [
            await self.join_shared(name, make_task(name, rule, function, **options), skew_s=skew_s)
            for name, skew_s in (("ahead", 5), ("behind", -5))
        ]


def make_task(
    owner: str,
    rule: Rule,
    function: Function[str],
    **options: Any,  # noqa: ANN401 - those of a task
) -> ScheduledTask[str]:
    """A task that runs every missed occurrence, unless the options say otherwise."""
    return ScheduledTask(
        options.pop("id", TASK), rule, function, deps=owner, **{"missed": RUN_ALL_MISSED, **options}
    )


def instants_between(rule: Rule, first_ms: int, last_ms: int) -> list[int]:
    """The instants from the first to the last, both included."""
    found: list[int] = []
    next_ms: int | None = first_ms
    while next_ms is not None and next_ms <= last_ms:
        found.append(next_ms)
        next_ms = rule.next_ms(next_ms)
    return found


def soon(count: int, *, every_ms: int = 100, in_ms: int = 300) -> list[datetime]:
    """Some instants in the near future."""
    first_ms = now_ms() + in_ms
    return [datetime.fromtimestamp((first_ms + every_ms * n) / 1000, UTC) for n in range(count)]


def cut_off_server(proxy: Proxy) -> None:
    """Make the server unreachable: it receives nothing and sends nothing."""
    proxy.hold_replies = proxy.hold_requests = True


def reconnect(proxy: Proxy) -> None:
    """Make the server reachable again."""
    proxy.hold_replies = proxy.hold_requests = False
    proxy.cut()


def is_unbroken(rule: Rule, ran: Sequence[int]) -> bool:
    """Whether the runs have every instant of the rule once, without a gap."""
    return list(ran) == instants_between(rule, ran[0], ran[-1])


@contextmanager
def full_memory(admin: redis.Redis) -> Iterator[None]:
    """Put the server at its memory limit."""
    admin.config_set("maxmemory", 1)
    try:
        yield
    finally:
        admin.config_set("maxmemory", 0)


@contextmanager
def revocable_access(admin: redis.Redis, url: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """A URL with access, and a function that revokes it."""
    admin.execute_command("ACL", "SETUSER", "few", "reset", "on", ">pw", "~*", "+@all")
    try:
        yield (
            url.replace("//", "//few:pw@"),
            lambda: admin.execute_command("ACL", "SETUSER", "few", "-@all"),
        )
    finally:
        admin.acl_deluser("few")


async def read_shared_state(url: str) -> TaskState:
    """The state of the shared task, once none of its runs is in flight."""
    store = CoordinatedStore(url)
    await store.open()
    try:

        async def is_idle() -> bool:
            return (await store.read(TASK)).in_flight is None

        await wait_until(is_idle, within=WAIT_S, sentence="no run is in flight")
        state = (await store.read(TASK)).state
    finally:
        await store.close()
    assert isinstance(state, TaskState)
    return state


async def read_stored_state(store: Store) -> TaskState | None:
    """The state of the task in a plain store."""
    await store.open()
    try:
        (state,) = await store.load([TASK])
    finally:
        await store.close()
    assert state is None or isinstance(state, TaskState)
    return state


async def stop_all(*members: Member) -> None:
    """Stop the tasks of some members."""
    for member in members:
        member.handle.cancel()
    for member in members:
        await member.finish()


def leftover_tasks() -> set[str]:
    """The names of our tasks that are still on the loop."""
    return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("tampu")}
