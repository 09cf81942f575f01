"""Outboxes in databases: waking their relay, and how they are doing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tampu.server.scripts.script import Script
from tampu.server.streams import server_time_ms
from tampu.wire.outbox import OutboxFigures

if TYPE_CHECKING:
    from tampu.server.lane import Lane
    from tampu.wire.keys import QueueKeys

_WAKE_RELAY: Final = Script("wake_relay")
_NOTE_OUTBOX: Final = Script("note_outbox")
_WAKEUP_MS: Final = 10_000
_KEPT_S: Final = 86_400


async def wake_relay(lane: Lane, keys: QueueKeys, name: str) -> None:
    """Wake the relay of an outbox."""
    await _WAKE_RELAY.run(lane, (keys.relay_wakeup(name),), (_WAKEUP_MS,), repeatable=True)


async def note_outbox(lane: Lane, keys: QueueKeys, name: str, *, now: OutboxFigures) -> None:
    """Note the rows of an outbox, and add to what its relays have moved.

    Not repeatable: it counts.
    """
    figures = (now.waiting, now.refused, now.oldest_ms, now.moved, now.duplicates)
    await _NOTE_OUTBOX.run(lane, (keys.outboxes,), (name.encode(), *figures, _KEPT_S))


async def read_outboxes(lane: Lane, keys: QueueKeys) -> dict[str, OutboxFigures]:
    """The figures of every outbox whose home is this queue, by name."""
    flat: Any = await lane.call("HGETALL", keys.outboxes, repeatable=True)
    if not flat:
        return {}
    now_ms, found = await server_time_ms(lane), dict[str, dict[str, int]]()
    for field, value in zip(flat[::2], flat[1::2], strict=True):
        figure, _, name = bytes(field).decode("utf-8", "replace").partition(":")
        if figure in OutboxFigures.__struct_fields__:
            found.setdefault(name, {})[figure] = int(value)
    return {name: OutboxFigures(**figures).as_of(now_ms) for name, figures in sorted(found.items())}
