"""Schedules on the server: the scripts that store, pause, resume and fire them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from tampu.errors import CommandRefused
from tampu.metrics.history import KEPT_S
from tampu.server.protocol import pack
from tampu.server.scripts.script import Script
from tampu.server.streams import read_time_ms
from tampu.util.lifecycle import ignore_outcome
from tampu.wire.control import KEPT_MS

if TYPE_CHECKING:
    from tampu.server.lane import Lane
    from tampu.server.protocol import Argument
    from tampu.wire.keys import QueueKeys

_DUE = Script("due")
_FIRE = Script("fire")
_UPSERT = Script("upsert")
_UNSCHEDULE = Script("unschedule")
_PAUSE = Script("pause")
_RESUME = Script("resume")
RawFields: TypeAlias = list[bytes | None]
"""The values of the requested fields, in order."""


# --- firing -------------------------------------------------------------------------------------


class Armed(Struct, frozen=True):
    """The key of a schedule and its next instant, as the bytes of its score."""

    key: bytes
    score: bytes

    @property
    def due_ms(self) -> int | None:
        """The next instant; None if the score is no instant."""
        try:
            return int(float(self.score))
        except (ValueError, OverflowError):
            return None


class Due(Struct, frozen=True):
    """The schedules due at `now_ms` of the server's clock, and us until the next one is.

    `first` is the lowest score of all schedules that were not skipped.
    """

    now_ms: int
    next_in_us: int | None
    first: bytes | None
    schedules: list[Armed]


async def due(lane: Lane, keys: QueueKeys, *, skip: int, limit: int) -> Due:
    """The schedules that are due, oldest first, without the first `skip`."""
    reply: Any = await _DUE.run(lane, (keys.repeat,), (skip, limit), repeatable=True)
    now, next_in, first, *flat = reply
    schedules = [Armed(key, score) for key, score in zip(flat[::2], flat[1::2], strict=True)]
    first = flat[1] if flat else first or None
    return Due(int(now), next_in if next_in >= 0 else None, first, schedules)


class NewFire(Struct, frozen=True):
    """The job of one fire; with a `due_ms`, `body` is a delayed member."""

    at_ms: int
    body: bytes
    name: bytes
    extras: bytes
    job_id: str
    due_ms: int | None = None


class Firing(Struct, frozen=True, kw_only=True):
    """What to do with one due schedule; without a `next_ms` it is removed."""

    armed: Armed
    limit: int = 0
    overlap: str = "allow"
    missed: int = 0
    outside: int = 0
    overlapped: int = 0
    next_ms: int | None = None
    fires: Sequence[NewFire] = ()


class Fired(Struct, frozen=True):
    """The result of one firing: fires added, fires that met a running job, fires over the limit."""

    fired: int
    met: int
    past: int
    state: int

    @property
    def changed(self) -> bool:
        """Whether nothing was done because the schedule has changed since the decision."""
        return self.state == 0

    @property
    def held(self) -> bool:
        """Whether an instant waits until the job of an earlier one is done."""
        return self.state == 3


async def fire(
    lane: Lane,
    keys: QueueKeys,
    *,
    holder: bytes,
    events_max_len: int,
    history: bool = True,
    firings: Sequence[Firing],
) -> list[Fired] | None:
    """Fire many schedules in one step; None if the holder no longer leads.

    With `history`, missed instants are among the counts of the queue.

    Safe to send again: a schedule that has fired is no longer armed for the same instant.
    """
    fixed = (
        keys.scheduler_lock,
        keys.repeat,
        keys.stream,
        keys.delayed,
        keys.wakeup,
        keys.events,
        keys.counted,
        keys.gate,
    )
    args: list[Argument] = [holder, events_max_len, KEPT_S if history else 0]
    for each in firings:
        args += each.armed.key, each.armed.score, each.limit, each.overlap
        args += each.missed, each.outside, each.overlapped, _or_empty(each.next_ms)
        args.append(len(each.fires))
        for new in each.fires:
            args += new.at_ms, _or_empty(new.due_ms), new.body, new.name, new.extras, new.job_id
    hashes = [keys.raw_spec(each.armed.key) for each in firings]
    reply: Any = await _FIRE.run(lane, (*fixed, *hashes), args, repeatable=True)
    if reply is None:
        return None
    return [Fired(*reply[at : at + 4]) for at in range(0, len(reply), 4)]


# --- storing ------------------------------------------------------------------------------------


class NewLine(Struct, frozen=True):
    """A line in which jobs will wait, and what the gate must know for that; see `LinedJobs`."""

    name: bytes
    weight: bytes
    limits: Sequence[bytes]
    flags: bytes


class NewSpec(Struct, frozen=True):
    """A schedule to store; without a `first_ms` it keeps its next instant and its counts."""

    key: bytes
    spec: bytes
    own: bytes
    first_ms: int | None
    line: NewLine | None = None  # of its jobs, if flow control applies to them


async def upsert(lane: Lane, keys: QueueKeys, new: NewSpec, *, known: bytes) -> bool:
    """Store a schedule in place of the `known` spec (b"": none); False if that has changed.

    Sent again after a lost reply; then it is False too if the first time stored it. Raises
    `UnknownLimit`, and stores nothing, if its jobs need a limit that nobody has declared.
    """
    args: list[Argument] = [new.key, known, new.spec, new.own, _or_empty(new.first_ms)]
    fixed = (keys.repeat, keys.paused, keys.raw_spec(new.key), keys.schedule_wakeup)
    gate = (keys.gate, keys.control, keys.stream)
    if (line := new.line) is not None:
        args += KEPT_MS, line.flags, line.name, line.weight, *line.limits
    return bool(await _UPSERT.run(lane, (*fixed, *gate), args, repeatable=True))


async def unschedule(lane: Lane, keys: QueueKeys, key: bytes) -> bool:
    """Remove a schedule; False if there was none. Not sent again: the reply would be wrong."""
    fixed = (keys.repeat, keys.paused, keys.raw_spec(key))
    return bool(await _UNSCHEDULE.run(lane, fixed, (key,)))


async def pause(lane: Lane, keys: QueueKeys, key: bytes) -> bool:
    """Pause a schedule; False if it was paused or there is none. Not sent again."""
    return bool(await _PAUSE.run(lane, (keys.repeat, keys.paused), (key,)))


async def resume(
    lane: Lane, keys: QueueKeys, armed: Armed, *, next_ms: int | None, passed: int
) -> bool:
    """Resume a schedule; False if it has changed. Not sent again: the reply would be wrong."""
    fixed = (keys.repeat, keys.paused, keys.raw_spec(armed.key), keys.schedule_wakeup)
    args = (armed.key, armed.score, _or_empty(next_ms), passed)
    return bool(await _RESUME.run(lane, fixed, args))


# --- reading ------------------------------------------------------------------------------------


async def spec_fields(
    lane: Lane, keys: QueueKeys, schedules: Sequence[bytes], *, fields: Sequence[bytes]
) -> list[RawFields | None]:
    """Some fields of each schedule's hash, in one write; None for a key that is no hash."""
    calls = [
        lane.send(pack(b"HMGET", keys.raw_spec(key), *fields), repeatable=True) for key in schedules
    ]
    try:
        return [await _hash_fields(call) for call in calls]
    finally:
        for call in calls:
            call.add_done_callback(ignore_outcome)


