"""Settling entries, dead letters and events: one call of a script for each batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct

from tampu.server.scripts.script import Script, as_flags, as_number
from tampu.wire.control import KEPT_MS

if TYPE_CHECKING:
    from tampu.server.lane import Lane
    from tampu.server.protocol import Argument
    from tampu.wire.extras import Extras
    from tampu.wire.keys import QueueKeys

_ACK = Script("ack")
_FINISH = Script("finish")
_RETRY = Script("retry")
_BURY = Script("bury")
_CLOSE = Script("close")
_REPLAY = Script("replay")
_PURGE = Script("purge")
_EMIT = Script("emit")


async def load_settling(lane: Lane) -> None:
    """Load what workers settle with: a call that has to load its script first takes two trips."""
    await Script.load_missing(lane, (_ACK, _FINISH, _RETRY, _BURY, _CLOSE))


class Claim(Struct, frozen=True):
    """Whose entries are settled. With an `owner`, only those that it still holds."""

    stream: bytes
    group: bytes
    gate: bytes
    owner: bytes = b""


class Markers(Struct, frozen=True):
    """The markers that a job holds: a letter for the kind of each, and their keys."""

    kinds: str = ""
    keys: tuple[bytes, ...] = ()


NO_MARKERS = Markers()
CANCELLED_TTL_S = 3600
"""How long callers who wait for a job learn that it was cancelled."""


def unique_marker(keys: QueueKeys, extras: Extras) -> Markers:
    """The unique key that a job holds, if it has one."""
    held = extras.unique
    return NO_MARKERS if held is None else Markers("u", (keys.unique(held.key),))


def all_markers(keys: QueueKeys, job_id: str, extras: Extras) -> Markers:
    """All that a job may hold: the marker of its id, and its unique key."""
    unique = unique_marker(keys, extras)
    return Markers("m" + unique.kinds, (keys.marker(job_id), *unique.keys))


class FinishedEntry(Struct, frozen=True, gc=False):
    """An entry whose handler returned: its result, b"" for none, and the key for it."""

    entry_id: bytes
    result: bytes
    key: bytes


class RetriedEntry(Struct, frozen=True, gc=False):
    """An entry whose job runs again: `body` is its envelope, or its member if it has to wait."""

    entry_id: bytes
    wait_ms: int | None
    body: bytes
    name: bytes = b""
    extras: bytes = b""
    index_s: int | None = None  # how long it is found by its id; None for an id of our own
    keys: tuple[bytes, ...] = ()  # with an `index_s`: its index, the marker of its id
    closes: bytes = b""  # the resources that are closed while it waits at the head of its line
    refunds: bool = False  # it passed the gate and did not start: its tokens of rates go back


class BuriedEntry(Struct, frozen=True):
    """An entry to bury: the fields of the dead letter, and the failure for waiting callers."""

    entry_id: bytes
    fields: Sequence[bytes]
    failure: bytes = b""
    key: bytes = b""
    job_id: str = ""
    markers: Markers = NO_MARKERS
    closes: bytes = b""  # the resource that is closed until somebody opens it


class ClosedEntry(Struct, frozen=True):
    """An entry whose job held markers or was cancelled: what is stored, where, and what is freed.

    `request` is the request to cancel the job, b"" for none; `run` that of its stream, if it may
    have one.
    """

    entry_id: bytes
    job_id: str
    value: bytes
    key: bytes
    markers: Markers = NO_MARKERS
    request: bytes = b""
    run: bytes = b""
    failed: bool = False  # the value is a failure


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTarget:
    """Where results are announced, the notice (b"": none), and how long results are kept."""

    notices: bytes
    notice: bytes
    ttl_s: int


async def ack(lane: Lane, claim: Claim, entry_ids: Sequence[bytes]) -> int:
    """Ack entries without results, by a script: it checks the owner, and frees what they held."""
    args = [*claim_args(lane, claim), *entry_ids]
    return as_number(await _ACK.run(lane, (claim.stream, claim.gate), args, repeatable=True))


async def finish(
    lane: Lane, claim: Claim, entries: Sequence[FinishedEntry], *, target: ResultTarget
) -> bytes:
    """Ack entries and store their results; one flag each, b"1" if the entry was ours to settle."""
    keys = (claim.stream, target.notices, claim.gate, *[entry.key for entry in entries])
    args: list[Argument] = [*claim_args(lane, claim), target.ttl_s, target.notice]
    for entry in entries:
        args += entry.entry_id, entry.result
    return as_flags(await _FINISH.run(lane, keys, args, repeatable=True))


async def retry(
    lane: Lane, claim: Claim, entries: Sequence[RetriedEntry], *, keys: QueueKeys
) -> bytes:
    """Run jobs again; one flag each, b"1" if the entry was ours to settle."""
    args: list[Argument] = [*claim_args(lane, claim), KEPT_MS]
    for entry in entries:
        wait = b"" if entry.wait_ms is None else entry.wait_ms
        index = b"" if entry.index_s is None else entry.index_s
        args += entry.entry_id, wait, entry.body, entry.name, entry.extras, index, entry.closes
        args.append(int(entry.refunds))
    own = [key for entry in entries if entry.keys for key in entry.keys]
    fixed = (keys.stream, keys.delayed, keys.wakeup, keys.gate, keys.control)
    return as_flags(await _RETRY.run(lane, (*fixed, *own), args, repeatable=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadTarget:
    """Where dead letters go, how many are kept (0: all), and how failures are announced."""

    dead: bytes
    notices: bytes
    max_len: int
    ttl_s: int


async def bury(
    lane: Lane,
    claim: Claim,
    entries: Sequence[BuriedEntry],
    *,
    target: DeadTarget,
    notice: bytes,
) -> bytes:
    """Move entries to the dead letters; one flag each, b"1" if the entry was ours to settle."""
    keys = [claim.stream, target.dead, target.notices, claim.gate]
    args: list[Argument] = claim_args(lane, claim)
    args += target.max_len, target.ttl_s, notice
    for entry in entries:
        keys += ([entry.key] if entry.failure else []) + [*entry.markers.keys]
        args += entry.entry_id, entry.failure, entry.markers.kinds, entry.job_id, entry.closes
        args += len(entry.fields), *entry.fields
    return as_flags(await _BURY.run(lane, keys, args, repeatable=True))


async def close(
    lane: Lane,
    claim: Claim,
    entries: Sequence[ClosedEntry],
    *,
    target: ResultTarget,
    requests: bytes,
) -> bytes:
    """Ack entries, store results or failures, free markers; one flag each, as `finish`."""
    keys = [claim.stream, target.notices, requests, claim.gate]
    args: list[Argument] = [*claim_args(lane, claim), target.ttl_s, target.notice]
    for entry in entries:
        keys += ([entry.key] if entry.value else []) + [*entry.markers.keys]
        args += entry.entry_id, entry.value, entry.markers.kinds, entry.job_id, entry.request
        args += entry.run, int(entry.failed)
    return as_flags(await _CLOSE.run(lane, keys, args, repeatable=True))


def claim_args(lane: Lane, claim: Claim) -> list[Argument]:
    """The arguments that scripts which settle entries have in common."""
    return [claim.group, claim.owner, int(lane.server.dialect.ack_and_delete)]


class Replay(Struct, frozen=True):
    """A dead letter to replay: its id, what to add, the key of its failure, its job's id."""

    dead_id: bytes
    body: bytes
    name: bytes
    extras: bytes
    failure_key: bytes
    job_id: str


