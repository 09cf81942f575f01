"""One Lua file as the server runs it."""

import re
from collections.abc import Sequence
from functools import partial
from hashlib import sha1
from importlib.resources import files

from msgspec import Struct

from tampu.server.connection import ignore_outcome
from tampu.server.dialect import Dialect
from tampu.server.errors import ScriptUnknown
from tampu.server.lane import Lane
from tampu.server.protocol import Argument, Reply, pack

_FLAG_LINE = "#!"
# Stands in a script for a function that several of them share.
_PART = re.compile(r"^-- with (parts/\w+)\n", re.MULTILINE)


class Script:
    """One Lua file, ready to be called by its digest and loaded where it is not known yet."""

    def __init__(self, name: str) -> None:
        self.name = name
        text = _PART.sub(lambda part: _read(part[1]), _read(name))
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
        call = self.call(lane, keys, args)
        try:
            return await lane.send(call.by_digest, repeatable=repeatable, limit_s=limit_s)
        except ScriptUnknown as forgotten:
            return await self.run_forgotten(
                lane, call, forgotten, repeatable=repeatable, limit_s=limit_s
            )

    def call(self, lane: Lane, keys: Sequence[bytes], args: Sequence[Argument]) -> "ScriptCall":
        """A call, ready to be sent by the script's digest."""
        text = self.text(lane.server.dialect)
        rest = (len(keys), *keys, *args)
        return ScriptCall(pack(b"EVALSHA", text.digest, *rest), rest)

    async def run_forgotten(
        self,
        lane: Lane,
        call: "ScriptCall",
        forgotten: ScriptUnknown,
        *,
        repeatable: bool = False,
        limit_s: float | None = None,
    ) -> Reply:
        """Make a call that a server answered with not knowing the script.

        A server that was started again forgets its scripts, and may have run this one before.
        """
        send = partial(lane.send, repeatable=repeatable, limit_s=limit_s)
        unknown = forgotten.unknown
        try:
            # One behind the other: next to nothing can come between loading and calling.
            self.load(lane, limit_s=limit_s)
            return await send(call.by_digest, unknown=unknown)
        except ScriptUnknown as again:
            unknown = again.unknown
        # Forgotten in between all the same, not allowed to be loaded, or passed on to another node.
        body = self.text(lane.server.dialect).body
        return await send(pack(b"EVAL", body, *call.rest), unknown=unknown)

    def load(self, lane: Lane, *, limit_s: float | None = None) -> None:
        """Have the server know the script before the next call; one that refuses will tell then."""
        text = self.text(lane.server.dialect)
        lane.send(text.load, repeatable=True, limit_s=limit_s).add_done_callback(ignore_outcome)


class ScriptCall(Struct, frozen=True):
    """One call of a script: packed by its digest, and its keys and arguments."""

    by_digest: bytes
    rest: Sequence[Argument]


def _read(name: str) -> str:
    return files("tampu.server").joinpath("lua", f"{name}.lua").read_text("utf-8")


class _Text:
    """A script as one kind of server gets it."""

    def __init__(self, text: str) -> None:
        self.body = text.encode()
        self.digest = sha1(self.body, usedforsecurity=False).hexdigest().encode()
        self.load = pack(b"SCRIPT", b"LOAD", self.body)


def as_flags(reply: Reply) -> bytes:
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