async def list_armed(lane: Lane, keys: QueueKeys, *, limit: int) -> tuple[list[Armed], list[Armed]]:
    """The first active schedules and the first paused ones, by their next instants."""
    calls = [
        lane.send(pack(b"ZRANGE", key, 0, limit - 1, b"WITHSCORES"), repeatable=True)
        for key in (keys.repeat, keys.paused)
    ]
    replies: list[Any] = []
    try:
        replies = [await call for call in calls]
    finally:
        for call in calls:
            call.add_done_callback(ignore_outcome)
    armed, paused = (
        [Armed(key, score) for key, score in zip(flat[::2], flat[1::2], strict=True)]
        for flat in replies
    )
    return armed, paused


class ScheduleSnapshot(Struct, frozen=True):
    """One schedule at an instant of the server's clock: its scores in both sets and its fields."""

    now_ms: int
    armed: Armed | None
    paused: Armed | None
    fields: RawFields


async def read_snapshot(
    lane: Lane, keys: QueueKeys, key: bytes, *, fields: Sequence[bytes]
) -> ScheduleSnapshot:
    """What is stored of a schedule; if its key is no hash, all fields are None."""
    commands = (
        pack(b"TIME"),
        pack(b"ZSCORE", keys.repeat, key),
        pack(b"ZSCORE", keys.paused, key),
    )
    calls: list[Any] = [lane.send(packed, repeatable=True) for packed in commands]
    found = spec_fields(lane, keys, [key], fields=fields)
    try:
        time, armed, paused = [await call for call in calls]
    finally:
        for call in calls:
            call.add_done_callback(ignore_outcome)
    (values,) = await found
    return ScheduleSnapshot(
        read_time_ms(time),
        None if armed is None else Armed(key, armed),
        None if paused is None else Armed(key, paused),
        [None] * len(fields) if values is None else values,
    )


async def _hash_fields(call: Any) -> RawFields | None:  # noqa: ANN401 - a future of a reply
    try:
        reply: RawFields = await call
    except CommandRefused as refusal:
        if refusal.code != "WRONGTYPE":
            raise
        return None
    return reply


def _or_empty(number: int | None) -> Argument:
    return b"" if number is None else number
