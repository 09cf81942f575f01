"""The operations that must be atomic: one `.lua` file and one typed call of the same name each."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct

from tampu.errors import OptionError
from tampu.server.command import Argument, Reply
from tampu.server.errors import ScriptUnknown
from tampu.server.lane import Lane
from tampu.server.script import Script

# How long a silent producer's last answers are kept: far longer than any resend may take.
PRODUCER_MEMORY_MS = 600_000
MAX_RENEWALS = 1000

_ADD = Script("add")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddKeys:
    """Where one producer adds: the queue's stream, delayed set and bell, and its own memory."""

    stream: bytes
    delayed: bytes
    memory: bytes
    bell: bytes


class PlainJobs(Struct, frozen=True):
    """Jobs that run as soon as they can and have no id of the user's: envelope, name, ..."""

    flat: Sequence[bytes]


class FullJobs(Struct, frozen=True):
    """Jobs with options: envelope or delayed member, name, extras, due, marker s, index s, ...

    `keys` are the marker and the index of each job that has them, in the order of the jobs.
    """

    flat: Sequence[bytes]
    keys: Sequence[bytes]


class AddCall(Struct, frozen=True, kw_only=True):
    """One call of a producer: its number, and how long the stream may get (0: any).

    Numbers go up by one from call to call, and at most 16 calls are in flight: the script remembers
    that many. Of an older one it cannot tell, and says so with `ConnectionLost`.
    """

    number: int
    max_len: int = 0
    limit_s: float | None = None

    def __post_init__(self) -> None:
        if self.limit_s is not None and self.limit_s * 1000 > PRODUCER_MEMORY_MS:
            accepted = f"must be at most {PRODUCER_MEMORY_MS // 1000} seconds"
            raise OptionError("limit_s", self.limit_s, accepted)


class Adding:
    """An `add` that has been sent: who waits for `sent` need not be a task."""

    __slots__ = ("_call", "_lane", "_limit_s", "sent")

    def __init__(
        self, lane: Lane, keys: AddKeys, jobs: PlainJobs | FullJobs, *, call: AddCall
    ) -> None:
        more: Sequence[bytes] = ()
        shape = b"plain"
        if isinstance(jobs, FullJobs):
            more, shape = (keys.bell, *jobs.keys), b"full"
        self._lane, self._limit_s = lane, call.limit_s
        self._call = _ADD.call(
            lane,
            (keys.stream, keys.delayed, keys.memory, *more),
            (call.number, PRODUCER_MEMORY_MS, call.max_len, shape, *jobs.flat),
        )
        self.sent = lane.send(self._call.by_digest, repeatable=True, limit_s=call.limit_s)

    async def reply(self) -> bytes:
        """What the script answered, loading it first where the server does not know it."""
        try:
            reply = await self.sent
        except ScriptUnknown as forgotten:
            reply = await _ADD.run_forgotten(
                self._lane, self._call, forgotten, repeatable=True, limit_s=self._limit_s
            )
        return as_letters(reply)


async def add(
    lane: Lane,
    keys: AddKeys,
    jobs: PlainJobs | FullJobs,
    *,
    number: int,
    max_len: int = 0,
    limit_s: float | None = None,
) -> bytes:
    """Add jobs in one step; a repeated `number` of the same producer adds nothing again.

    Returns b"" if all were added, else one letter a job: b"0" where its id was taken.
    Raises `QueueFull`, and adds nothing, if the stream would grow past `max_len`.
    """
    call = AddCall(number=number, max_len=max_len, limit_s=limit_s)
    return await Adding(lane, keys, jobs, call=call).reply()


def load_add(lane: Lane) -> None:
    """Have the server know the script, so that the first calls in flight keep their order."""
    _ADD.load(lane)


# --- settling -----------------------------------------------------------------------------------

_FINISH = Script("finish")
_AGAIN = Script("again")
_BURY = Script("bury")


class Claim(Struct, frozen=True):
    """In whose name entries are settled. With an `owner`, only what it still holds is."""

    stream: bytes
    group: bytes
    owner: bytes = b""


