"""The alerts of all queues: those that have fired, and those that resolved lately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tampu.admin.alerts import read_alerts
from tampu.dashboard.page import Nav, Page, View
from tampu.server.streams import server_time_ms
from tampu.util.clock import instant
from tampu.util.lifecycle import run_all
from tampu.wire.alerts import AlertPhase
from tampu.wire.keys import QueueKeys

if TYPE_CHECKING:
    from datetime import datetime

    from tampu.admin.alerts import AlertState

_FRESH_S: Final = 4.0  # they are looked at every ten seconds


async def alerts_of(view: View, names: Sequence[str]) -> list[AlertState]:
    """The alerts of some queues: those that have fired first, then the latest that resolved."""

    async def read(name: str) -> list[AlertState]:
        keys = QueueKeys(name)

        async def ask() -> list[AlertState]:
            return await read_alerts(await view.source.lane(keys), keys)

        return await view.source.cache(("alerts", name), _FRESH_S, ask)

    found = [each for part in await run_all(read(name) for name in names) for each in part]
    return sorted(found, key=lambda each: (not is_active(each), -_changed_at(each).timestamp()))


def is_active(alert: AlertState) -> bool:
    """Whether an alert has fired and not resolved."""
    return alert.phase is AlertPhase.FIRED


def alert_text(alert: AlertState) -> str:
    """The sentence of an alert beside the name of its queue, without that name in it."""
    text = alert.sentence.removeprefix("Resolved. ").removeprefix(f"Queue {alert.queue!r}: ")
    return text[:1].upper() + text[1:]


def _changed_at(alert: AlertState) -> datetime:
    return (None if is_active(alert) else alert.resolved_at) or alert.fired_at or instant(0)


async def load(view: View) -> Mapping[str, object]:
    """All alerts that the visitor may see."""
    found = await alerts_of(view, await view.queues())
    return {
        "active": [(each, alert_text(each)) for each in found if is_active(each)],
        "resolved": [(each, alert_text(each)) for each in found if not is_active(each)],
        "now": instant(await server_time_ms(await view.source.lane(b"tampu"))),
    }


PAGES = (
    Page(
        path="alerts",
        template="alerts.html",
        load=load,
        nav=Nav("Alerts", 60, "a"),
        live=("active", "resolved"),
        every_s=2.0,
    ),
)
