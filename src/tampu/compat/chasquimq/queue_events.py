"""`QueueEvents`, as in chasquimq."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tampu.compat.chasquimq._arguments import check_unsigned, log_ignored_options
from tampu.compat.chasquimq._url import DEFAULT_URL, server_url
from tampu.compat.chasquimq.errors import translate_errors
from tampu.errors import OptionError, ServerError, Verdict
from tampu.events import QueueEvents as TampuEvents
from tampu.job import JobEvent
from tampu.util.clock import instant_ms
from tampu.wire.event import EventKind

__all__ = ["QueueEvent", "QueueEvents"]

_FROM_NOW: Final = "$"
_RETRY_AFTER_S: Final = 0.2
_DEFAULT_BLOCK_MS: Final = 5_000
_DEFAULT_COUNT: Final = 100


@dataclass(frozen=True)
class QueueEvent:
    """An event; `job_id` is None if it is about the queue and not about a job."""

    name: str
    job_id: str | None
    job_name: str
    fields: dict[str, Any]


class QueueEvents:
    """An async iterator over a queue's events, from the first iteration on or after an event id.

    It misses no event. If the server is not available yet, it waits for it.
    """

    def __init__(
        self,
        queue_name: str,
        *,
        redis_url: str = DEFAULT_URL,
        tls: bool = False,
        last_event_id: str = _FROM_NOW,
        block_ms: int = _DEFAULT_BLOCK_MS,
        count: int = _DEFAULT_COUNT,
    ) -> None:
        check_unsigned("block_ms", block_ms)
        check_unsigned("count", count)
        log_ignored_options(
            "QueueEvents",
            block_ms=None if block_ms == _DEFAULT_BLOCK_MS else block_ms,
            count=None if count == _DEFAULT_COUNT else count,
        )
        self._name = queue_name
        url = server_url(redis_url, tls=tls)
        self._events = _create_events(queue_name, url, last_event_id)
        self._is_connected = False
        self._closed = asyncio.Event()

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._name

    def __aiter__(self) -> AsyncIterator[QueueEvent]:
        return self._iterate()

    async def close(self) -> None:
        """End the iteration and disconnect. May be called twice."""
        self._closed.set()
        await self._events.close()

    async def _iterate(self) -> AsyncIterator[QueueEvent]:
        await self._connect()
        if self._closed.is_set():
            return
        async for event in self._events:
            yield _to_queue_event(event)

    async def _connect(self) -> None:
        """Connect once, as soon as the server is available."""
        while not (self._is_connected or self._closed.is_set()):
            try:
                with translate_errors():
                    await self._events.__aenter__()
            except RuntimeError as error:
                cause = error.__cause__
                if not isinstance(cause, ServerError) or cause.verdict is Verdict.GIVE_UP:
                    raise
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closed.wait(), _RETRY_AFTER_S)
            else:
                self._is_connected = True
                if self._closed.is_set():
                    await self._events.close()


def _create_events(queue_name: str, url: str, last_event_id: object) -> TampuEvents:
    """Open tampu's events. An id may also be bytes or a number, because chasquimq accepts both."""
    given = last_event_id.decode() if isinstance(last_event_id, bytes) else str(last_event_id)
    try:
        return TampuEvents(queue_name, url, after=None if given == _FROM_NOW else given)
    except OptionError as refusal:
        if refusal.option != "after":
            raise
        raise OptionError("last_event_id", last_event_id, refusal.problem) from None


def _to_queue_event(event: JobEvent) -> QueueEvent:
    kind = event.kind.value if isinstance(event.kind, EventKind) else event.kind
    fields: dict[str, Any] = {"ts": instant_ms("ts", event.at), **event.fields}
    return QueueEvent(kind, event.job_id or None, event.name, fields)
