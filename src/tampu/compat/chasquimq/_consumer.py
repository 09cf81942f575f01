"""The low-level `Consumer`, and what it shares with `Worker`: options and calling of handlers."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from inspect import isawaitable
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import Raw

from tampu.compat.chasquimq._arguments import (
    check_int,
    check_non_negative,
    check_positive,
    check_type,
    check_unsigned,
    log_ignored_options,
)
from tampu.compat.chasquimq._lifecycle import StoppableRuns, as_future
from tampu.compat.chasquimq._url import (
    CredentialProvider,
    credentials_from,
    require_loop,
    server_url,
)
from tampu.consumer.handler import Function
from tampu.consumer.options import WorkerOptions, WorkerSettings
from tampu.errors import OptionError
from tampu.job import Job
from tampu.outcome import NO_RESULT
from tampu.util.clock import MAX_MS
from tampu.util.options import is_async
from tampu.wire.names import check_queue_name
from tampu.worker import Worker

J = TypeVar("J")

# --- options --------------------------------------------------------------------------------------

_MIN_LEASE_MS: Final = 500
_GRACE_S: Final = 30
_THEIR_NAMES: Final = {
    "attempts": "max_attempts",
    "name": "consumer_id",
    "lease": "claim_min_idle_ms",
    "max_payload": "max_payload_bytes",
    "dead_max_len": "dlq_max_stream_len",
    "result_ttl": "result_ttl_ms",
}
"""chasquimq's names of options that tampu may refuse under its own name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """Options of a `Worker` or `Consumer`, validated as in chasquimq. None means the default."""

    concurrency: int
    max_attempts: int
    group: str
    consumer_id: str | None
    read_block_ms: int | None
    read_count: int | None
    claim_min_idle_ms: int | None
    max_payload_bytes: int | None
    dlq_max_stream_len: int | None
    events_enabled: bool
    delayed_enabled: bool
    run_scheduler: bool
    scheduler_tick_ms: int | None
    store_results: bool
    result_ttl_ms: int | None

    def __post_init__(self) -> None:
        self._check_types()
        self._check_numbers()
        log_ignored_options(
            "Worker",
            read_block_ms=self.read_block_ms,
            read_count=self.read_count,
            scheduler_tick_ms=self.scheduler_tick_ms,
        )
        self._check_with_tampu()

    def _check_types(self) -> None:
        for name in ("concurrency", "max_attempts"):
            check_int(name, getattr(self, name))
        for name in ("events_enabled", "delayed_enabled", "run_scheduler", "store_results"):
            check_type(name, getattr(self, name), bool)
        check_type("group", self.group, str)
        if self.consumer_id is not None:
            check_type("consumer_id", self.consumer_id, str)

    def _check_numbers(self) -> None:
        for name in ("concurrency", "max_attempts", "read_count", "max_payload_bytes"):
            check_unsigned(name, getattr(self, name))
        for name in (
            "read_block_ms",
            "claim_min_idle_ms",
            "dlq_max_stream_len",
            "scheduler_tick_ms",
        ):
            check_non_negative(name, getattr(self, name))
        check_positive("result_ttl_ms", self.result_ttl_ms)

    def _check_with_tampu(self) -> None:
        """Validate with tampu's own checks now, and name the option as the caller does."""
        for name in ("claim_min_idle_ms", "result_ttl_ms"):
            if (getattr(self, name) or 0) > MAX_MS:
                problem = f"must be at most {MAX_MS}, which is 10 years"
                raise OptionError(name, getattr(self, name), problem)
        try:
            WorkerSettings(**self.to_worker_options())
        except OptionError as refusal:
            name = _THEIR_NAMES.get(refusal.option, refusal.option)
            given = getattr(self, name, refusal.given)
            raise OptionError(name, given, refusal.problem) from None

    def to_worker_options(self, *, raw: bool = False) -> WorkerOptions:
        """Options of a tampu `Worker`; with `raw`, its handler gets the payload as bytes."""
        options: WorkerOptions = {
            "concurrency": self.concurrency,
            "attempts": self.max_attempts,
            "group": self.group,
            "name": self.consumer_id or None,
            "events": self.events_enabled,
            "promote": self.delayed_enabled,
            "schedule": self.run_scheduler,
            "store_results": self.store_results,
            "grace": _GRACE_S,
            "raw": raw,
        }
        if self.claim_min_idle_ms is not None:
            lease_ms = max(self.claim_min_idle_ms, _MIN_LEASE_MS)
            options["lease"] = timedelta(milliseconds=lease_ms)
        if self.max_payload_bytes is not None:
            options["max_payload"] = self.max_payload_bytes
        if self.dlq_max_stream_len is not None:
            options["dead_max_len"] = self.dlq_max_stream_len
        if self.result_ttl_ms is not None:
            options["result_ttl"] = timedelta(milliseconds=self.result_ttl_ms)
        return options