async def replay(lane: Lane, keys: QueueKeys, letters: Sequence[Replay]) -> list[bool]:
    """Put dead letters back on the queue; returns for each whether it still existed.

    Not sent again after a lost connection: the reply would be wrong, though nothing is added twice.
    """
    own = (keys.dead, keys.stream, keys.gate, *[letter.failure_key for letter in letters])
    args = [
        text
        for letter in letters
        for text in (letter.dead_id, letter.body, letter.name, letter.extras)
    ]
    return [flag == ord("1") for flag in as_flags(await _REPLAY.run(lane, own, args))]


async def purge(lane: Lane, keys: QueueKeys, *, count: int) -> list[list[bytes]]:
    """Delete up to `count` jobs that no worker has read; returns the fields of their entries.

    Not sent again after a lost connection: the reply would not name the jobs of the first time.
    """
    reply = await _PURGE.run(lane, (keys.stream, keys.gate), (count,))
    assert isinstance(reply, list)  # noqa: S101 - our own script
    return reply  # type: ignore[return-value] # bytes, as the head of the script says


async def emit(lane: Lane, events: bytes, packed: bytes, *, max_len: int) -> int:
    """Write packed events in one call; returns how many. Not sent again: they would come twice."""
    return as_number(await _EMIT.run(lane, (events,), (max_len, packed)))
