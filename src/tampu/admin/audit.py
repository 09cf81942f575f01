"""The record of what was done by hand, and of actions on many jobs. Both are kept for a while."""

from __future__ import annotations

import re
from datetime import datetime
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from tampu.errors import DecodeError
from tampu.server.inspection import entries_down_from
from tampu.server.streams import server_time_ms
from tampu.util.clock import instant
from tampu.wire.audit import (
    AUDIT,
    PREPARED,
    RUNNING,
    AuditEntry,
    bulk_key,
    decode_audit,
    decode_progress,
    encode_audit,
    encode_plan,
)

if TYPE_CHECKING:
    from tampu.server.lane import Lane
    from tampu.wire.audit import BulkPlan, BulkProgress

MAX_AUDITED: Final = 10_000
_PLAN_S: Final = 3_600
_RUN_S: Final = 7 * 86_400
_BULK_ID: Final = re.compile(r"[A-Za-z0-9_-]{8,64}")


class Audited(Struct, frozen=True):
    """An entry of the audit stream."""

    id: str
    at: datetime
    entry: AuditEntry


async def note(lane: Lane, entry: AuditEntry) -> None:
    """Write down what was done; the lane must lead to `AUDIT`."""
    await lane.call("XADD", AUDIT, "MAXLEN", "~", MAX_AUDITED, "*", *encode_audit(entry))


async def read_audit(lane: Lane, *, after: str = "", count: int) -> list[Audited]:
    """What was done, the latest first; after an id, what came before it."""
    start = b"(" + after.encode() if after else b"+"
    found = []
    for entry_id, fields in await entries_down_from(lane, AUDIT, start=start, count=count):
        try:
            entry = decode_audit(fields or ())
        except DecodeError:
            continue
        at = instant(int(entry_id.partition(b"-")[0]))
        found.append(Audited(entry_id.decode(), at, entry))
    return found


# --- actions on many jobs -----------------------------------------------------------------------


def new_bulk_id() -> str:
    """An id that nobody can guess."""
    return token_hex(16)


def is_bulk_id(given: str) -> bool:
    """Whether this may be the id of an action."""
    return _BULK_ID.fullmatch(given) is not None


class BulkRecord:
    """One action on many jobs, as every dashboard sees it; the lane must lead to its key."""

    def __init__(self, lane: Lane, bulk_id: str) -> None:
        self._lane = lane
        self._key = bulk_key(bulk_id)
        self._claim = token_hex(16)

    async def prepare(self, plan: BulkPlan) -> None:
        """Keep a plan, for an hour."""
        await self._set(_PLAN_S, plan=encode_plan(plan), state=PREPARED)

    async def read(self) -> BulkProgress | None:
        """The plan and how far it is; None if there is none, or none any more."""
        reply: Any = await self._lane.call("HGETALL", self._key, repeatable=True)
        try:
            return decode_progress(reply) if reply else None
        except DecodeError:
            return None

    async def start(self) -> bool:
        """Whether the caller is the one who may run it: true once, whoever asks how often."""
        await self._lane.call("HSETNX", self._key, "started", self._claim, repeatable=True)
        owner: Any = await self._lane.call("HGET", self._key, "started", repeatable=True)
        if owner != self._claim.encode():
            return False
        await self._set(_RUN_S, state=RUNNING, seen_ms=await server_time_ms(self._lane))
        return True

    async def report(self, changed: int) -> bool:
        """Say how far it is; False if somebody wants it to end."""
        await self._set(_RUN_S, changed=changed, seen_ms=await server_time_ms(self._lane))
        return not await self._lane.call("HEXISTS", self._key, "abort", repeatable=True)

    async def abort(self, user: str) -> None:
        """Ask for its end."""
        await self._set(_RUN_S, abort=user or "-")

    async def finish(self, state: str, changed: int, *, problem: str = "") -> None:
        """Say what happened to it."""
        await self._set(_RUN_S, state=state, changed=changed, problem=problem)

    async def _set(self, kept_s: int, **fields: bytes | str | int) -> None:
        flat = [part for pair in fields.items() for part in pair]
        await self._lane.call("HSET", self._key, *flat, repeatable=True)
        await self._lane.call("EXPIRE", self._key, kept_s, repeatable=True)
