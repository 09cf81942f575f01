"""Dead letters as dicts."""

from typing import Any

from tampu.admin.dead import DeadLetter
from tampu.compat.adapter.errors import as_theirs
from tampu.compat.adapter.integers import at_most
from tampu.compat.adapter.line import Line
from tampu.wire.dead import BuryReason


async def peeked(line: Line, limit: int) -> list[dict[str, Any]]:
    """The oldest dead letters; nothing is changed."""
    count = at_most(limit)
    if not count:
        return []
    with as_theirs():
        return [_letter(each) for each in await line.queue().dead.peek(count)]


async def replayed(line: Line, limit: int) -> int:
    """Put the oldest dead letters back on the queue; how many."""
    count = at_most(limit)
    if not count:
        return 0
    with as_theirs():
        return await line.queue().dead.replay(count)


def _letter(letter: DeadLetter) -> dict[str, Any]:
    reason = letter.reason
    return {
        "dlq_id": letter.dead_id,
        "source_id": letter.source_id,
        "reason": reason.value if isinstance(reason, BuryReason) else reason,
        "detail": letter.detail,
        "payload": b"" if reason is BuryReason.MALFORMED else letter.raw,
        "name": letter.name,
    }
