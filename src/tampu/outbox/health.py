"""Whether an outbox can be used, for `tampu doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tampu.admin.health import Finding, Grade
from tampu.errors import TampuError, duration_text
from tampu.outbox.schema import MOST_COUNTED
from tampu.util.clock import now_ms

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tampu.outbox.outbox import Outbox
    from tampu.outbox.rows import RowCounts

_LATE_S: Final = 60.0


async def examine_outboxes(outboxes: Iterable[Outbox]) -> list[Finding]:
    """A finding for each outbox that has a database. Changes nothing."""
    return [await _examine(each) for each in outboxes]


async def _examine(outbox: Outbox) -> Finding:
    check, rows = f"outbox {outbox.name}", outbox.rows()
    try:
        await rows.check()
        counts = await rows.count()
    except TampuError as error:
        return Finding(check, Grade.FAIL, str(error))
    finally:
        await rows.close()
    return Finding(check, *judge_rows(counts, now_ms()))


def judge_rows(counts: RowCounts, at_ms: int) -> tuple[Grade, str]:
    """What the rows of an outbox say about it. Pure."""
    total = counts.waiting + counts.refused
    most = "at least " if total >= MOST_COUNTED else ""
    if counts.refused:
        todo = "see `tampu outbox ls --refused`"
        return Grade.WARN, f"{most}{counts.refused} rows were set aside; {todo}"
    oldest_s = 0 if counts.oldest_at_ms is None else (at_ms - counts.oldest_at_ms) // 1000
    if oldest_s >= _LATE_S:
        waiting = f"{most}{counts.waiting} rows wait, the oldest for {duration_text(oldest_s)}"
        return Grade.WARN, f"{waiting}; start a worker, or run `tampu outbox relay`"
    return Grade.OK, f"the table can be read, {most}{counts.waiting} rows wait"
