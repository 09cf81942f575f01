"""The limits of a queue: list them, change them while workers run, pause tasks and keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from tampu.errors import OptionError
from tampu.limits.model import Concurrency, Rate, check_any_limit, define
from tampu.limits.placing import check_key, check_weight
from tampu.server.gates import (
    read_limits,
    read_overrides,
    read_pauses,
    read_runs,
    read_weights,
    weights_of,
)
from tampu.server.scripts.control import pause_queue
from tampu.server.scripts.gate import Change, LineState, list_lines, tune
from tampu.util.clock import Duration, instant, instant_ms, now_ms, to_positive_ms
from tampu.util.options import at_least
from tampu.wire.lines import (
    FOREVER_MS,
    ORDERED,
    LimitDefinition,
    escape,
    limit_of,
    parse_breaker,
    parse_definition,
    resource_name,
    unescape,
)
from tampu.wire.names import check_job_name

if TYPE_CHECKING:
    from tampu.admin.control import OpenQueue
    from tampu.producer.connection import QueueConnection
    from tampu.server.lane import Lane
    from tampu.wire.keys import QueueKeys

MOST_LINES: Final = 10_000
_DECLARED: Final = "="
_MOST_EVERY: Final = 1_000_000


class LimitUse(Struct, frozen=True):
    """What one limit counts: for all jobs, or for one value."""

    value: str | None
    running: int
    concurrency: int | None = None  # its own, if it was changed by hand
    closed_until: datetime | None = None
    closed: bool = False  # True without an end: until somebody opens it
    waiting: int = 0  # jobs in lines that wait for it


class LimitInfo(Struct, frozen=True, kw_only=True):
    """A limit of a queue, and its values that are in use."""

    name: str
    concurrency: int | None
    rate: str | None
    burst: int
    strict: bool
    changed: bool  # by hand, from what the code declares
    uses: list[LimitUse]

    @property
    def running(self) -> int:
        """How many jobs it counts now, over all values."""
        return sum(each.running for each in self.uses)

    @property
    def waiting(self) -> int:
        """How many jobs wait for it, over all values."""
        return sum(each.waiting for each in self.uses)


class Pause(Struct, frozen=True):
    """A task, a key, or both, whose jobs are held."""

    task: str | None
    key: str | None
    until: datetime | None  # None: until somebody resumes it


class StoppedTask(Struct, frozen=True):
    """A task that its breaker has stopped: too many of its attempts failed."""

    task: str
    until: datetime | None  # then one of its jobs is tried; None: it is tried now


class KeyBacklog(Struct, frozen=True):
    """How many jobs of a key wait, and its share."""

    key: str
    waiting: int
    weight: float
    by_hand: bool = False  # whether somebody has set the weight


Connect = Callable[[], Awaitable["QueueConnection | OpenQueue"]]


class Limits:
    """The limits of one queue. Changes take effect at once, for all workers."""

    def __init__(self, keys: QueueKeys, connect: Connect) -> None:
        self._keys = keys
        self._connect = connect

    async def list(self) -> list[LimitInfo]:
        """The limits that the queue has, sorted by name, with the values that are in use."""
        lane = (await self._connect()).lane
        lines = await list_lines(lane, self._keys, most=MOST_LINES)
        overrides = await read_overrides(lane, self._keys)
        return await _list_limits(lane, self._keys, lines=lines, overrides=overrides)

    async def set(
        self, name: str, *limits: Concurrency | Rate, value: str | int | None = None
    ) -> None:
        """Change a limit; with `value`, the concurrency of one value only.

        `name` is that of `app.limit`, or a task with what it counts by: "charge()" for all jobs,
        "charge(tenant)". The change lasts until the code declares something else, or `reset`.
        """
        if value is None:
            change = Change("set", check_any_limit(name), define(limits).to_text())
        else:
            (only, *more) = limits or (None,)
            if not isinstance(only, Concurrency) or more:
                raise OptionError("limits", limits, "one value can have a Concurrency of its own")
            resource = resource_name(check_any_limit(name), check_key("value", value))
            change = Change("value", resource, str(only.most))
        await self._tune(change)

    async def reset(self, name: str, *, value: str | int | None = None) -> bool:
        """Let a limit be as the code declares it again; False if there was nothing to change."""
        if value is None:
            return bool(await self._tune(Change("reset", check_any_limit(name))))
        resource = resource_name(check_any_limit(name), check_key("value", value))
        return bool(await self._tune(Change("value", resource, "-")))

    async def open(self, name: str, *, value: str | int | None = None) -> bool:
        """Open a limit that a handler has closed with `RateLimited`; False if it was open."""
        key = None if value is None else check_key("value", value)
        return bool(await self._tune(Change("open", resource_name(check_any_limit(name), key))))

    async def weigh(self, key: str | int, weight: float | None) -> None:
        """Give a key another share than its jobs say; None: as they say again."""
        share = "" if weight is None else repr(check_weight(weight))
        await self._tune(Change("weight", escape(check_key("key", key)), share))

    async def serve_lower(self, every: int | None) -> None:
        """Choose how often a job of a lower priority passes before higher ones.

        Every so many jobs; 0: never; None: every 16, as at first. This holds for the whole queue.
        """
        if every is not None:
            at_least("every", every, 0, most=_MOST_EVERY)
        await self._tune(Change("every", "", "" if every is None else str(int(every))))

    async def declare(self, limits: Mapping[str, LimitDefinition]) -> Mapping[str, LimitDefinition]:
        """Store limits as code declares them; those that were different before, as they were."""
        changes = [Change("declare", name, limits[name].to_text()) for name in sorted(limits)]
        before = await tune((await self._connect()).lane, self._keys, changes)
        pairs = zip(sorted(limits), before, strict=True)
        return {name: parse_definition(text) for name, text in pairs if text}

    async def pauses(self) -> Sequence[Pause]:
        """The tasks and keys that are paused now."""
        return await _list_pauses((await self._connect()).lane, self._keys)

    async def stopped_tasks(self) -> Sequence[StoppedTask]:
        """The tasks that their breakers have stopped. `queue.resume(task=...)` starts them."""
        return _list_stopped(await read_overrides((await self._connect()).lane, self._keys))

    async def keys(self, most: int = MOST_LINES) -> Sequence[KeyBacklog]:
        """The keys that have waiting jobs, those with the most first."""
        lane = (await self._connect()).lane
        waiting = _backlogs(await list_lines(lane, self._keys, most=most))
        weights = await read_weights(lane, self._keys)
        return [
            _key_backlog(key, count, weights.get(escape(key))) for key, count in waiting.items()
        ]

    async def _tune(self, change: Change) -> str:
        (before,) = await tune((await self._connect()).lane, self._keys, [change])
        return before


# --- all of it at once --------------------------------------------------------------------------


class QueueHolds(Struct, frozen=True, kw_only=True):
    """The limits of a queue, the keys that wait, those with the most first, and what is paused."""

    limits: list[LimitInfo]
    keys: list[KeyBacklog]
    more_keys: int  # that wait too
    pauses: list[Pause]
    halted: list[str]  # keys of ordered jobs that stopped at a dead letter
    stopped: list[StoppedTask]
    searched_all: bool  # False if there are more lines than were looked at


async def read_queue_holds(
    lane: Lane, keys: QueueKeys, *, most_keys: int, most_lines: int = MOST_LINES
) -> QueueHolds:
    """What holds the jobs of a queue. Its lines are read once."""
    lines = await list_lines(lane, keys, most=most_lines)
    overrides = await read_overrides(lane, keys)
    waiting = list(_backlogs(lines).items())
    weights = await weights_of(lane, keys, [escape(key) for key, _ in waiting[:most_keys]])
    return QueueHolds(
        limits=await _list_limits(lane, keys, lines=lines, overrides=overrides),
        keys=[
            _key_backlog(key, count, weight)
            for (key, count), weight in zip(waiting[:most_keys], weights, strict=True)
        ],
        more_keys=max(0, len(waiting) - most_keys),
        pauses=await _list_pauses(lane, keys),
        halted=sorted(_halted_keys(overrides)),
        stopped=_list_stopped(overrides),
        searched_all=len(lines) < most_lines,
    )


async def _list_limits(
    lane: Lane, keys: QueueKeys, *, lines: Sequence[LineState], overrides: Mapping[str, str]
) -> list[LimitInfo]:
    texts = await read_limits(lane, keys)
    uses = _uses(await read_runs(lane, keys), overrides, lines)
    return [
        _limit_info(name, text, declared=texts.get(_DECLARED + name), uses=uses.get(name, []))
        for name, text in sorted(texts.items())
        if not name.startswith(_DECLARED)
    ]


async def _list_pauses(lane: Lane, keys: QueueKeys) -> list[Pause]:
    found = await read_pauses(lane, keys)
    return [parse_pause(what, until) for what, until in sorted(found.items()) if until > now_ms()]


def _backlogs(lines: Sequence[LineState]) -> dict[str, int]:
    """How many jobs of each key wait, those with the most first."""
    waiting: dict[str, int] = {}
    for each in lines:
        key = key_of(each.line.decode("utf-8", "replace"))
        if key is not None:
            waiting[key] = waiting.get(key, 0) + each.length
    return dict(sorted(waiting.items(), key=lambda each: -each[1]))


def _key_backlog(key: str, waiting: int, weight: str | None) -> KeyBacklog:
    stored = weight or "1"
    share = float(stored.lstrip("=").partition(" ")[0])
    return KeyBacklog(key, waiting, share, stored.startswith("="))


def _halted_keys(overrides: Mapping[str, str]) -> Iterator[str]:
    for name, text in overrides.items():
        limit, key = limit_of(name)
        if limit == ORDERED and key is not None and _closed_until_ms(text) >= FOREVER_MS:
            yield key


def _list_stopped(overrides: Mapping[str, str]) -> list[StoppedTask]:
    stopped: dict[str, int] = {}
    for name, text in overrides.items():
        breaker = parse_breaker(name)
        if breaker is not None:  # a task has several if its code has changed
            stopped[breaker.task] = max(stopped.get(breaker.task, 0), _closed_until_ms(text))
    return [
        StoppedTask(task, instant(until_ms) if until_ms > now_ms() else None)
        for task, until_ms in sorted(stopped.items())
    ]


def _closed_until_ms(override: str) -> int:
    return int(float(override.partition(" ")[2] or 0))


# --- pausing ------------------------------------------------------------------------------------


async def pause_jobs(
    lane: Lane,
    keys: QueueKeys,
    *,
    task: str | None,
    key: str | int | None,
    until: datetime | Duration | None,
) -> bool:
    """Let no worker start jobs of a queue, a task, a key or both; False if it was so already."""
    if task is None and key is None:
        if until is not None:
            raise OptionError("until", until, "only a task or a key can be paused until a time")
        return await pause_queue(lane, keys, paused=True)
    if until is None:
        end = str(FOREVER_MS)
    elif isinstance(until, datetime):
        end = str(instant_ms("until", until))
    else:
        end = f"+{to_positive_ms('until', until)}"
    (before,) = await tune(lane, keys, [Change("pause", _what_of(task, key), end)])
    return not before


async def resume_jobs(
    lane: Lane, keys: QueueKeys, *, task: str | None, key: str | int | None
) -> bool:
    """Let workers start them again; False if they were not paused."""
    if task is None and key is None:
        return await pause_queue(lane, keys, paused=False)
    changes = [Change("resume", _what_of(task, key))]
    if key is None:
        names = {name: parse_breaker(name) for name in await read_overrides(lane, keys)}
        tripped = [name for name, each in names.items() if each is not None and each.task == task]
        changes += [Change("value", name, "-") for name in tripped]
    elif task is None:  # ordered jobs of a key stop if one of them says so
        changes.append(Change("open", resource_name(ORDERED, check_key("key", key))))
    return any(await tune(lane, keys, changes))


def _what_of(task: str | None, key: str | int | None) -> str:
    """How the gate names what is paused."""
    name = "" if task is None else escape(check_job_name(task))
    return name if key is None else f"{name}/{escape(check_key('key', key))}"


def parse_pause(what: str, until_ms: int) -> Pause:
    """The task and key in the name of a pause."""
    task, slash, key = what.partition("/")
    return Pause(
        unescape(task) or None,
        unescape(key) if slash else None,
        None if until_ms >= FOREVER_MS else instant(until_ms),
    )


def key_of(line: str) -> str | None:
    """The key of a line, if it has one."""
    head = line.partition("|")[0]
    return unescape(head[2:]) if head[1:2] == "/" else None


def _limit_info(name: str, text: str, *, declared: str | None, uses: list[LimitUse]) -> LimitInfo:
    definition = parse_definition(text)
    return LimitInfo(
        name=unescape(name),
        concurrency=definition.concurrency or None,
        rate=definition.rate_text,
        burst=definition.burst,
        strict=definition.strict,
        changed=declared is not None and declared != text,
        uses=uses,
    )


def _uses(
    runs: Mapping[str, int], overrides: Mapping[str, str], lines: Sequence[LineState]
) -> dict[str, list[LimitUse]]:
    """What is in use of each limit."""
    waiting: dict[str, int] = {}
    for line in lines:
        if line.resource:
            name = line.resource.decode("utf-8", "replace")
            waiting[name] = waiting.get(name, 0) + line.length
    found: dict[str, list[LimitUse]] = {}
    for name in sorted({*runs, *overrides, *waiting}):
        limit, value = limit_of(name)
        override = overrides.get(name, "- 0")
        own, until_ms = override.partition(" ")[0], _closed_until_ms(override)
        is_closed = until_ms > now_ms()
        use = LimitUse(
            value,
            runs.get(name, 0),
            None if own == "-" else int(own),
            instant(until_ms) if is_closed and until_ms < FOREVER_MS else None,
            is_closed,
            waiting.get(name, 0),
        )
        found.setdefault(limit, []).append(use)
    return found
