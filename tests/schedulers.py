"""What the tests of whole schedulers share: clocks that are wrong, and who keeps what was told."""

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
from tampu.scheduler.guard import LeaseOptions
from tampu.scheduler.scheduler import SchedulerOptions
from tampu.scheduler.task import Function
from tampu.timing import Every, Missed, Rule
from tampu.util.clock import now_ms
from tests.proxy import Proxy
from tests.waiting import wait_until

TASK: Final = "t"
ANCHOR: Final = datetime(2026, 1, 1, tzinfo=UTC)
EACH: Final = Missed.all(max=10_000)  # nothing is dropped, however slow the machine
# So long that none runs out by itself on a slow machine.
CALM: Final[LeaseOptions] = {"lease": "3s", "renew_every": "500ms", "timeout": "2500ms"}
SHORT: Final[LeaseOptions] = {"lease": "600ms", "renew_every": "150ms", "timeout": "400ms"}
WITHIN: Final = 20.0

E = TypeVar("E", bound=Event)


def grid(interval: str = "200ms") -> Every:
    """An interval whose instants are the same whoever computes them."""
    return Every(interval, anchor=ANCHOR)


class SkewedClock(WallClock):
    """The machine's clock, wrong by so much."""

    def __init__(self, skew_s: float) -> None:
        self._skew_ms = round(skew_s * 1000)

    def now_ms(self) -> int:
        return super().now_ms() + self._skew_ms

    def call_at(self, at_ms: int, call: Callable[[], None]) -> Alarm:
        return super().call_at(at_ms - self._skew_ms, call)


