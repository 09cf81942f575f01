"""The alerts of a queue: which have fired, and what there is to see for those that may."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from tampu.admin.history import measure_gauges, processes_of, read_steps
from tampu.errors import AccessDenied, CommandRefused, DecodeError
from tampu.metrics.conditions import Need, Observation, ServerMemory
from tampu.metrics.history import Bucket, Span
from tampu.server.inspection import info_of, nodes_of
from tampu.server.scripts.history import read_hashes
from tampu.server.scripts.schedules import due, spec_fields
from tampu.server.streams import consumers, server_time_ms, values_of
from tampu.util.clock import instant
from tampu.wire.alerts import (
    EVERY_ALERTS,
    AlertKind,
    AlertPhase,
    StoredAlert,
    alerts_queue_of,
    decode_state,
)
from tampu.wire.fields import decode_text
from tampu.wire.holders import CONSUMER_PREFIX
from tampu.wire.schedule import HELD, decode_count

if TYPE_CHECKING:
    from collections.abc import Collection

    from tampu.server.connect import Server
    from tampu.server.lane import Lane
    from tampu.wire.history import Gauges
    from tampu.wire.keys import QueueKeys

_MOST_LATE: Final = 100
_PEER_IDLE_MS: Final = 60_000  # a peer's worker that has not asked for jobs for so long is gone


# --- what has fired -----------------------------------------------------------------------------


class AlertState(Struct, frozen=True, kw_only=True):
    """An alert of a queue as it is now."""

    queue: str
    key: str
    kind: AlertKind
    phase: AlertPhase
    sentence: str  # of the last time that it fired or resolved
    value: float  # at that time
    limit: float
    since: datetime | None  # when its condition began to hold, if it does
    fired_at: datetime | None
    resolved_at: datetime | None  # when it resolved after that


async def active_alerts(lane: Lane, keys: QueueKeys) -> list[AlertState]:
    """The alerts of a queue that have fired and not resolved, the latest first."""
    return [each for each in await read_alerts(lane, keys) if each.phase is AlertPhase.FIRED]


async def read_alerts(lane: Lane, keys: QueueKeys) -> list[AlertState]:
    """The alerts of a queue that have fired, or have resolved lately; the latest first."""
    stored = [each for each in await stored_alerts(lane, keys) if each[1].fired_ms]
    stored.sort(key=lambda each: each[1].resolved_ms or each[1].fired_ms, reverse=True)
    return [_alert_state(keys.name, *each) for each in stored]


async def stored_alerts(lane: Lane, keys: QueueKeys) -> list[tuple[str, StoredAlert]]:
    """The states of a queue's alerts, by key; those that cannot be read are left out."""
    found = []
    for key, packed in (await raw_alerts(lane, keys)).items():
        try:
            found.append((decode_text(key), decode_state(packed)))
        except DecodeError:
            continue
    return found


async def raw_alerts(lane: Lane, keys: QueueKeys) -> dict[bytes, bytes]:
    """The states of a queue's alerts as they are stored."""
    (fields,) = await read_hashes(lane, [keys.alerts])
    return fields


async def queues_with_alerts(server: Server) -> list[str]:
    """The queues that have states of alerts, sorted; scans all keys of the server."""
    names: set[str] = set()
    async with nodes_of(server) as nodes:
        for node in nodes:
            async for page in node.keys(EVERY_ALERTS, kind="hash"):
                names |= {name for key in page if (name := alerts_queue_of(key)) is not None}
    return sorted(names)


def _alert_state(queue: str, key: str, state: StoredAlert) -> AlertState:
    return AlertState(
        queue=queue,
        key=key,
        kind=state.kind,
        phase=state.phase,
        sentence=state.sentence,
        value=state.value,
        limit=state.limit,
        since=instant(state.since_ms) if state.since_ms else None,
        fired_at=instant(state.fired_ms) if state.fired_ms else None,
        resolved_at=instant(state.resolved_ms) if state.resolved_ms else None,
    )


# --- what there is to see -----------------------------------------------------------------------


