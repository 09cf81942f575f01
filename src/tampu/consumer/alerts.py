"""Watches for alerts, and delivers what there is to tell: one worker of all that declare them."""

from __future__ import annotations

import logging
from math import ceil
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from tampu.admin.alerts import AlertObserver, raw_alerts
from tampu.errors import DecodeError
from tampu.metrics.alerts import Fire, Keep, evaluate, forget, notice_of
from tampu.server.lane import Lane
from tampu.server.scripts.alerts import (
    MAX_NOTICES,
    NOTICES_KEPT_S,
    AlertChange,
    Changed,
    change_alert,
    drop_notices,
    keep_alerts,
    pending_notices,
)
from tampu.server.scripts.workers import lead, resign
from tampu.server.service import Service
from tampu.server.streams import server_time_ms
from tampu.services.notify import JobSender, NotifyJob, sender_for
from tampu.util.clock import until_tick
from tampu.util.lifecycle import run_all
from tampu.util.pauses import Pauses
from tampu.wire.alerts import AlertPhase, StoredAlert, decode_notice, decode_state, encode_alert
from tampu.wire.fields import decode_text
from tampu.wire.keys import QueueKeys

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AsyncExitStack

    from tampu.consumer.queue_config import QueueConfig
    from tampu.metrics.alerts import Alert, Decision
    from tampu.server.listening import SharedParts
    from tampu.server.scripts.alerts import PendingNotice
    from tampu.services.notify import Notifier, Send

logger = logging.getLogger(__name__)
EVERY_S: float = 10.0
FORGET_AFTER_S: float = 600.0  # so a deployment that replaces workers one by one resolves nothing
FIRST_RETRY_S: float = 1.0
_LONGEST_RETRY_S: Final = 300.0
_KEPT_MS: Final = 86_400_000  # how long the state of an alert that has resolved is shown
_RENEW_STATES_S: Final = 3600.0
_RESIGN_S: Final = 2.0


class AlertWatch(NamedTuple):
    """The alerts of one queue, who watches for them, and how many notifiers there are."""

    alerts: Sequence[Alert]
    group: bytes
    holder: bytes
    notifiers: int


