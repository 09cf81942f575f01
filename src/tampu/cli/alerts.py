"""`tampu alerts`: the alerts that have fired, and those that resolved lately."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

import typer
from rich.console import RenderableType
from rich.text import Text

from tampu.admin.alerts import AlertState, queues_with_alerts, read_alerts
from tampu.cli.command import command
from tampu.cli.options import SharedOptions, new_app
from tampu.cli.screen import JsonObject, Screen, format_age, full_text, grid, short_text
from tampu.cli.target import check_queue
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tampu.server.streams import server_time_ms
from tampu.util.clock import instant
from tampu.wire.alerts import AlertPhase
from tampu.wire.keys import QueueKeys

_COLORS: Final = {AlertPhase.FIRED: "red", AlertPhase.RESOLVED: "green"}

app = new_app()

Queues = Annotated[
    list[str] | None,
    typer.Argument(metavar="[QUEUE]...", help="Queues. Default: all.", show_default=False),
]


@command(app, "alerts")
async def show_alerts(shared: SharedOptions, queues: Queues = None) -> None:
    """Show alerts that have fired, and those that resolved lately."""
    found: list[AlertState] = []
    now = datetime.now(UTC)
    async with await connect(shared.url) as server:
        for name in queues or await queues_with_alerts(server):
            keys = QueueKeys(name)
            async with await Lane.open(server, keys.stream) as lane:
                alerts = await read_alerts(lane, keys)
                if queues and not alerts:
                    await check_queue(server, lane, keys)
                found += alerts
                now = instant(await server_time_ms(lane))
    active = [each for each in found if each.phase is AlertPhase.FIRED]
    resolved = [each for each in found if each.phase is not AlertPhase.FIRED]
    data = {
        "active": [_json(each) for each in active],
        "resolved": [_json(each) for each in resolved],
    }
    Screen(shared).show(data, lambda: _table([*active, *resolved], now))


def _json(alert: AlertState) -> JsonObject:
    return {field: getattr(alert, field) for field in alert.__struct_fields__}


def _table(found: Sequence[AlertState], now: datetime) -> RenderableType:
    if not found:
        return Text("No alert has fired within a day.")
    table = grid("State", "Queue", "Alert", "Age", "What", numbers=("Age",), shrink=("What",))
    for each in found:
        is_active = each.phase is AlertPhase.FIRED
        phase = AlertPhase.FIRED if is_active else AlertPhase.RESOLVED
        table.add_row(
            Text(str(phase), style=_COLORS[phase]),
            short_text(each.queue),
            short_text(each.key),
            format_age(each.fired_at if is_active else each.resolved_at, now),
            full_text(each.sentence),
        )
    return table
