"""Settling entries: the scripts `finish`, `retry` and `bury`, each called once for a batch."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct

from tampu.server.lane import Lane
from tampu.server.protocol import Argument
from tampu.server.scripts.script import Script, as_flags

# --- settling -----------------------------------------------------------------------------------

_FINISH = Script("finish")
_RETRY = Script("retry")
_BURY = Script("bury")


class Claim(Struct, frozen=True):
    """In whose name entries are settled. With an `owner`, only what it still holds is."""

    stream: bytes
    group: bytes
    owner: bytes = b""


class FinishedEntry(Struct, frozen=True, gc=False):
    """An entry whose handler returned, and where its result goes; b"" for none."""

    entry_id: bytes
    result: bytes
    key: bytes


class RetriedEntry(Struct, frozen=True, gc=False):
    """An entry whose job is to run again: its envelope now, or its member after a wait."""

    entry_id: bytes
    wait_ms: int | None
    body: bytes
    name: bytes = b""
    extras: bytes = b""


class BuriedEntry(Struct, frozen=True):
    """An entry to bury: the dead letter's fields, and what those who wait are told, if anything."""

    entry_id: bytes
    fields: Sequence[bytes]
    failure: bytes = b""
    key: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTarget:
    """Where results are told of, the ids to tell (b"": nobody waits), how long results are kept."""

    notices: bytes
    notice: bytes
    ttl_s: int


async def finish(
    lane: Lane, claim: Claim, entries: Sequence[FinishedEntry], *, shelf: ResultTarget
) -> bytes:
    """Settle entries and keep their results; one letter each, b"1" where it was ours to settle."""
    keys = (claim.stream, shelf.notices, *[entry.key for entry in entries])
    args: list[Argument] = [*_settling(lane, claim), shelf.ttl_s, shelf.notice]
    for entry in entries:
        args += entry.entry_id, entry.result
    return as_flags(await _FINISH.run(lane, keys, args, repeatable=True))


async def retry(
    lane: Lane, claim: Claim, entries: Sequence[RetriedEntry], *, delayed: bytes, bell: bytes
) -> bytes:
    """Have jobs run again; one letter each, b"1" where it was ours to settle."""
    args: list[Argument] = _settling(lane, claim)
    for entry in entries:
        wait = b"" if entry.wait_ms is None else entry.wait_ms
        args += entry.entry_id, wait, entry.body, entry.name, entry.extras
    keys = (claim.stream, delayed, bell)
    return as_flags(await _RETRY.run(lane, keys, args, repeatable=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadTarget:
    """Where dead letters go, how many are kept (0: all), and how those who wait are told."""

    dead: bytes
    notices: bytes
    max_len: int
    ttl_s: int


async def bury(
    lane: Lane,
    claim: Claim,
    entries: Sequence[BuriedEntry],
    *,
    graveyard: DeadTarget,
    notice: bytes,
) -> bytes:
    """Move entries to the dead letters; one letter each, b"1" where it was ours to settle."""
    keys = [claim.stream, graveyard.dead, graveyard.notices]
    keys += [entry.key for entry in entries if entry.failure]
    args: list[Argument] = _settling(lane, claim)
    args += graveyard.max_len, graveyard.ttl_s, notice
    for entry in entries:
        args += entry.entry_id, entry.failure, len(entry.fields), *entry.fields
    return as_flags(await _BURY.run(lane, keys, args, repeatable=True))


def _settling(lane: Lane, claim: Claim) -> list[Argument]:
    """The arguments by which the three scripts settle."""
    return [claim.group, claim.owner, int(lane.server.dialect.ack_and_delete)]
