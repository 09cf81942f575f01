"""`Worker`, as in chasquimq."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Self, TypeAlias

from tampu.compat.chasquimq._consumer import ConsumerOptions, wrap_handler
from tampu.compat.chasquimq._lifecycle import StoppableRuns
from tampu.compat.chasquimq._url import (
    DEFAULT_URL,
    CredentialProvider,
    credentials_from,
    server_url,
)
from tampu.compat.chasquimq.job import Job
from tampu.job import Job as TampuJob
from tampu.outcome import NO_RESULT
from tampu.wire.names import check_queue_name
from tampu.worker import Worker as TampuWorker

__all__ = ["CredentialProvider", "Handler", "Worker"]

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
        self._handler = wrap_handler(handler, to_job=_to_job, to_result=_to_result)
        self._url = server_url(redis_url, tls=tls)
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
        self._runs = StoppableRuns()
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
        """Run jobs until `close`. A second call waits for the end of the first."""
        running = self._running
        if running is not None:
            await asyncio.wait([running])
            return running.result()
        running = asyncio.create_task(
            self._runs.run(self._create_worker), name="tampu-compat-worker"
        )
        self._running = running
        try:
            return await running
        finally:
            self._running = None

    async def close(self) -> None:
        """Make `run` end, without waiting for it. May be called twice."""
        self._closed = True
        self._runs.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _create_worker(self) -> TampuWorker:
        return TampuWorker(
            self._name,
            self._handler,
            self._url,
            credentials=credentials_from(self._provider, self._url),
            **self._options.to_worker_options(),
        )


def _to_job(job: TampuJob[Any]) -> Job:
    return Job(job.id, job.name, job.data, job.attempt - 1, job.created_at_ms)


def _to_result(value: object) -> object:
    """In chasquimq, None is not a result."""
    return NO_RESULT if value is None else value
