"""The worker as programs written for chasquimq have it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Self, TypeAlias

from tampu.compat.adapter.address import (
    DEFAULT_URL,
    CredentialProvider,
    credentials_of,
    url_of,
)
from tampu.compat.adapter.handling import adapted
from tampu.compat.adapter.job import Job
from tampu.compat.adapter.options import ConsumerOptions
from tampu.compat.adapter.shift import Shift
from tampu.job import Job as Ours
from tampu.outcome import NO_RESULT
from tampu.wire.keys import check_queue_name
from tampu.worker import Worker as Runner

Handler: TypeAlias = Callable[[Job], Awaitable[Any]]


class Worker:
    """Runs the jobs of one queue with a handler, from `run` to `close`."""

    def __init__(
        self,
        queue_name: str,
        handler: Handler,
        *,
        redis_url: str = DEFAULT_URL,
        tls: bool = False,
        concurrency: int = 100,
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
        self._handler = adapted(handler, job_of=_job_of, kept=_kept)
        self._url = url_of(redis_url, tls=tls)
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
        self._provider = credential_provider
        self._shift = Shift()
        self._running: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._name

    @property
    def is_running(self) -> bool:
        """Whether `run` has been called and has not returned."""
        return self._running is not None

    @property
    def is_closed(self) -> bool:
        """Whether `close` has been called."""
        return self._closed

    async def run(self) -> None:
        """Work until `close`; who calls it again meanwhile waits for the same end."""
        running = self._running
        if running is not None:
            await asyncio.wait([running])
            return running.result()
        running = asyncio.create_task(self._shift.run(self._runner), name="tampu-compat-worker")
        self._running = running
        try:
            return await running
        finally:
            self._running = None

    async def close(self) -> None:
        """Have `run` end, and do not wait for it. May be called twice."""
        self._closed = True
        self._shift.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _runner(self) -> Runner:
        return Runner(
            self._name,
            self._handler,
            self._url,
            credentials=credentials_of(self._provider, self._url),
            **self._options.for_tampu(),
        )


def _job_of(job: Ours[Any]) -> Job:
    return Job(job.id, job.name, job.data, job.attempt - 1, job.created_at_ms)


def _kept(value: object) -> object:
    """None is no result to chasquimq."""
    return NO_RESULT if value is None else value
