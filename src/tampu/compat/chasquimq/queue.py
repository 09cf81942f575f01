"""`Queue`, as in chasquimq."""

import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Self, TypeAlias

from tampu.compat.chasquimq._arguments import check_type, check_unsigned
from tampu.compat.chasquimq._encoding import decode_payload, encode_payload
from tampu.compat.chasquimq._job_options import (
    BackoffLike,
    DelayMsLike,
    due_options,
    job_name,
    retry_options,
)
from tampu.compat.chasquimq._lifecycle import QueuePerLoop
from tampu.compat.chasquimq._schedules import (
    ScheduleRequest,
    list_schedules,
    peek_dead_letters,
    replay_dead_letters,
)
from tampu.compat.chasquimq._url import DEFAULT_URL, CredentialProvider, server_url
from tampu.compat.chasquimq.errors import JobFailedTimeout, translate_errors
from tampu.compat.chasquimq.job import Job
from tampu.compat.chasquimq.repeat import MissedFiresPolicy, RepeatableMeta, RepeatPattern
from tampu.errors import JobFailed
from tampu.job import JobOptions, NewJob
from tampu.util.clock import now_ms

__all__ = [
    "BackoffLike",
    "CredentialProvider",
    "DelayLike",
    "DelayMsLike",
    "MissedFiresLike",
    "Queue",
    "RepeatLike",
]

DelayLike = DelayMsLike
RepeatLike: TypeAlias = RepeatPattern | dict[str, Any]
MissedFiresLike: TypeAlias = MissedFiresPolicy | dict[str, Any]

_BULK_OPTIONS = ("delay_ms", "delay", "attempts", "backoff", "job_id", "repeat")