class Finished(Struct, frozen=True, gc=False):
    """An entry whose handler returned, and where its result goes; b"" for none."""

    entry_id: bytes
    result: bytes
    key: bytes


class Again(Struct, frozen=True, gc=False):
    """An entry whose job is to run again: its envelope now, or its member after a wait."""

    entry_id: bytes
    wait_ms: int | None
    body: bytes
    name: bytes = b""
    extras: bytes = b""


class Buried(Struct, frozen=True):
    """An entry to bury: the dead letter's fields, and what those who wait are told, if anything."""

    entry_id: bytes
    fields: Sequence[bytes]
    failure: bytes = b""
    key: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """Where results are told of, the ids to tell (b"": nobody waits), how long results are kept."""

    notices: bytes
    notice: bytes
    ttl_s: int


async def finish(lane: Lane, claim: Claim, entries: Sequence[Finished], *, shelf: Shelf) -> bytes:
    """Settle entries and keep their results; one letter each, b"1" where it was ours to settle."""
    keys = (claim.stream, shelf.notices, *[entry.key for entry in entries])
    args: list[Argument] = [*_settling(lane, claim), shelf.ttl_s, shelf.notice]
    for entry in entries:
        args += entry.entry_id, entry.result
    return as_letters(await _FINISH.run(lane, keys, args, repeatable=True))


