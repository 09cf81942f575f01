"""The operations that must be atomic: one `.lua` file and one typed call of the same name each."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha1
from importlib.resources import files

from tampu.errors import OptionError
from tampu.server.command import Argument, Reply, pack
from tampu.server.dialect import Dialect
from tampu.server.errors import ScriptUnknown
from tampu.server.lane import Lane
from tampu.server.link import ignore_outcome

_FLAG_LINE = "#!"
# How long a silent producer's last answers are kept: far longer than any resend may take.
PRODUCER_MEMORY_MS = 600_000
MAX_ACKS = 1000


class Script:
    """One Lua file, ready to be called by its digest and loaded where it is not known yet."""

    def __init__(self, name: str) -> None:
        self.name = name
        text = files("tampu.server").joinpath("lua", f"{name}.lua").read_text("utf-8")
        self._flagged = _Text(text)
        # Servers before 7.0 do not know the line of flags. Without it they behave as with it, but
        # for allow-oom, which they cannot give.
        self._plain = _Text(text.partition("\n")[2] if text.startswith(_FLAG_LINE) else text)

    def text(self, dialect: Dialect) -> "_Text":
        """The form of the script that a server understands."""
        return self._flagged if dialect.script_flags else self._plain

    async def run(
        self,
        lane: Lane,
        keys: Sequence[bytes],
        args: Sequence[Argument],
        *,
        repeatable: bool = False,
        limit_s: float | None = None,
    ) -> Reply:
        """Call the script, loading it first where the server does not know it."""
        text = self.text(lane.server.dialect)
        rest = (len(keys), *keys, *args)
        send = partial(lane.send, repeatable=repeatable, limit_s=limit_s)
        by_digest = pack(b"EVALSHA", text.digest, *rest)
        with suppress(ScriptUnknown):
            return await send(by_digest)
        with suppress(ScriptUnknown):
            # In one write: next to nothing can come between loading and calling.
            lane.send(text.load, repeatable=True, limit_s=limit_s).add_done_callback(ignore_outcome)
            return await send(by_digest)
        # Forgotten in between all the same, not allowed to be loaded, or passed on to another node.
        return await send(pack(b"EVAL", text.body, *rest))


class _Text:
    """A script as one kind of server gets it."""

    def __init__(self, text: str) -> None:
        self.body = text.encode()
        self.digest = sha1(self.body, usedforsecurity=False).hexdigest().encode()
        self.load = pack(b"SCRIPT", b"LOAD", self.body)


_ADD = Script("add")
_ACK = Script("ack")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddKeys:
    """Where one producer adds: the queue's stream and delayed set, and the producer's memory."""

    stream: bytes
    delayed: bytes
    memory: bytes


@dataclass(frozen=True, slots=True)
class PlainJobs:
    """Jobs that run as soon as they can and have no id of the user's: envelope, name, ..."""

    flat: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class FullJobs:
    """Jobs with options: envelope or delayed member, name, extras, due, marker s, index s, ...

    `keys` are the marker and the index of each job that has them, in the order of the jobs.
    """

    flat: Sequence[bytes]
    keys: Sequence[bytes]


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

    Numbers go up by one from call to call, and at most 16 calls are in flight: the script remembers
    that many. Of an older one it cannot tell, and says so with `ConnectionLost`.

    Returns b"" if all were added, else one letter a job: b"0" where its id was taken.
    Raises `QueueFull`, and adds nothing, if the stream would grow past `max_len`.
    """
    if limit_s is not None and limit_s * 1000 > PRODUCER_MEMORY_MS:
        raise OptionError(
            "limit_s", limit_s, f"must be at most {PRODUCER_MEMORY_MS // 1000} seconds"
        )
    match jobs:
        case PlainJobs(flat):
            shape, more = b"plain", ()
        case FullJobs(flat, more):
            shape = b"full"
    reply = await _ADD.run(
        lane,
        (keys.stream, keys.delayed, keys.memory, *more),
        (number, PRODUCER_MEMORY_MS, max_len, shape, *flat),
        repeatable=True,
        limit_s=limit_s,
    )
    assert isinstance(reply, bytes)  # noqa: S101 - our own script
    return reply


async def ack(lane: Lane, entry_ids: Sequence[bytes], *, stream: bytes, group: bytes) -> int:
    """Acknowledge and delete finished entries, 1 to 1000 of them; how many were pending.

    It is sent again after a lost reply, and then counts what the first sending left.
    """
    if not 1 <= len(entry_ids) <= MAX_ACKS:
        raise OptionError("entry_ids", f"{len(entry_ids)} ids", f"takes 1 to {MAX_ACKS} of them")
    reply = await _ACK.run(lane, (stream,), (group, *entry_ids), repeatable=True)
    assert isinstance(reply, int)  # noqa: S101 - our own script
    return reply
