"""The low-level producer, whose payloads are bytes."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from msgspec import Raw

from tampu.compat.chasquimq._arguments import (
    check_int,
    check_texts,
    check_type,
    check_unsigned,
    get_dict,
    get_text,
    log_ignored_options,
)
from tampu.compat.chasquimq._job_options import (
    RetryOptions,
    delay_options,
    instant_options,
    job_name,
    read_retry,
)
from tampu.compat.chasquimq._lifecycle import QueuePerLoop, as_future
from tampu.compat.chasquimq._schedules import (
    ScheduleRequest,
    list_schedules,
    meta_to_dict,
    peek_dead_letters,
    replay_dead_letters,
)
from tampu.compat.chasquimq._url import CredentialProvider, require_loop, server_url
from tampu.compat.chasquimq.errors import translate_errors
from tampu.job import JobOptions, NewJob


class Producer:
    """Adds jobs to one queue, from any event loop.

    Each method starts at once and returns a future, which need not be awaited.
    """

    def __init__(
        self,
        redis_url: str,
        queue_name: str,
        *,
        pool_size: int | None = None,
        max_stream_len: int | None = None,
        max_delay_secs: int | None = None,
        credential_provider: CredentialProvider | None = None,
    ) -> None:
        if check_unsigned("pool_size", pool_size) == 0:
            raise RuntimeError("config: pool_size must be > 0")
        log_ignored_options("Producer", pool_size=pool_size)
        check_unsigned("max_stream_len", max_stream_len)
        self._max_delay_s = check_unsigned("max_delay_secs", max_delay_secs)
        require_loop(credential_provider)
        url = server_url(redis_url)
        self._queues = QueuePerLoop(queue_name, url, max_stream_len or None, credential_provider)
        self._id = str(uuid4())

    def stream_key(self) -> str:
        """The key of the stream of waiting jobs."""
        return self._queues.keys.stream.decode()

    def delayed_key(self) -> str:
        """The key of the sorted set of delayed jobs."""
        return self._queues.keys.delayed.decode()

    def dlq_key(self) -> str:
        """The key of the stream of dead letters."""
        return self._queues.keys.dead.decode()

    def producer_id(self) -> str:
        """A random id of this producer."""
        return self._id

    # --- adding ---------------------------------------------------------------------------------

    @as_future
    async def add(self, payload: bytes) -> str:
        """Add a job and return its id."""
        return await self._add(payload, {}, {})

    @as_future
    async def add_with_options(self, payload: bytes, opts: dict[str, Any]) -> str:
        """Add a job with a `name`, an `id` or a `retry` dict."""
        return await self._add(payload, opts, {})

    @as_future
    async def add_in(self, delay_ms: int, payload: bytes) -> str:
        """Add a job that runs after a delay."""
        return await self._add(payload, {}, self._delay(delay_ms))

    @as_future
    async def add_in_with_options(self, delay_ms: int, payload: bytes, opts: dict[str, Any]) -> str:
        """Add a job with a delay and with options."""
        return await self._add(payload, opts, self._delay(delay_ms))

    @as_future
    async def add_at(self, when_ms: int, payload: bytes) -> str:
        """Add a job that runs at an instant, in milliseconds since 1970."""
        return await self._add(payload, {}, self._instant(when_ms))

    @as_future
    async def add_at_with_options(self, when_ms: int, payload: bytes, opts: dict[str, Any]) -> str:
        """Add a job with an instant and with options."""
        return await self._add(payload, opts, self._instant(when_ms))

    @as_future
    async def add_bulk(self, payloads: Sequence[bytes]) -> list[str]:
        """Add many jobs and return their ids."""
        return await self._add_many([NewJob("", _check_payload(each)) for each in payloads])

    @as_future
    async def add_bulk_with_options(
        self, payloads: Sequence[bytes], opts: dict[str, Any]
    ) -> list[str]:
        """Add many jobs with the same options; `id` is allowed for a single job only."""
        name, options = _read_options(opts)
        if options.get("job_id") is not None and len(payloads) > 1:
            raise RuntimeError(
                "config: add_bulk_with_options: opts.id can only be set when payloads.len() == 1; "
                "use add_in_bulk_with_ids for per-job stable IDs"
            )
        return await self._add_many(
            [NewJob(name, _check_payload(each), **options) for each in payloads]
        )

    @as_future
    async def add_bulk_named(self, items: Sequence[tuple[str, bytes]]) -> list[str]:
        """Add many jobs, given as pairs of name and payload."""
        return await self._add_many([_read_pair(each) for each in items])

    @as_future
    async def add_in_bulk(self, delay_ms: int, payloads: Sequence[bytes]) -> list[str]:
        """Add many jobs with the same delay."""
        due = self._delay(delay_ms)
        return await self._add_many([NewJob("", _check_payload(each), **due) for each in payloads])

    # --- delayed jobs, dead letters, results ----------------------------------------------------

    @as_future
    async def cancel_delayed(self, job_id: str) -> bool:
        """Cancel a delayed job; True only if it will not run."""
        with translate_errors():
            ids = [check_type("job_id", job_id, str)]
            (cancelled,) = await self._queues.current().actions.cancel_delayed(ids)
            return cancelled

    @as_future
    async def cancel_delayed_bulk(self, job_ids: Sequence[str]) -> list[bool]:
        """Cancel many delayed jobs; the answers are in the order of the ids."""
        with translate_errors():
            ids = check_texts("job_ids", job_ids)
            return await self._queues.current().actions.cancel_delayed(ids)

    @as_future
    async def peek_dlq(self, limit: int) -> list[dict[str, Any]]:
        """The oldest dead letters, which stay where they are."""
        return await peek_dead_letters(self._queues, limit)

    @as_future
    async def replay_dlq(self, limit: int) -> int:
        """Put the oldest dead letters back on the queue and return how many."""
        return await replay_dead_letters(self._queues, limit)

    @as_future
    async def get_result(self, id: str) -> bytes | None:
        """The stored result of a job, or None."""
        (found,) = await self._results([check_type("id", id, str)])
        return found

    @as_future
    async def get_result_bulk(self, ids: Sequence[str]) -> list[bytes | None]:
        """The stored results of many jobs, in the order of the ids."""
        return await self._results(check_texts("ids", ids))

    # --- schedules ------------------------------------------------------------------------------

    @as_future
    async def upsert_repeatable(self, spec: dict[str, Any]) -> str:
        """Store a schedule and return its key."""
        request = ScheduleRequest.from_dict(check_type("spec", spec, dict), RetryOptions())
        return await request.store(self._queues)

    @as_future
    async def list_repeatable(self, limit: int) -> list[dict[str, Any]]:
        """The schedules, ordered by their next fire."""
        return [meta_to_dict(meta) for meta in await list_schedules(self._queues, limit)]

    @as_future
    async def remove_repeatable_by_key(self, key: str) -> bool:
        """Remove a schedule; whether it existed."""
        with translate_errors():
            return await self._queues.current().schedules.remove(check_type("key", key, str))

    @as_future
    async def shutdown(self) -> None:
        """Disconnect; the next call connects again."""
        await self._queues.close()

    # --- internal -------------------------------------------------------------------------------

    async def _add(self, payload: bytes, opts: dict[str, Any], due: JobOptions) -> str:
        name, options = _read_options(opts)
        data = Raw(check_type("payload", payload, bytes))
        return (await self._queues.add(name, data, {**options, **due})).id

    async def _add_many(self, jobs: list[NewJob]) -> list[str]:
        return [job.id for job in await self._queues.add_many(jobs)]

    async def _results(self, ids: list[str]) -> list[bytes | None]:
        with translate_errors():
            return await self._queues.current().raw_results(ids)

    def _delay(self, delay_ms: int) -> JobOptions:
        return delay_options(_check_ms("delay_ms", delay_ms), self._max_delay_s)

    def _instant(self, when_ms: int) -> JobOptions:
        return instant_options(_check_ms("when_ms", when_ms), self._max_delay_s)


def _read_options(opts: dict[str, Any]) -> tuple[str, JobOptions]:
    """The name and the options of a job, from an `opts` dict."""
    given: dict[str, Any] = check_type("opts", opts, dict)
    options: JobOptions = {}
    job_id = get_text(given, "opts", "id")
    if job_id is not None:
        options["job_id"] = job_id
    retry = get_dict(given, "opts", "retry")
    if retry is not None:
        options |= read_retry(retry).to_job_options()
    return job_name(get_text(given, "opts", "name")), options


def _check_payload(payload: object) -> Raw:
    if not isinstance(payload, bytes):
        raise ValueError("payload list entries must be `bytes` objects")  # noqa: TRY004 - as there
    return Raw(payload)


def _read_pair(item: object) -> NewJob:
    match item:
        case (str() as name, bytes() as payload):
            return NewJob(job_name(name), Raw(payload))
        case _:
            raise ValueError("named payload entries must be (str, bytes) tuples")


def _check_ms(name: str, given: object) -> int:
    value = check_int(name, given)
    if value < 0:
        raise ValueError(f"{name} must be non-negative; got {value}")
    return value