class Journal:
    """An observer that keeps all it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def skipped(self, *reasons: SkipReason) -> list[int]:
        """The occurrences that did not run for these reasons, one by one."""
        told = [event for event in self.of(RunSkipped) if event.reason in reasons]
        assert all(event.count == 1 for event in told)
        return [event.at_ms for event in told]


class Done(NamedTuple):
    """A run that came to its end."""

    who: str
    at_ms: int
    manual: bool
    replayed: bool


class Deeds:
    """What really ran: the function of the tasks, whose `deps` say who runs them."""

    def __init__(self, lasts_s: float = 0.0) -> None:
        self.done: list[Done] = []
        self.began: list[int] = []
        self.inside = 0
        self.most_inside = 0
        self.cancelled = 0
        self.gate = asyncio.Event()  # runs wait for it
        self.gate.set()
        self._lasts_s = lasts_s

    async def __call__(self, run: TaskRun[Any]) -> None:
        self.began.append(run.at_ms)
        self.inside += 1
        self.most_inside = max(self.inside, self.most_inside)
        try:
            await asyncio.sleep(self._lasts_s)
            await self.gate.wait()
            self.done.append(Done(run.deps, run.at_ms, run.manual, run.replayed))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.inside -= 1

    def instants(self, who: str | None = None) -> list[int]:
        """The occurrences that ran, in order, those of one scheduler or of all."""
        return sorted(done.at_ms for done in self.done if who in {None, done.who})

    async def until(self, count: int) -> None:
        """Return when so many runs have come to their end."""
        await wait_until(
            lambda: len(self.done) >= count, within=WITHIN, sentence=f"{count} runs are done"
        )


class Member(NamedTuple):
    """One scheduler that runs the task."""

    name: str
    scheduler: Scheduler
    handle: TaskHandle
    journal: Journal

    @property
    def state(self) -> TaskState:
        return self.handle.report().state

    async def stop(self) -> TaskState:
        """Have it end; how the task stands then."""
        self.handle.cancel()
        return (await self.end()).state

    async def end(self) -> TaskReport:
        """Until it has ended by itself."""
        return await asyncio.wait_for(self.handle.wait(), WITHIN)

    async def until(self, kind: type[Event], count: int = 1) -> None:
        """Return when it was told of so many facts of a kind."""
        await wait_until(
            lambda: len(self.journal.of(kind)) >= count,
            within=WITHIN,
            sentence=f"{self.name} was told of {count} {kind.__name__}",
        )


class Team:
    """Schedulers of one process; all are closed at the end, and their runs with them."""

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
        """One more scheduler for a task; returns when it knows how that stands."""
        journal = Journal()
        options.setdefault("grace", "2s")
        options |= {"clock": SkewedClock(skew_s), "observers": [journal]}
        scheduler = Scheduler(**options)
        await self._stack.enter_async_context(scheduler)
        member = Member(name, scheduler, scheduler.add(task), journal)
        await member.until(StateLoaded)
        return member

    async def guarded(
        self,
        name: str,
        task: ScheduledTask[str],
        store: Store,
        *,
        skew_s: float = 0,
        lease: LeaseOptions = CALM,
    ) -> Member:
        """One with a store and a guard of its own on the server."""
        guard = RedisGuard(self.url, **lease)
        return await self.join(name, task, skew_s=skew_s, store=store, guard=guard)

    async def sharing(
        self,
        name: str,
        task: ScheduledTask[str],
        *,
        lease: LeaseOptions = CALM,
        url: str | None = None,
        **options: Any,  # noqa: ANN401 - those of a scheduler
    ) -> Member:
        """One that shares its tasks with the others."""
        store = CoordinatedStore(url or self.url, **lease)
        return await self.join(name, task, store=store, **options)

    async def two(
        self,
        rule: Rule,
        function: Function[str],
        **options: Any,  # noqa: ANN401 - those of a task
    ) -> list[Member]:
        """Two that share a task, one 5 s ahead and one 5 s behind."""
        return [
            await self.sharing(name, task_of(name, rule, function, **options), skew_s=skew_s)
            for name, skew_s in (("ahead", 5), ("behind", -5))
        ]


def task_of(
    who: str,
    rule: Rule,
    function: Function[str],
    **options: Any,  # noqa: ANN401 - those of a task
) -> ScheduledTask[str]:
    """A task that misses nothing unless it is told otherwise."""
    return ScheduledTask(
        options.pop("id", TASK), rule, function, deps=who, **{"missed": EACH, **options}
    )


def instants(rule: Rule, first_ms: int, last_ms: int) -> list[int]:
    """The occurrences from one to another, both included."""
    found: list[int] = []
    next_ms: int | None = first_ms
    while next_ms is not None and next_ms <= last_ms:
        found.append(next_ms)
        next_ms = rule.next_ms(next_ms)
    return found


def coming(count: int, *, every_ms: int = 100, in_ms: int = 300) -> list[datetime]:
    """Some instants of the near future."""
    first_ms = now_ms() + in_ms
    return [datetime.fromtimestamp((first_ms + every_ms * n) / 1000, UTC) for n in range(count)]


def lose(proxy: Proxy) -> None:
    """Have the server be out of reach, and hear nothing of what is sent to it."""
    proxy.hold_replies = proxy.hold_requests = True


def find(proxy: Proxy) -> None:
    """Have it be within reach again."""
    proxy.hold_replies = proxy.hold_requests = False
    proxy.cut()


def unbroken(rule: Rule, ran: Sequence[int]) -> bool:
    """Whether occurrences follow each other without a gap, each once."""
    return list(ran) == instants(rule, ran[0], ran[-1])


@contextmanager
def full(admin: redis.Redis) -> Iterator[None]:
    """The server at its memory limit."""
    admin.config_set("maxmemory", 1)
    try:
        yield
    finally:
        admin.config_set("maxmemory", 0)


@contextmanager
def denying(admin: redis.Redis, url: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """A URL that gives access, and what takes it away."""
    admin.execute_command("ACL", "SETUSER", "few", "reset", "on", ">pw", "~*", "+@all")
    try:
        yield (
            url.replace("//", "//few:pw@"),
            lambda: admin.execute_command("ACL", "SETUSER", "few", "-@all"),
        )
    finally:
        admin.acl_deluser("few")


async def shared_state(url: str) -> TaskState:
    """What those who share the task know of it, once nothing of it runs."""
    store = CoordinatedStore(url)
    await store.open()
    try:

        async def at_rest() -> bool:
            return (await store.look(TASK)).inflight is None

        await wait_until(at_rest, within=WITHIN, sentence="nothing runs")
        state = (await store.look(TASK)).state
    finally:
        await store.close()
    assert isinstance(state, TaskState)
    return state


async def stored_state(store: Store) -> TaskState | None:
    """What a plain store has of the task."""
    await store.open()
    try:
        (state,) = await store.load([TASK])
    finally:
        await store.close()
    assert state is None or isinstance(state, TaskState)
    return state


async def stopped(*members: Member) -> None:
    """Have them end."""
    for member in members:
        member.handle.cancel()
    for member in members:
        await member.end()


def left_over() -> set[str]:
    """The tasks of ours that still run on the loop."""
    return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("tampu")}
