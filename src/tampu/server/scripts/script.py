"""Lua files as the server runs them: called by digest, loaded where they are unknown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, cached_property, partial
from hashlib import sha1
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tampu.errors import ServerError
from tampu.server.errors import ScriptUnknown
from tampu.server.protocol import pack
from tampu.util.lifecycle import ignore_outcome

if TYPE_CHECKING:
    import asyncio

    from tampu.server.dialect import Dialect
    from tampu.server.lane import Lane
    from tampu.server.protocol import Argument, Reply

_FLAG_LINE = "#!"
# The place in a script where a part goes that several scripts share.
_PART = re.compile(r"^ *-- with (parts/\w+)\n", re.MULTILINE)
# Scripts that use keys which are not among their KEYS: of a gate, of flows, of streams of results.
_DERIVES_KEYS = re.compile(r"\b(gate_)?key \.\. ':|function (open_flow|send_message|end_output)\b")
_ABSENT = b":tampu:gate:absent"
_scripts: list[Script] = []
_prelude = ""


class Script:
    """One Lua file. A call's `operands` are the number of its keys, the keys and the arguments."""

    def __init__(self, name: str) -> None:
        self.name = name
        text = _read_whole(name)
        flags, line_end, rest = text.partition("\n")
        self._flags, self._rest = (
            (flags + line_end, rest) if text.startswith(_FLAG_LINE) else ("", text)
        )
        _scripts.append(self)

    # A program imports dozens of scripts and calls a few: it makes the texts of those.

    @cached_property
    def _derives_keys(self) -> bool:
        return _DERIVES_KEYS.search(self._rest) is not None

    @cached_property
    def _flagged(self) -> _Text:
        return _Text(self._flags + _prelude + self._rest)

    @cached_property
    def _plain(self) -> _Text:
        # Servers before 7.0 do not know the line of flags, and do without all flags but allow-oom.
        return _Text(_prelude + self._rest)

    def _compose(self) -> None:
        """Forget the texts: the next call makes them again."""
        for made in ("_flagged", "_plain"):
            self.__dict__.pop(made, None)

    def text(self, dialect: Dialect) -> _Text:
        """The form of the script that a server understands."""
        return self._flagged if dialect.script_flags else self._plain

    def pack(self, lane: Lane, operands: Sequence[Argument]) -> bytes:
        """A call by the script's digest, ready to be sent."""
        digest = self.text(lane.server.dialect).digest
        return pack(b"EVALSHA", digest, *self._guard(lane, operands))

    def _guard(self, lane: Lane, operands: Sequence[Argument]) -> Sequence[Argument]:
        """In a cluster, operands with a last key that never exists, if the script derives keys.

        While a slot moves, its keys are on two nodes. A call that names a key which is not there is
        told to try again, and so the script sees all keys or does not run.
        """
        if not (self._derives_keys and lane.server.has_slots):
            return operands
        count, first = operands[:2]
        assert isinstance(count, int)  # noqa: S101 - our own callers
        assert isinstance(first, bytes)  # noqa: S101
        absent = first[: first.index(b"}") + 1] + _ABSENT
        return count + 1, *operands[1 : count + 1], absent, *operands[count + 1 :]

    async def run(
        self,
        lane: Lane,
        keys: Sequence[bytes],
        args: Sequence[Argument],
        *,
        repeatable: bool = False,
        limit_s: float | None = None,
    ) -> Reply:
        """Call the script, and load it first where the server does not know it."""
        operands = (len(keys), *keys, *args)
        try:
            packed = self.pack(lane, operands)
            return await lane.send(packed, repeatable=repeatable, limit_s=limit_s)
        except ScriptUnknown as unknown:
            return await self.load_and_run(
                lane, operands, unknown, repeatable=repeatable, limit_s=limit_s
            )

    async def load_and_run(
        self,
        lane: Lane,
        operands: Sequence[Argument],
        unknown: ScriptUnknown,
        *,
        repeatable: bool = False,
        limit_s: float | None = None,
    ) -> Reply:
        """Repeat a call that failed because the server does not know the script.

        A server that was restarted forgets its scripts, and may have run this one before.
        """
        send = partial(lane.send, repeatable=repeatable, limit_s=limit_s)
        try:
            # Sent right after each other, so that the script is rarely forgotten in between.
            self.load(lane, limit_s=limit_s)
            return await send(self.pack(lane, operands), maybe_done=unknown.maybe_done)
        except ScriptUnknown as again:
            unknown = again
        # Forgotten all the same, or the user may not load scripts, or another node was asked.
        body = self.text(lane.server.dialect).body
        return await send(
            pack(b"EVAL", body, *self._guard(lane, operands)), maybe_done=unknown.maybe_done
        )

    @staticmethod
    async def load_missing(lane: Lane, scripts: Sequence[Script]) -> None:
        """Load those of some scripts that the server does not know; if it allows that."""
        digests = [each.text(lane.server.dialect).digest for each in scripts]
        with suppress(ServerError):
            known: Any = await lane.call("SCRIPT", "EXISTS", *digests, repeatable=True)
            missing = [each for each, is_known in zip(scripts, known, strict=True) if not is_known]
            for loading in [script.load(lane) for script in missing]:
                await loading

    def load(self, lane: Lane, *, limit_s: float | None = None) -> asyncio.Future[Reply]:
        """Load the script before the next call; if that fails, the call will show it."""
        text = self.text(lane.server.dialect)
        loading = lane.send(text.load, repeatable=True, limit_s=limit_s)
        loading.add_done_callback(ignore_outcome)
        return loading


class _Text:
    """A script as one kind of server gets it."""

    def __init__(self, text: str) -> None:
        self.body = text.encode()
        self.digest = sha1(self.body, usedforsecurity=False).hexdigest().encode()

    @property
    def load(self) -> bytes:
        """The command that loads it, ready to be sent."""
        return pack(b"SCRIPT", b"LOAD", self.body)


def set_prelude(name: str | None) -> None:
    """Begin all scripts with a Lua file from now on; None: with none. For the test kit."""
    global _prelude  # noqa: PLW0603 - for the scripts of modules that are imported later too
    _prelude = "" if name is None else _read_lua(name)
    for script in _scripts:
        script._compose()


def _read_lua(name: str) -> str:
    return files("tampu.server").joinpath("lua", f"{name}.lua").read_text("utf-8")


def _read_whole(name: str) -> str:
    """A Lua file with its parts, which may have parts of their own."""
    return _PART.sub(lambda part: _read_part(part[1]), _read_lua(name))


@cache
def _read_part(name: str) -> str:
    return _read_whole(name)


def as_flags(reply: Reply) -> bytes:
    """The reply of a script that answers with one character per entry or job."""
    assert isinstance(reply, bytes)  # noqa: S101 - our own script
    return reply


def as_numbers(reply: Reply) -> list[int]:
    """The reply of a script that answers with numbers."""
    assert isinstance(reply, list)  # noqa: S101 - our own script
    return [as_number(each) for each in reply]


def as_number(reply: Reply) -> int:
    """The reply of a script that answers with a number."""
    assert isinstance(reply, int)  # noqa: S101 - our own script
    return reply
