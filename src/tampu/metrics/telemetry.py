"""Telemetry: what tracing tools are told about jobs that are added and run.

A queue or worker without telemetry has no trace of it on the way of a job: what tells is put in
place when the queue or the worker is made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from tampu.errors import OptionError
from tampu.job import Job
from tampu.metrics.facts import OutcomeKind
from tampu.wire.dead import Failure

if TYPE_CHECKING:
    from contextvars import Token

T = TypeVar("T")
logger = logging.getLogger(__name__)

APART_MS: Final = 3_600_000
"""A run that is to begin more than this after its job was added has a trace of its own."""
_BAGGAGE: Final = "baggage"
_EXPECTED: Final = "expected an object with start_send, start_run and headers, or a list of them"


class Endpoint(Struct, frozen=True):
    """A client of a queue, and the server that it talks to. A unix socket has no port."""

    queue: str
    client_id: str  # of the producer or the worker
    address: str
    port: int | None = None
    group: str | None = None  # the worker's consumer group


class Sending(Struct, frozen=True, kw_only=True):
    """Jobs that one call is about to add."""

    endpoint: Endpoint
    count: int
    name: str | None  # of the jobs; None if they have several names
    body_bytes: int  # of all payloads
    is_batch: bool  # whether they came from a method that takes many jobs


class JobRun(Struct, frozen=True, kw_only=True):
    """An attempt that is about to begin. A batch of jobs is one of them: `job` is the batch."""

    endpoint: Endpoint
    job: Job[Any]
    attempts: int  # how many the job may have
    wait_ms: int  # since it could have begun: without delay and backoff
    delay_ms: int  # from being added until it could begin
    body_bytes: int
    jobs: tuple[Job[Any], ...] = ()  # those of a batch

    @property
    def is_apart(self) -> bool:
        """Whether it gets a trace of its own, linked to the one that its job comes from."""
        if self.jobs:
            return True
        return self.job.schedule_key is not None or self.delay_ms > APART_MS


class RunEnd(Struct, frozen=True):
    """How an attempt ended."""

    outcome: OutcomeKind
    duration_s: float
    failure: Failure | None = None  # of an attempt that failed
    error: BaseException | None = None  # what it raised, unless that was in a child process


class SendSpan(Protocol):
    """An add that has begun."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What the jobs carry to the worker."""

    def end(self, jobs: Sequence[Job[Any]], error: BaseException | None) -> None:
        """The add has ended, with the jobs that were added or with an error."""


class RunSpan(Protocol):
    """An attempt that has begun."""

    @property
    def trace_id(self) -> str | None:
        """The trace that it belongs to, for the log."""

    def end(self, end: RunEnd) -> None:
        """The attempt has ended; called in the context that `start_run` was called in."""


class Telemetry(Protocol):
    """Is told about adds and runs. What it raises is logged once, and fails no add and no job."""

    def start_send(self, sending: Sending) -> SendSpan:
        """Jobs are about to be added; called where the producer adds them."""

    def start_run(self, run: JobRun) -> RunSpan:
        """An attempt begins. Context variables that this sets are seen by the handler."""

    def headers(self) -> Mapping[str, str]:
        """What jobs carry that are added for the caller later, by a schedule."""


Telemetries: TypeAlias = Telemetry | Sequence[Telemetry]
"""The option `telemetry`: one, or several that are all told."""


def _as_tuple(given: object) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, list | tuple) else (given,)


def check_telemetry(given: object) -> None:
    """Raise `OptionError` for something that is neither None nor telemetry."""
    needed = ("start_send", "start_run", "headers")
    for each in () if given is None else _as_tuple(given):
        if isinstance(each, type) or not all(callable(getattr(each, it, None)) for it in needed):
            raise OptionError("telemetry", given, _EXPECTED)


class SafeTelemetry:
    """Tells each telemetry. One that raises is told no more about that add or run."""

    def __init__(self, given: Telemetries) -> None:
        self._each: tuple[Telemetry, ...] = _as_tuple(given)
        self._failed = False

    def start_send(self, sending: Sending) -> OpenSend:
        """An add begins."""
        spans = self._map(lambda each: each.start_send(sending), self._each)
        headers = self._map(lambda span: _check_headers(span.headers), spans)
        return OpenSend(self, spans, _merge(headers))

    def start_run(self, run: JobRun) -> OpenRun:
        """An attempt begins."""
        spans = self._map(lambda each: each.start_run(run), self._each)
        trace_ids = self._map(lambda span: span.trace_id, spans)
        return OpenRun(self, spans, next(filter(None, trace_ids), None))

    def headers(self) -> dict[str, str]:
        """What jobs carry that are added later."""
        return _merge(self._map(lambda each: _check_headers(each.headers()), self._each))

    def tell(self, call: Callable[[T], None], items: Iterable[T]) -> None:
        """Call it for each item, in the reverse order: what began last ends first."""
        self._map(call, reversed(list(items)))

    def _map(self, call: Callable[[Any], T], items: Iterable[Any]) -> list[T]:
        results = []
        for item in items:
            try:
                results.append(call(item))
            except Exception:  # border: vendors' code
                if not self._failed:
                    logger.warning("telemetry failed; later failures are silent", exc_info=True)
                self._failed = True
        return results


class OpenSend:
    """An add that every telemetry knows of."""

    def __init__(
        self, telemetry: SafeTelemetry, spans: list[SendSpan], headers: dict[str, str]
    ) -> None:
        self._telemetry, self._spans = telemetry, spans
        self.headers: Final = headers

    def end(self, jobs: Sequence[Job[Any]], error: BaseException | None = None) -> None:
        """The add has ended."""
        self._telemetry.tell(lambda span: span.end(jobs, error), self._spans)


class OpenRun:
    """An attempt that every telemetry knows of."""

    def __init__(
        self, telemetry: SafeTelemetry, spans: list[RunSpan], trace_id: str | None
    ) -> None:
        self._telemetry, self._spans = telemetry, spans
        self._token: Token[str | None] = _trace_id.set(trace_id)

    def end(self, end: RunEnd) -> None:
        """The attempt has ended."""
        _trace_id.reset(self._token)
        self._telemetry.tell(lambda span: span.end(end), self._spans)


_trace_id: ContextVar[str | None] = ContextVar("tampu_trace_id", default=None)
current_trace_id: Final = _trace_id.get
"""The id of the trace of the job that the caller runs; None without telemetry."""


def _check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    texts = [*headers, *headers.values()]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("headers of telemetry must be texts")
    return dict(headers)


def _merge(given: Iterable[dict[str, str]]) -> dict[str, str]:
    """All headers. The first of a name counts, but baggage is a list, which is joined."""
    merged: dict[str, str] = {}
    for headers in given:
        both = {**headers, **merged}
        if _BAGGAGE in merged and _BAGGAGE in headers:
            both[_BAGGAGE] = f"{merged[_BAGGAGE]},{headers[_BAGGAGE]}"
        merged = both
    return merged
