"""States of scheduled tasks on the server: one string each, read and written by the batch."""

import asyncio
from collections.abc import Sequence
from typing import Final, TypeAlias

from tampu.errors import CommandRefused, DecodeError
from tampu.server.command import Reply, pack
from tampu.server.lanes import Lanes
from tampu.server.link import ignore_outcome

_AT_ONCE: Final = 1000
"""Commands in flight: the time limit of the last is not spent on waiting for the first."""

Body: TypeAlias = bytes | DecodeError | None
"""What a key holds: a state's bytes, something else, or nothing."""

_Answer: TypeAlias = "Reply | BaseException"


async def fetch(lanes: Lanes, keys: Sequence[bytes]) -> list[Body]:
    """What each key holds, in order."""
    replies = await _answered(lanes, keys, [pack(b"GET", key) for key in keys])
    return [_body(reply) for reply in replies]


async def put(lanes: Lanes, keys: Sequence[bytes], bodies: Sequence[bytes]) -> None:
    """Have each key hold its body; if this raises, any of them may."""
    packed = [pack(b"SET", key, body) for key, body in zip(keys, bodies, strict=True)]
    for reply in await _answered(lanes, keys, packed):
        _check(reply)


async def drop(lanes: Lanes, keys: Sequence[bytes]) -> None:
    """Have the keys hold nothing; if this raises, any of them may be gone."""
    for reply in await _answered(lanes, keys, [pack(b"DEL", key) for key in keys]):
        _check(reply)


async def _answered(lanes: Lanes, keys: Sequence[bytes], packed: Sequence[bytes]) -> list[_Answer]:
    """Send each command to where its key lives; their replies and refusals in the same order.

    Each does no harm when it is sent again after a lost connection.
    """
    replies: list[_Answer] = [None] * len(keys)
    order = await lanes.by_place(keys) if keys else []
    for start in range(0, len(order), _AT_ONCE):
        chosen = order[start : start + _AT_ONCE]
        calls: list[asyncio.Future[Reply]] = []
        for number in chosen:
            lane = await lanes.to(keys[number])
            call = lane.send(packed[number], repeatable=True)
            call.add_done_callback(ignore_outcome)  # or the next lane may fail us before we look
            calls.append(call)
        for number, reply in zip(
            chosen, await asyncio.gather(*calls, return_exceptions=True), strict=True
        ):
            replies[number] = reply
    return replies


def _body(reply: _Answer) -> Body:
    if isinstance(reply, CommandRefused) and reply.code == "WRONGTYPE":
        return DecodeError("task state", "its key holds another type")
    body = _check(reply)
    return body if isinstance(body, bytes) else None


def _check(reply: _Answer) -> Reply:
    if isinstance(reply, BaseException):
        raise reply
    return reply