class AlertService(Service):
    """Evaluates the alerts of a queue while it leads.

    It has a lock of its own: the leader of the promoter may be a worker or a peer that knows
    nothing of the alerts, or there may be none because the queue has no worker.
    """

    name = "alerts"

    def __init__(self, lane: Lane, keys: QueueKeys, watch: AlertWatch) -> None:
        super().__init__(lane.server.outage, f"{self.name} of queue {keys.name!r}")
        self._lane, self._keys, self._watch = lane, keys, watch
        self._by_key = {each.key.encode(): each for each in watch.alerts}
        self._observer = AlertObserver(
            lane,
            keys,
            group=watch.group,
            needs={need for each in watch.alerts for need in each.condition.needs},
            minutes=max(each.minutes for each in watch.alerts),
        )
        self._leads_until = 0.0
        self._unknown: dict[bytes, float] = {}  # alerts that we do not declare, first seen then
        self._renew_at = 0.0
        self.delivery: DeliveryService | None = None

    @property
    def is_leading(self) -> bool:
        """Whether we still lead, by what the server said last."""
        return monotonic() < self._leads_until

    async def tick(self) -> float:
        """Look at the queue, and let alerts fire and resolve."""
        if not await self._lead():
            self._unknown.clear()
            return until_tick(EVERY_S)
        now_ms, seen = await self._observer.observe()
        stored = await raw_alerts(self._lane, self._keys)
        for key, alert in self._by_key.items():
            raw = stored.get(key)
            decision = evaluate(alert, seen, _read(raw), now_ms=now_ms)
            await self._change(key, raw, _trim(decision, now_ms))
        await self._forget(stored, now_ms)
        await self._renew(stored)
        if self.delivery is not None:
            self.delivery.wake()
        return until_tick(EVERY_S)

    async def clean_up(self) -> None:
        """Let another worker lead."""
        if self.is_leading:
            self._leads_until = 0.0
            lock, holder = self._keys.alerts_lock, self._watch.holder
            await resign(self._lane, lock, holder=holder, limit_s=_RESIGN_S)

    async def _lead(self) -> bool:
        now, ttl_s = monotonic(), max(1, ceil(3 * EVERY_S))
        lock, holder = self._keys.alerts_lock, self._watch.holder
        leads = await lead(self._lane, lock, holder=holder, ttl_s=ttl_s)
        self._leads_until = now + ttl_s if leads else 0.0
        return leads

    async def _change(self, key: bytes, raw: bytes | None, decision: Decision) -> None:
        """Store what was decided, unless nothing has changed; `raw` is the state as it was read."""
        after = encode_alert(decision.state)
        if isinstance(decision, Keep):
            kept = None if decision.state.phase is AlertPhase.QUIET else after
            if kept != raw:
                await self._send(AlertChange(key=key, before=raw, after=kept))
            return
        before = _read(raw) or decision.state
        notice = notice_of(decode_text(key), self._keys.name, decision, before=before)
        change = AlertChange(
            key=key, before=raw, after=after, notice=notice, notifiers=self._watch.notifiers
        )
        if await self._send(change):
            level = logging.WARNING if isinstance(decision, Fire) else logging.INFO
            facts = {"queue": notice.queue, "alert": notice.key, "state": str(notice.state)}
            logger.log(level, "alert %s: %s", notice.state, notice.sentence, extra=facts)

    async def _send(self, change: AlertChange) -> bool:
        holder = self._watch.holder
        changed = await change_alert(self._lane, self._keys, change, holder=holder)
        if changed is Changed.NOT_LEADING:
            self._leads_until = 0.0
        return changed is Changed.DONE

    async def _forget(self, stored: dict[bytes, bytes], now_ms: int) -> None:
        """Resolve alerts that nobody has declared while we led, for some minutes."""
        now = monotonic()
        found = stored.keys() - self._by_key.keys()
        self._unknown = {key: self._unknown.get(key, now) for key in found}
        for key, since in self._unknown.items():
            before = _read(stored[key])
            if before is None:
                await self._send(AlertChange(key=key, before=stored[key], after=None))
            elif before.phase is AlertPhase.RESOLVED:
                await self._change(key, stored[key], _trim(Keep(before), now_ms))
            elif now - since >= FORGET_AFTER_S:
                decision = forget(decode_text(key), self._keys.name, before, now_ms=now_ms)
                await self._change(key, stored[key], decision)

    async def _renew(self, stored: dict[bytes, bytes]) -> None:
        if stored and monotonic() >= self._renew_at:
            await keep_alerts(self._lane, self._keys)
            self._renew_at = monotonic() + _RENEW_STATES_S


def _read(packed: bytes | None) -> StoredAlert | None:
    try:
        return None if packed is None else decode_state(packed)
    except DecodeError:
        return None


def _trim(decision: Decision, now_ms: int) -> Decision:
    """The decision without the state of an alert that has resolved long ago."""
    state = decision.state
    if state.phase is AlertPhase.RESOLVED and now_ms - state.resolved_ms > _KEPT_MS:
        return Keep(StoredAlert(state.kind))
    return decision


# --- delivering ---------------------------------------------------------------------------------


class NoticeSender:
    """One notifier of a queue: its notices in order, with growing pauses while it fails."""

    def __init__(self, label: str, send: Send, *, queue: str) -> None:
        self._label, self._send, self._queue = label, send, queue
        self._pauses = Pauses(FIRST_RETRY_S, _LONGEST_RETRY_S, spread=Random())  # noqa: S311
        self._is_failing = False
        self.retry_at = 0.0

    async def deliver(self, pending: PendingNotice) -> bool:
        """Whether the notice was delivered, or never can be."""
        try:
            notice = decode_notice(pending.packed)
        except DecodeError as error:
            self._log("dropped a notice for %s (queue %r): %s", str(error))
            return True
        problem = await self._send(notice)
        if problem is None:
            if self._is_failing:
                self._is_failing = False
                self._log("notices for %s (queue %r) are delivered again%s", "")
            self._pauses.reset()
            return True
        if not self._is_failing:
            self._is_failing = True
            self._log("cannot deliver notices to %s (queue %r), retrying: it %s", problem)
        self.retry_at = monotonic() + self._pauses.next_s()
        return False

    def drop(self, count: int) -> None:
        """Note that notices are given up, because they are a day old."""
        text = "gave up notices for %s (queue %r): could not deliver them for a day (%s)"
        self._log(text, str(count))

    def _log(self, text: str, problem: str) -> None:
        facts = {"notifier": self._label, "queue": self._queue, "problem": problem}
        logger.warning(text, self._label, self._queue, problem, extra=facts)