async def again(
    lane: Lane, claim: Claim, entries: Sequence[Again], *, delayed: bytes, bell: bytes
) -> bytes:
    """Have jobs run again; one letter each, b"1" where it was ours to settle."""
    args: list[Argument] = _settling(lane, claim)
    for entry in entries:
        wait = b"" if entry.wait_ms is None else entry.wait_ms
        args += entry.entry_id, wait, entry.body, entry.name, entry.extras
    keys = (claim.stream, delayed, bell)
    return as_letters(await _AGAIN.run(lane, keys, args, repeatable=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Graveyard:
    """Where dead letters go, how many are kept (0: all), and how those who wait are told."""

    dead: bytes
    notices: bytes
    max_len: int
    ttl_s: int


async def bury(
    lane: Lane, claim: Claim, entries: Sequence[Buried], *, graveyard: Graveyard, notice: bytes
) -> bytes:
    """Move entries to the dead letters; one letter each, b"1" where it was ours to settle."""
    keys = [claim.stream, graveyard.dead, graveyard.notices]
    keys += [entry.key for entry in entries if entry.failure]
    args: list[Argument] = _settling(lane, claim)
    args += graveyard.max_len, graveyard.ttl_s, notice
    for entry in entries:
        args += entry.entry_id, entry.failure, len(entry.fields), *entry.fields
    return as_letters(await _BURY.run(lane, keys, args, repeatable=True))


def _settling(lane: Lane, claim: Claim) -> list[Argument]:
    """The arguments by which the three scripts settle."""
    return [claim.group, claim.owner, int(lane.server.dialect.ack_and_delete)]


def as_letters(reply: Reply) -> bytes:
    """One letter an entry or job, as our scripts answer."""
    assert isinstance(reply, bytes)  # noqa: S101 - our own script
    return reply


def as_numbers(reply: Reply) -> list[int]:
    """Whole numbers, as our scripts answer."""
    assert isinstance(reply, list)  # noqa: S101 - our own script
    return [_number(each) for each in reply]


def _number(reply: Reply) -> int:
    assert isinstance(reply, int)  # noqa: S101 - our own script
    return reply


# --- leases -------------------------------------------------------------------------------------

_BEAT = Script("beat")
_TAKEOVER = Script("takeover")
_REAP = Script("reap")


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """One consumer of a group, and the key that says that its worker lives."""

    stream: bytes
    group: bytes
    consumer: bytes
    key: bytes


class Beat(Struct, frozen=True):
    """What a sign of life found: ms that the mark had left, None if it was gone; leases renewed."""

    left_ms: int | None
    renewed: int


async def beat(lane: Lane, member: Membership, *, mark: bytes, ttl_ms: int, idle_ms: int) -> Beat:
    """Say that a worker lives, and renew what it holds and has idled for so long."""
    reply = await _BEAT.run(
        lane,
        (member.stream, member.key),
        (member.group, member.consumer, mark, ttl_ms, idle_ms, MAX_RENEWALS),
        repeatable=True,
    )
    left_ms, renewed = as_numbers(reply)
    return Beat(left_ms if left_ms >= 0 else None, renewed)


class Taken(Struct, frozen=True, gc=False):
    """An entry and how often it has been delivered, this time included."""

    entry_id: bytes
    fields: list[bytes]
    deliveries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Why a worker counts as gone: its mark (b"": it has none), and how much time that has left.

    Of a worker that may still live, only entries are taken that have idled for so long.
    """

    mark: bytes = b""
    left_ms: int = 0
    idle_ms: int = 0


async def takeover(
    lane: Lane, gone: Membership, *, judgement: Judgement, taker: bytes, count: int
) -> list[Taken]:
    """Take entries of a consumer that is gone; none if it has given a sign of life since.

    Not sent again after a lost connection: what was taken is then among the taker's own.
    """
    args = (
        gone.group,
        taker,
        gone.consumer,
        judgement.mark,
        judgement.idle_ms,
        count,
        judgement.left_ms,
    )
    reply = await _TAKEOVER.run(lane, (gone.stream, gone.key), args)
    assert isinstance(reply, list)  # noqa: S101 - our own script
    return [Taken(*entry) for entry in reply]  # type: ignore[misc] # entries are lists of three


async def reap(lane: Lane, member: Membership, *, mark: bytes = b"") -> bool:
    """Remove a consumer that holds nothing; with its own `mark`, while it still lives."""
    args = (member.group, member.consumer, mark)
    return bool(await _REAP.run(lane, (member.stream, member.key), args, repeatable=True))


# --- services -----------------------------------------------------------------------------------

_LEAD = Script("lead")
_RESIGN = Script("resign")
_EMIT = Script("emit")
_REPLAY = Script("replay")


async def lead(lane: Lane, lock: bytes, *, holder: bytes, ttl_s: int) -> bool:
    """Take or keep the lead; whether it is ours now."""
    return bool(await _LEAD.run(lane, (lock,), (holder, ttl_s), repeatable=True))


async def resign(lane: Lane, lock: bytes, *, holder: bytes) -> bool:
    """Give up the lead; whether it was ours."""
    return bool(await _RESIGN.run(lane, (lock,), (holder,), repeatable=True))


async def emit(lane: Lane, events: bytes, packed: bytes, *, max_len: int) -> int:
    """Write packed events in one call; how many. Not sent again: listeners would be told twice."""
    return _number(await _EMIT.run(lane, (events,), (max_len, packed)))


class Replay(Struct, frozen=True):
    """A dead letter to put back: its id, what to add, and the key of its kept failure."""

    dead_id: bytes
    body: bytes
    name: bytes
    extras: bytes
    failure_key: bytes


async def replay(
    lane: Lane, dead: bytes, *, stream: bytes, letters: Sequence[Replay]
) -> list[bool]:
    """Put dead letters back on the queue; of each, whether it still was there.

    Not sent again after a lost connection: the answer would be wrong, the jobs would not.
    """
    keys = (dead, stream, *[letter.failure_key for letter in letters])
    args = [
        text
        for letter in letters
        for text in (letter.dead_id, letter.body, letter.name, letter.extras)
    ]
    return [letter == ord("1") for letter in as_letters(await _REPLAY.run(lane, keys, args))]


_PURGE = Script("purge")


async def purge(lane: Lane, stream: bytes, *, count: int) -> list[bytes]:
    """Delete up to so many jobs that no worker has been given; their envelopes.

    Not sent again after a lost connection: what it deleted would not be told a second time.
    """
    reply = await _PURGE.run(lane, (stream,), (count,))
    assert isinstance(reply, list)  # noqa: S101 - our own script
    return reply  # type: ignore[return-value] # texts, as the script's head says