# --- handlers -------------------------------------------------------------------------------------


def wrap_handler(
    handler: Callable[[J], Awaitable[Any]],
    *,
    to_job: Callable[[Job[Any]], J],
    to_result: Callable[[object], object],
) -> Function:
    """Wrap a chasquimq handler as a function that tampu can run.

    A handler that is not an async function runs in a thread, as always in tampu.
    """

    async def run(job: Job[Any]) -> object:
        return to_result(await _await_in_new_task(handler(to_job(job))))

    async def finish(value: Awaitable[object]) -> object:
        return to_result(await _await_in_new_task(value))

    def run_plain(job: Job[Any]) -> object:
        value: object = handler(to_job(job))
        return finish(value) if isawaitable(value) else to_result(value)

    return run if is_async(handler) else run_plain


async def _await_in_new_task(awaitable: Awaitable[object]) -> object:
    """Await a handler in a task of its own, as chasquimq does.

    A tampu worker runs many handlers in the same task. A program written for chasquimq expects that
    the context variables which it sets for one job are not set for the next.
    """
    value, error = await asyncio.create_task(_catch(awaitable), name="tampu-compat-job")
    if error is not None:
        raise error
    return value


async def _catch(awaitable: Awaitable[object]) -> tuple[object, BaseException | None]:
    """The value or the error. A `SystemExit` raised out of a task would stop the event loop."""
    try:
        return await awaitable, None
    except BaseException as error:  # noqa: BLE001 - border: raised again by the caller
        return None, error


# --- the consumer ---------------------------------------------------------------------------------


class RawJob:
    """A job with its payload as bytes."""

    __slots__ = ("attempt", "created_at_ms", "id", "name", "payload")

    def __init__(self, job: Job[Any]) -> None:
        self.id = job.id
        self.name = job.name
        self.payload: bytes = job.data
        self.created_at_ms = job.created_at_ms
        self.attempt = job.attempt - 1

    def __repr__(self) -> str:
        return (
            f"Job(id={_quote(self.id)}, name={_quote(self.name)}, attempt={self.attempt}, "
            f"created_at_ms={self.created_at_ms}, payload_len={len(self.payload)})"
        )


RawHandler: TypeAlias = Callable[[RawJob], Awaitable[Any]]


class Consumer:
    """Runs the jobs of one queue; the handler returns the bytes to store as the result."""

    def __init__(
        self,
        redis_url: str,
        queue_name: str,
        *,
        concurrency: int = 1,
        max_attempts: int = 25,
        group: str = "default",
        consumer_id: str | None = None,
        read_block_ms: int | None = None,
        read_count: int | None = None,
        claim_min_idle_ms: int | None = None,
        max_payload_bytes: int | None = None,
        dlq_max_stream_len: int | None = None,
        events_enabled: bool = True,
        delayed_enabled: bool = True,
        run_scheduler: bool = True,
        scheduler_tick_ms: int | None = None,
        store_results: bool = False,
        result_ttl_ms: int | None = None,
        credential_provider: CredentialProvider | None = None,
    ) -> None:
        self._name = check_queue_name(queue_name)
        self._url = server_url(redis_url)
        self._options = ConsumerOptions(
            concurrency=concurrency,
            max_attempts=max_attempts,
            group=group,
            consumer_id=consumer_id,
            read_block_ms=read_block_ms,
            read_count=read_count,
            claim_min_idle_ms=claim_min_idle_ms,
            max_payload_bytes=max_payload_bytes,
            dlq_max_stream_len=dlq_max_stream_len,
            events_enabled=events_enabled,
            delayed_enabled=delayed_enabled,
            run_scheduler=run_scheduler,
            scheduler_tick_ms=scheduler_tick_ms,
            store_results=store_results,
            result_ttl_ms=result_ttl_ms,
        )
        require_loop(credential_provider)
        self._provider = credential_provider
        self._runs = StoppableRuns()

    @as_future
    async def run(self, handler: RawHandler) -> None:
        """Run jobs until `shutdown`."""
        function = wrap_handler(handler, to_job=RawJob, to_result=_to_result)

        def create_worker() -> Worker:
            return Worker(
                self._name,
                function,
                self._url,
                credentials=credentials_from(self._provider, self._url),
                **self._options.to_worker_options(raw=True),
            )

        await self._runs.run(create_worker)

    def shutdown(self) -> None:
        """Make `run` end, without waiting for it. May be called from any thread."""
        self._runs.stop()


def _to_result(value: object) -> object:
    """Bytes are stored as they are. Empty bytes and other values are not a result."""
    return Raw(value) if isinstance(value, bytes) and value else NO_RESULT


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
