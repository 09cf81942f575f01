"""The alerts of a queue: their states, and the notices that are to be delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from tampu.server.scripts.script import Script, as_number
from tampu.server.streams import entries_from
from tampu.util.options import Word
from tampu.wire.alerts import NOTICE_FIELD, NOTIFIER_FIELD, AlertNotice, encode_alert

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tampu.server.lane import Lane
    from tampu.server.protocol import Argument
    from tampu.wire.keys import QueueKeys

_CHANGE_ALERT = Script("change_alert")
STATES_KEPT_S: Final = 30 * 86_400
NOTICES_KEPT_S: Final = 86_400
MAX_NOTICES: Final = 1000


class Changed(Word):
    """The outcome of a change."""

    DONE = 1
    OUTDATED = 0  # the state is another one by now
    NOT_LEADING = -1


class AlertChange(Struct, frozen=True, kw_only=True):
    """A change of an alert's state: from the bytes that were read (None: none) to others.

    `notice` goes to each of the notifiers, which are numbered from 0.
    """

    key: bytes
    before: bytes | None
    after: bytes | None
    notice: AlertNotice | None = None
    notifiers: int = 0


async def change_alert(
    lane: Lane, keys: QueueKeys, change: AlertChange, *, holder: bytes
) -> Changed:
    """Change the state of an alert if it is as it was read, and we lead."""
    args: list[Argument] = [holder, change.key, change.before or b"", change.after or b""]
    args += (STATES_KEPT_S, NOTICES_KEPT_S, MAX_NOTICES)
    if change.notice is not None:
        packed = encode_alert(change.notice)
        for number in range(change.notifiers):
            args += (number, packed)
    scripted = (keys.alerts_lock, keys.alerts, keys.alert_notices)
    return Changed(as_number(await _CHANGE_ALERT.run(lane, scripted, args, repeatable=True)))


async def keep_alerts(lane: Lane, keys: QueueKeys) -> None:
    """Let the states of a queue's alerts expire later: an alert may last for months."""
    await lane.call("EXPIRE", keys.alerts, STATES_KEPT_S, repeatable=True)


class PendingNotice(Struct, frozen=True):
    """A notice that is to be delivered by the notifier with this number."""

    entry_id: bytes
    notifier: int
    packed: bytes

    @property
    def at_ms(self) -> int:
        """When it was noted, by the server's clock."""
        return int(self.entry_id.partition(b"-")[0])


async def pending_notices(lane: Lane, keys: QueueKeys, *, count: int) -> list[PendingNotice]:
    """The oldest notices that are to be delivered."""
    found = []
    for entry_id, flat in await entries_from(lane, keys.alert_notices, count=count):
        fields: dict[bytes, Any] = dict(zip((flat or [])[::2], (flat or [])[1::2], strict=False))
        number = fields.get(NOTIFIER_FIELD, b"")
        known = int(number) if number.isdigit() else -1
        found.append(PendingNotice(entry_id, known, fields.get(NOTICE_FIELD, b"")))
    return found


async def drop_notices(lane: Lane, keys: QueueKeys, entry_ids: Sequence[bytes]) -> None:
    """Forget notices that were delivered, or never will be."""
    await lane.call("XDEL", keys.alert_notices, *entry_ids, repeatable=True)
