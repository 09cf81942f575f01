"""The low-level consumer: handlers get bytes and give bytes."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from msgspec import Raw

from tampu.compat.adapter.address import CredentialProvider, credentials_of, url_of
from tampu.compat.adapter.handling import adapted
from tampu.compat.adapter.options import ConsumerOptions
from tampu.compat.adapter.shift import Shift
from tampu.compat.adapter.started import started
from tampu.job import Job
from tampu.outcome import NO_RESULT
from tampu.wire.keys import check_queue_name
from tampu.worker import Worker


class RawJob:
    """A job as the low-level consumer hands it over."""

    __slots__ = ("attempt", "created_at_ms", "id", "name", "payload")

    def __init__(self, job: Job[Any]) -> None:
        self.id = job.id
        self.name = job.name
        self.payload: bytes = job.data
        self.created_at_ms = job.created_at_ms
        self.attempt = job.attempt - 1

    def __repr__(self) -> str:
        return (
            f"Job(id={_quoted(self.id)}, name={_quoted(self.name)}, attempt={self.attempt}, "
            f"created_at_ms={self.created_at_ms}, payload_len={len(self.payload)})"
        )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


RawHandler: TypeAlias = Callable[[RawJob], Awaitable[Any]]


class Consumer:
    """Runs the jobs of one queue, from `run` to `shutdown`."""

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
        self._url = url_of(redis_url)
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
        if credential_provider is not None:
            asyncio.get_running_loop()  # theirs needs one here
        self._provider = credential_provider
        self._shift = Shift()

    @started
    async def run(self, handler: RawHandler) -> None:
        """Work until `shutdown`, from the call on. A handler returns the bytes to be stored."""
        function = adapted(handler, job_of=RawJob, kept=_kept)

        def made() -> Worker:
            return Worker(
                self._name,
                function,
                self._url,
                credentials=credentials_of(self._provider, self._url),
                **self._options.for_tampu(raw=True),
            )

        await self._shift.run(made)

    def shutdown(self) -> None:
        """Have `run` end, and do not wait for it; from any thread."""
        self._shift.end()


def _kept(value: object) -> object:
    """Bytes are stored as they are; none at all, and anything else, are no result."""
    return Raw(value) if isinstance(value, bytes) and value else NO_RESULT
