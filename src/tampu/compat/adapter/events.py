"""Events as programs written for chasquimq read them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tampu.compat.adapter.address import DEFAULT_URL, url_of
from tampu.compat.adapter.errors import as_theirs
from tampu.compat.adapter.integers import unsigned, unused
from tampu.errors import OptionError, ServerError, Verdict
from tampu.events import JobEvent
from tampu.events import QueueEvents as Follower
from tampu.util.clock import instant_ms
from tampu.wire.event import EventKind

_FROM_NOW: Final = "$"
_AGAIN_S: Final = 0.2
_BLOCK_MS: Final = 5_000
_COUNT: Final = 100


@dataclass(frozen=True)
class QueueEvent:
    """One thing that happened; `job_id` is None for what happened to the queue."""

    name: str
    job_id: str | None
    job_name: str
    fields: dict[str, Any]


class QueueEvents:
    """The events of a queue from the first step of an iteration on, or behind an event's id.

    From there on none is missed. A server that is not there yet is waited for.
    """

    def __init__(
        self,
        queue_name: str,
        *,
        redis_url: str = DEFAULT_URL,
        tls: bool = False,
        last_event_id: str = _FROM_NOW,
        block_ms: int = _BLOCK_MS,
        count: int = _COUNT,
    ) -> None:
        unsigned("block_ms", block_ms)
        unsigned("count", count)
        unused(
            "QueueEvents",
            block_ms=None if block_ms == _BLOCK_MS else block_ms,
            count=None if count == _COUNT else count,
        )
        self._name = queue_name
        url = url_of(redis_url, tls=tls)
        self._follower = _follower(queue_name, url, last_event_id)
        self._is_open = False
        self._closed = asyncio.Event()

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._name

    def __aiter__(self) -> AsyncIterator[QueueEvent]:
        return self._events()

    async def close(self) -> None:
        """End the iteration and disconnect. May be called twice."""
        self._closed.set()
        await self._follower.close()

    async def _events(self) -> AsyncIterator[QueueEvent]:
        await self._opened()
        if self._closed.is_set():
            return
        async for event in self._follower:
            yield _as_theirs(event)

    async def _opened(self) -> None:
        """Connect, once, as soon as the server is there."""
        while not (self._is_open or self._closed.is_set()):
            try:
                with as_theirs():
                    await self._follower.__aenter__()
            except RuntimeError as error:
                cause = error.__cause__
                if not isinstance(cause, ServerError) or cause.verdict is Verdict.GIVE_UP:
                    raise
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closed.wait(), _AGAIN_S)
            else:
                self._is_open = True
                if self._closed.is_set():
                    await self._follower.close()


def _follower(queue_name: str, url: str, last_event_id: object) -> Follower:
    """Bytes and 0 are ids too: theirs hands on what it is given, and its client takes them."""
    given = last_event_id.decode() if isinstance(last_event_id, bytes) else str(last_event_id)
    try:
        return Follower(queue_name, url, after=None if given == _FROM_NOW else given)
    except OptionError as refusal:
        if refusal.option != "after":
            raise
        raise OptionError("last_event_id", last_event_id, refusal.problem) from None


def _as_theirs(event: JobEvent) -> QueueEvent:
    kind = event.kind.value if isinstance(event.kind, EventKind) else event.kind
    fields: dict[str, Any] = {"ts": instant_ms("ts", event.at), **event.fields}
    return QueueEvent(kind, event.job_id or None, event.name, fields)