class AlertObserver:
    """Looks at a queue for what its alerts need; with few commands, whatever is in the queue."""

    def __init__(
        self,
        lane: Lane,
        keys: QueueKeys,
        *,
        group: bytes,
        needs: Collection[Need],
        minutes: int,
    ) -> None:
        self._lane, self._keys, self._group = lane, keys, group
        self._needs, self._minutes = frozenset(needs), minutes
        self._past: dict[int, Bucket] = {}  # minutes that are over do not change

    async def observe(self) -> tuple[int, Observation]:
        """The time of the server's clock in ms, and what there is to see."""
        lane, keys, group, needs = self._lane, self._keys, self._group, self._needs
        now_ms = await server_time_ms(lane)
        gauges = await measure_gauges(lane, keys, group) if Need.GAUGES in needs else None
        overdue, workers = 0, None
        if Need.WORKERS in needs and gauges is not None:
            overdue, workers = await self._runnable(gauges, now_ms)
        lags = None
        if Need.PROCESSES in needs:
            lags = {each.worker: each.lag_ms for each in await processes_of(lane, keys, group)}
        return now_ms, Observation(
            gauges=gauges,
            overdue=overdue,
            workers=workers,
            minutes=await self._history(now_ms) if Need.HISTORY in needs else None,
            late=await late_schedules(lane, keys) if Need.SCHEDULES in needs else None,
            memory=await read_server_memory(lane) if Need.MEMORY in needs else None,
            lags=lags,
        )

    async def _runnable(self, gauges: Gauges, now_ms: int) -> tuple[int, int]:
        """Delayed jobs that are due, and workers; workers are counted only if there are jobs."""
        overdue = await _overdue(self._lane, self._keys, now_ms) if gauges.delayed else 0
        if not (gauges.waiting or gauges.active or overdue):
            return 0, 0
        return overdue, await _live_workers(self._lane, self._keys, self._group)

    async def _history(self, now_ms: int) -> list[Bucket]:
        """The last minutes, of which those that are over are read once."""
        present = now_ms // 60_000
        wanted = range(present - self._minutes + 1, present + 1)
        first = next((each for each in wanted if each not in self._past), present)
        read = range(first, present + 1)
        steps = await read_steps(self._lane, self._keys, Span.HOUR, numbers=read)
        known = {**self._past, **dict(zip(read, steps.buckets, strict=True))}
        # Another worker's clock may be some seconds behind.
        self._past = {each: known[each] for each in wanted if each < present - 1}
        return [known[each] for each in wanted]


async def _overdue(lane: Lane, keys: QueueKeys, now_ms: int) -> int:
    reply: Any = await lane.call("ZCOUNT", keys.delayed, "-inf", now_ms, repeatable=True)
    return int(reply)


async def _live_workers(lane: Lane, keys: QueueKeys, group: bytes) -> int:
    found = await consumers(lane, keys.stream, group)
    if not found:
        return 0
    heartbeats = await values_of(lane, [keys.worker(each.name) for each in found])
    return sum(
        heartbeat is not None
        or (not each.name.startswith(CONSUMER_PREFIX) and each.idle_ms < _PEER_IDLE_MS)
        for each, heartbeat in zip(found, heartbeats, strict=True)
    )


async def late_schedules(lane: Lane, keys: QueueKeys) -> dict[str, int]:
    """Schedules that are due and have not fired: ms since then. Those that must wait are not late.

    With an overlap policy, an instant waits until the job of the one before is done.
    """
    found = await due(lane, keys, skip=0, limit=_MOST_LATE)
    armed = [each for each in found.schedules if each.due_ms is not None]
    stored = await spec_fields(lane, keys, [each.key for each in armed], fields=(HELD,))
    late = {}
    for each, fields in zip(armed, stored, strict=True):
        due_ms = each.due_ms or 0
        held = fields[0] if fields else None
        if held is None or decode_count(held) != due_ms:
            late[decode_text(each.key)] = found.now_ms - due_ms
    return late


async def read_server_memory(lane: Lane) -> ServerMemory | None:
    """The memory of the node that a lane leads to; None if it does not tell."""
    try:
        info = await info_of(lane, "memory")
    except (CommandRefused, AccessDenied):
        return None
    names = ("used_memory", "maxmemory", "total_system_memory")
    used, limit, machine = (int(info.get(each, "0") or 0) for each in names)
    return ServerMemory(used, limit, info.get("maxmemory_policy", ""), machine)