class DeliveryService(Service):
    """Delivers the notices of a queue while its alerts are ours. Each at least once."""

    name = "alert-notices"

    def __init__(self, alerts: AlertService, lane: Lane, senders: Sequence[NoticeSender]) -> None:
        self._keys = alerts._keys
        super().__init__(lane.server.outage, f"{self.name} of queue {self._keys.name!r}")
        self._alerts, self._lane, self._senders = alerts, lane, senders

    async def tick(self) -> float:
        """Deliver what can be delivered now."""
        if not self._alerts.is_leading:
            return EVERY_S
        found = await pending_notices(self._lane, self._keys, count=MAX_NOTICES)
        if not found:
            return EVERY_S
        now_ms = await server_time_ms(self._lane)
        by_sender: dict[int, list[PendingNotice]] = {}
        for each in found:
            by_sender.setdefault(each.notifier, []).append(each)
        known = range(len(self._senders))
        await run_all(
            self._deliver(self._senders[number], notices, now_ms)
            for number, notices in by_sender.items()
            if number in known
        )
        waits = [
            self._senders[number].retry_at - monotonic() for number in by_sender.keys() & known
        ]
        return max(0.01, min([EVERY_S, *(each for each in waits if each > 0)]))

    async def _deliver(
        self, sender: NoticeSender, notices: list[PendingNotice], now_ms: int
    ) -> None:
        old = [each for each in notices if now_ms - each.at_ms > NOTICES_KEPT_S * 1000]
        if old:
            await drop_notices(self._lane, self._keys, [each.entry_id for each in old])
            sender.drop(len(old))
        for each in notices[len(old) :]:
            if not self._alerts.is_leading or monotonic() < sender.retry_at:
                return
            if not await sender.deliver(each):
                return
            await drop_notices(self._lane, self._keys, [each.entry_id])


# --- putting it together ------------------------------------------------------------------------


async def open_alerts(config: QueueConfig, parts: SharedParts, stack: AsyncExitStack) -> None:
    """Watch for the alerts of a worker until the stack is closed, each queue by itself."""
    settings = config.settings
    by_queue: dict[str, list[Alert]] = {}
    for alert in settings.alerts:
        bound = alert.bind(config.keys.name)
        by_queue.setdefault(str(bound.queue), []).append(bound)
    notifiers = settings.notifiers
    for queue, alerts in by_queue.items():
        keys = QueueKeys(queue)
        lane = await _open_lane(keys, parts, stack)
        watch = AlertWatch(alerts, settings.group.encode(), config.consumer, len(notifiers))
        service = AlertService(lane, keys, watch)
        senders = []
        for each in notifiers:
            send = await _open_send(each, config.keys, parts=parts, stack=stack)
            senders.append(NoticeSender(each.label, send, queue=queue))
        service.delivery = DeliveryService(service, lane, senders)
        stack.push_async_callback(service.stop)
        stack.push_async_callback(service.delivery.stop)
        service.start()
        service.delivery.start()


async def _open_lane(keys: QueueKeys, parts: SharedParts, stack: AsyncExitStack) -> Lane:
    lane = await Lane.open(parts.server, keys.stream, shared=parts.connections)
    stack.push_async_exit(lane)
    return lane


async def _open_send(
    notifier: Notifier, own: QueueKeys, *, parts: SharedParts, stack: AsyncExitStack
) -> Send:
    """What delivers notices; jobs without a queue of their own go to that of the worker."""
    if not isinstance(notifier, NotifyJob):
        return sender_for(notifier)
    keys = own if notifier.queue is None else QueueKeys(notifier.queue)
    return JobSender(await _open_lane(keys, parts, stack), keys, notifier.name)
