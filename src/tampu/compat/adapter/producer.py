"""The low-level producer: payloads are bytes that it does not look into."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from msgspec import Raw

from tampu.compat.adapter.address import CredentialProvider, url_of
from tampu.compat.adapter.dead import peeked, replayed
from tampu.compat.adapter.delay import run_at, run_in
from tampu.compat.adapter.dicts import dict_of, text_of
from tampu.compat.adapter.errors import as_theirs
from tampu.compat.adapter.integers import unsigned, unused
from tampu.compat.adapter.kinds import instance, texts, whole
from tampu.compat.adapter.line import Line, checked_name
from tampu.compat.adapter.retrying import Retrying, retrying_in
from tampu.compat.adapter.schedules import NewSchedule, as_dict, listed
from tampu.compat.adapter.started import started
from tampu.job import JobOptions, NewJob


class Producer:
    """Adds jobs to one queue, from any event loop.

    Each call begins at once and gives a future; it need not be awaited.
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
        if unsigned("pool_size", pool_size) == 0:
            raise RuntimeError("config: pool_size must be > 0")
        unused("Producer", pool_size=pool_size)
        unsigned("max_stream_len", max_stream_len)
        self._max_delay_s = unsigned("max_delay_secs", max_delay_secs)
        if credential_provider is not None:
            asyncio.get_running_loop()  # theirs needs one here
        self._line = Line(
            queue_name, url_of(redis_url), max_stream_len or None, credential_provider
        )
        self._id = str(uuid4())

    def stream_key(self) -> str:
        """Where jobs wait."""
        return self._line.keys.stream.decode()

    def delayed_key(self) -> str:
        """Where jobs lie until they are due."""
        return self._line.keys.delayed.decode()

    def dlq_key(self) -> str:
        """Where dead letters lie."""
        return self._line.keys.dead.decode()

    def producer_id(self) -> str:
        """An id of this producer."""
        return self._id

    # --- adding ---------------------------------------------------------------------------------

    @started
    async def add(self, payload: bytes) -> str:
        """Add a job; its id."""
        return await self._add(payload, {}, {})

    @started
    async def add_with_options(self, payload: bytes, opts: dict[str, Any]) -> str:
        """Add a job with a `name`, an `id` or a `retry` dict."""
        return await self._add(payload, opts, {})

    @started
    async def add_in(self, delay_ms: int, payload: bytes) -> str:
        """Add a job that runs no sooner than so many milliseconds from now."""
        return await self._add(payload, {}, self._in(delay_ms))

    @started
    async def add_in_with_options(self, delay_ms: int, payload: bytes, opts: dict[str, Any]) -> str:
        """As both say."""
        return await self._add(payload, opts, self._in(delay_ms))

    @started
    async def add_at(self, when_ms: int, payload: bytes) -> str:
        """Add a job that runs no sooner than an instant, in milliseconds since 1970."""
        return await self._add(payload, {}, self._at(when_ms))

    @started
    async def add_at_with_options(self, when_ms: int, payload: bytes, opts: dict[str, Any]) -> str:
        """As both say."""
        return await self._add(payload, opts, self._at(when_ms))

    @started
    async def add_bulk(self, payloads: Sequence[bytes]) -> list[str]:
        """Add many jobs; their ids."""
        return await self._add_all([NewJob("", _listed(each)) for each in payloads])

    @started
    async def add_bulk_with_options(
        self, payloads: Sequence[bytes], opts: dict[str, Any]
    ) -> list[str]:
        """Add many jobs with the same options; an `id` only if it is one."""
        name, options = _named(opts)
        if options.get("job_id") is not None and len(payloads) > 1:
            raise RuntimeError(
                "config: add_bulk_with_options: opts.id can only be set when payloads.len() == 1; "
                "use add_in_bulk_with_ids for per-job stable IDs"
            )
        return await self._add_all([NewJob(name, _listed(each), **options) for each in payloads])

    @started
    async def add_bulk_named(self, items: Sequence[tuple[str, bytes]]) -> list[str]:
        """Add many jobs, each with a name."""
        return await self._add_all([_pair(each) for each in items])

    @started
    async def add_in_bulk(self, delay_ms: int, payloads: Sequence[bytes]) -> list[str]:
        """Add many jobs with the same delay."""
        due = self._in(delay_ms)
        return await self._add_all([NewJob("", _listed(each), **due) for each in payloads])

    # --- delayed jobs, dead letters, results ----------------------------------------------------

    @started
    async def cancel_delayed(self, job_id: str) -> bool:
        """Take a delayed job back; True only if it will not run."""
        with as_theirs():
            return await self._line.queue().cancel(instance("job_id", job_id, str))

    @started
    async def cancel_delayed_bulk(self, job_ids: Sequence[str]) -> list[bool]:
        """As `cancel_delayed`, of many, in their order."""
        with as_theirs():
            return await self._line.queue().cancel_many(texts("job_ids", job_ids))

    @started
    async def peek_dlq(self, limit: int) -> list[dict[str, Any]]:
        """The oldest dead letters; nothing is changed."""
        return await peeked(self._line, limit)

    @started
    async def replay_dlq(self, limit: int) -> int:
        """Put the oldest dead letters back on the queue; how many."""
        return await replayed(self._line, limit)

    @started
    async def get_result(self, id: str) -> bytes | None:
        """What is stored as the result of a job; None if nothing is."""
        (found,) = await self._results([instance("id", id, str)])
        return found

    @started
    async def get_result_bulk(self, ids: Sequence[str]) -> list[bytes | None]:
        """As `get_result`, of many, in their order."""
        return await self._results(texts("ids", ids))

    # --- schedules ------------------------------------------------------------------------------

    @started
    async def upsert_repeatable(self, spec: dict[str, Any]) -> str:
        """Store a schedule; its key."""
        return await NewSchedule.read(instance("spec", spec, dict), Retrying()).store(self._line)

    @started
    async def list_repeatable(self, limit: int) -> list[dict[str, Any]]:
        """The schedules by their next fires."""
        return [as_dict(meta) for meta in await listed(self._line, limit)]

    @started
    async def remove_repeatable_by_key(self, key: str) -> bool:
        """Remove a schedule; whether there was one."""
        with as_theirs():
            return await self._line.queue().unschedule(instance("key", key, str))

    @started
    async def shutdown(self) -> None:
        """Disconnect."""
        await self._line.close()

    # --- inside ---------------------------------------------------------------------------------

    async def _add(self, payload: bytes, opts: dict[str, Any], due: JobOptions) -> str:
        name, options = _named(opts)
        data = Raw(instance("payload", payload, bytes))
        return (await self._line.add(name, data, {**options, **due})).id

    async def _add_all(self, jobs: list[NewJob]) -> list[str]:
        return [job.id for job in await self._line.add_all(jobs)]

    async def _results(self, ids: list[str]) -> list[bytes | None]:
        with as_theirs():
            return await self._line.queue().raw_results(ids)

    def _in(self, delay_ms: int) -> JobOptions:
        return run_in(_stamp("delay_ms", delay_ms), self._max_delay_s)

    def _at(self, when_ms: int) -> JobOptions:
        return run_at(_stamp("when_ms", when_ms), self._max_delay_s)


def _named(opts: dict[str, Any]) -> tuple[str, JobOptions]:
    """The name and the options of a job that a dict states."""
    given: dict[str, Any] = instance("opts", opts, dict)
    options: JobOptions = {}
    job_id = text_of(given, "opts", "id")
    if job_id is not None:
        options["job_id"] = job_id
    retry: Mapping[str, Any] | None = dict_of(given, "opts", "retry")
    if retry is not None:
        retrying = retrying_in(retry)
        options |= {"attempts": retrying.attempts, "backoff": retrying.backoff}
    return checked_name(text_of(given, "opts", "name")), options


def _listed(payload: object) -> Raw:
    if not isinstance(payload, bytes):
        raise ValueError("payload list entries must be `bytes` objects")  # noqa: TRY004 - theirs
    return Raw(payload)


def _pair(item: object) -> NewJob:
    match item:
        case (str() as name, bytes() as payload):
            return NewJob(checked_name(name), Raw(payload))
        case _:
            raise ValueError("named payload entries must be (str, bytes) tuples")


def _stamp(name: str, given: object) -> int:
    """Milliseconds, from 0."""
    stamp = whole(name, given)
    if stamp < 0:
        raise ValueError(f"{name} must be non-negative; got {stamp}")
    return stamp