class Queue:
    """Adds jobs to one queue. Connects on first use, and again after `close`."""

    def __init__(
        self,
        name: str,
        *,
        redis_url: str = DEFAULT_URL,
        tls: bool = False,
        max_stream_len: int | None = None,
        max_delay_secs: int | None = None,
        credential_provider: CredentialProvider | None = None,
    ) -> None:
        check_unsigned("max_stream_len", max_stream_len)
        self._max_delay_s = check_unsigned("max_delay_secs", max_delay_secs)
        url = server_url(redis_url, tls=tls)
        self._queues = QueuePerLoop(name, url, max_stream_len or None, credential_provider)
        self._closed = False

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._queues.name

    @property
    def is_closed(self) -> bool:
        """Whether `close` has been called."""
        return self._closed

    async def close(self) -> None:
        """Disconnect. May be called twice."""
        await self._queues.close()
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # --- adding ---------------------------------------------------------------------------------

    async def add(
        self,
        name: str,
        data: Any,  # noqa: ANN401 - a user's
        *,
        delay_ms: DelayMsLike | None = None,
        delay: timedelta | None = None,
        attempts: int | None = None,
        backoff: BackoffLike | None = None,
        job_id: str | None = None,
        repeat: RepeatLike | None = None,
        missed_fires: MissedFiresLike | None = None,
    ) -> Job:
        """Add a job or, with `repeat`, a schedule. The id of a schedule's `Job` is its key."""
        if repeat is not None:
            return await self.upsert_repeatable_job(
                name,
                data,
                repeat=_read_pattern(repeat),
                attempts=attempts,
                backoff=backoff,
                job_id=job_id,
                missed_fires=missed_fires,
            )
        if missed_fires is not None:
            raise ValueError(
                "missed_fires is only meaningful with `repeat`; "
                "pass repeat=RepeatPattern.cron(...) or .every(...) too"
            )
        options = self._options(
            delay_ms=delay_ms, delay=delay, attempts=attempts, backoff=backoff, job_id=job_id
        )
        added = await self._queues.add(job_name(name), data, options)
        return Job(added.id, name, data, 0, added.created_at_ms, self)

    async def add_unique(
        self,
        name: str,
        data: Any,  # noqa: ANN401 - a user's
        *,
        job_id: str,
        delay_ms: DelayMsLike | None = None,
        delay: timedelta | None = None,
        attempts: int | None = None,
        backoff: BackoffLike | None = None,
        repeat: RepeatLike | None = None,
    ) -> Job:
        """Add a job unless one with the same id was added in the last hour."""
        _check_id("Queue.add_unique", job_id)
        return await self.add(
            name,
            data,
            delay_ms=delay_ms,
            delay=delay,
            attempts=attempts,
            backoff=backoff,
            job_id=job_id,
            repeat=repeat,
        )

    async def add_bulk(self, jobs: Sequence[dict[str, Any]]) -> list[Job]:
        """Add many jobs. Each is a dict with `name`, `data` and options of `add`."""
        all_jobs = list(jobs or ())  # may be a generator, and is read more than once
        if any(job.get("repeat") is not None for job in all_jobs):
            return [
                await self.add(job["name"], job["data"], **_bulk_options(job)) for job in all_jobs
            ]
        new = [
            NewJob(job_name(job["name"]), job["data"], **self._options(**_bulk_options(job)))
            for job in all_jobs
        ]
        added = await self._queues.add_many(new)
        return [
            Job(each.id, job["name"], job["data"], 0, each.created_at_ms, self)
            for each, job in zip(added, all_jobs, strict=True)
        ]

    def _options(
        self,
        *,
        delay_ms: DelayMsLike | None = None,
        delay: timedelta | None = None,
        attempts: int | None = None,
        backoff: BackoffLike | None = None,
        job_id: str | None = None,
    ) -> JobOptions:
        options = due_options(delay_ms, delay, max_delay_s=self._max_delay_s)
        if job_id is not None:
            options["job_id"] = _check_id("Queue.add", job_id)
        if attempts is not None or backoff is not None:
            options |= retry_options(attempts, backoff).to_job_options()
        return options

    # --- delayed jobs and dead letters ----------------------------------------------------------

    async def cancel_delayed(self, job_id: str) -> bool:
        """Cancel a delayed job; True only if it will not run."""
        with translate_errors():
            ids = [check_type("job_id", job_id, str)]
            (cancelled,) = await self._queues.current().actions.cancel_delayed(ids)
            return cancelled

    async def peek_dlq(self, limit: int = 20) -> list[dict[str, Any]]:
        """The oldest dead letters, which stay where they are."""
        return await peek_dead_letters(self._queues, limit)

    async def replay_dlq(self, limit: int = 100) -> int:
        """Put the oldest dead letters back on the queue and return how many."""
        return await replay_dead_letters(self._queues, limit)

    # --- schedules ------------------------------------------------------------------------------

    async def upsert_repeatable_job(
        self,
        name: str,
        data: Any,  # noqa: ANN401 - a user's
        *,
        repeat: RepeatPattern,
        limit: int | None = None,
        start_after_ms: int | None = None,
        end_before_ms: int | None = None,
        attempts: int | None = None,
        backoff: BackoffLike | None = None,
        job_id: str | None = None,
        missed_fires: MissedFiresLike | None = None,
    ) -> Job:
        """Store a schedule; it replaces one with the same name and pattern. The id is its key."""
        if job_id is not None:
            problem = "job_id has no effect on a schedule: its key is made of its name and pattern"
            warnings.warn(problem, RuntimeWarning, stacklevel=2)
        spec = {
            "job_name": name,
            "pattern": repeat.to_dict(),
            "payload": encode_payload(data),
            "limit": limit,
            "start_after_ms": start_after_ms,
            "end_before_ms": end_before_ms,
            "missed_fires": None if missed_fires is None else _policy_to_dict(missed_fires),
        }
        request = ScheduleRequest.from_dict(spec, retry_options(attempts, backoff))
        key = await request.store(self._queues)
        return Job(key, name, data, 0, now_ms(), self)

    async def get_repeatable_jobs(self, limit: int = 100) -> list[RepeatableMeta]:
        """The schedules, ordered by their next fire."""
        return await list_schedules(self._queues, limit)

    async def remove_repeatable_by_key(self, key: str) -> bool:
        """Remove a schedule; whether it existed."""
        with translate_errors():
            return await self._queues.current().schedules.remove(check_type("key", key, str))

    # --- results --------------------------------------------------------------------------------

    async def get_job_result(self, job_id: str) -> Any:  # noqa: ANN401 - a user's
        """What the handler of a job returned, or None if no result is stored."""
        (value,) = await self.get_job_result_bulk([check_type("id", job_id, str)])
        return value

    async def get_job_result_bulk(self, job_ids: Sequence[str]) -> list[Any]:
        """The results of many jobs, in the order of the ids."""
        with translate_errors():
            ids = [check_type("ids", each, str) for each in job_ids or ()]
            found = await self._queues.current().raw_results(ids)
        return [None if raw is None else decode_payload(raw) for raw in found]

    async def _next_result(self, job_id: str, within_s: float) -> object:
        """The result as soon as it is stored; used by `Job.wait_for_result`."""
        try:
            with translate_errors():
                return await self._queues.current().job(job_id).result(within_s)
        except JobFailed as failed:
            raise JobFailedTimeout.from_failure(failed) from failed


def _bulk_options(job: dict[str, Any]) -> dict[str, Any]:
    return {name: job[name] for name in _BULK_OPTIONS if job.get(name) is not None}


def _check_id(caller: str, job_id: object) -> str:
    if not isinstance(job_id, str) or not job_id.strip():
        raise ValueError(f"{caller}: job_id must be a non-empty, non-whitespace string")
    return job_id


def _read_pattern(repeat: RepeatLike) -> RepeatPattern:
    given: object = repeat
    match given:
        case RepeatPattern():
            return given
        case dict():
            return _read_pattern_dict(given)
        case _:
            got = type(given).__name__
            raise TypeError(f"repeat must be a RepeatPattern or dict; got {got}")


def _read_pattern_dict(given: dict[str, Any]) -> RepeatPattern:
    match given.get("kind"):
        case "cron":
            return RepeatPattern.cron(given["expression"], tz=given.get("tz"))
        case "every":
            return RepeatPattern.every(int(given["interval_ms"]))
        case kind:
            raise ValueError(f"repeat dict must include kind='cron' or 'every'; got {kind!r}")


def _policy_to_dict(policy: MissedFiresLike) -> dict[str, Any]:
    given: object = policy
    match given:
        case MissedFiresPolicy():
            return given.to_dict()
        case dict():
            return given
        case _:
            got = type(given).__name__
            raise TypeError(f"missed_fires must be a MissedFiresPolicy or dict; got {got}")
