"""The producer as programs written for chasquimq have it."""

import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Self, TypeAlias

from tampu.compat.adapter.address import DEFAULT_URL, CredentialProvider, url_of
from tampu.compat.adapter.dead import peeked, replayed
from tampu.compat.adapter.delay import DelayMsLike, when
from tampu.compat.adapter.encoding import decode_payload, encode_payload
from tampu.compat.adapter.errors import FailedForGood, as_theirs
from tampu.compat.adapter.integers import unsigned
from tampu.compat.adapter.job import Job
from tampu.compat.adapter.kinds import instance
from tampu.compat.adapter.line import Line, checked_name
from tampu.compat.adapter.repeat import MissedFiresPolicy, RepeatableMeta, RepeatPattern
from tampu.compat.adapter.retrying import BackoffLike, retrying_of
from tampu.compat.adapter.schedules import NewSchedule, listed
from tampu.errors import JobFailed
from tampu.job import JobOptions, NewJob
from tampu.util.clock import now_ms

RepeatLike: TypeAlias = RepeatPattern | dict[str, Any]
MissedFiresLike: TypeAlias = MissedFiresPolicy | dict[str, Any]

_OPTIONS = ("delay_ms", "delay", "attempts", "backoff", "job_id")


class Queue:
    """Adds jobs to one queue; connects when it is first used, and again after `close`."""

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
        unsigned("max_stream_len", max_stream_len)
        self._max_delay_s = unsigned("max_delay_secs", max_delay_secs)
        url = url_of(redis_url, tls=tls)
        self._line = Line(name, url, max_stream_len or None, credential_provider)
        self._closed = False

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._line.name

    @property
    def is_closed(self) -> bool:
        """Whether it has been closed."""
        return self._closed

    async def close(self) -> None:
        """Disconnect. May be called twice."""
        await self._line.close()
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
        """Add a job, or with `repeat` a schedule, whose key is then the id of what is returned."""
        if repeat is not None:
            return await self.upsert_repeatable_job(
                name,
                data,
                repeat=_pattern(repeat),
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
        added = await self._line.add(checked_name(name), data, options)
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
        """Add a job unless one of the same id was added, by whomever, within the hour before."""
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
        """Add many jobs; each is a dict of `name`, `data` and options of `add`."""
        all_jobs = list(jobs or ())  # a generator, too, is gone through more than once
        if any(job.get("repeat") is not None for job in all_jobs):
            return [await self.add(job["name"], job["data"], **_rest(job)) for job in all_jobs]
        new = [
            NewJob(checked_name(job["name"]), job["data"], **self._options(**_rest(job)))
            for job in all_jobs
        ]
        added = await self._line.add_all(new)
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
        options = when(delay_ms, delay, max_delay_s=self._max_delay_s)
        if job_id is not None:
            options["job_id"] = _check_id("Queue.add", job_id)
        if attempts is not None or backoff is not None:
            retrying = retrying_of(attempts, backoff)
            options |= {"attempts": retrying.attempts, "backoff": retrying.backoff}
        return options

    # --- delayed jobs and dead letters ----------------------------------------------------------

    async def cancel_delayed(self, job_id: str) -> bool:
        """Take a delayed job back; True only if it will not run."""
        with as_theirs():
            return await self._line.queue().cancel(instance("job_id", job_id, str))

    async def peek_dlq(self, limit: int = 20) -> list[dict[str, Any]]:
        """The oldest dead letters; nothing is changed."""
        return await peeked(self._line, limit)

    async def replay_dlq(self, limit: int = 100) -> int:
        """Put the oldest dead letters back on the queue; how many."""
        return await replayed(self._line, limit)

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
        """Store a schedule, in place of one of the same name and pattern; its key is the id."""
        if job_id is not None:
            told = "job_id means nothing for a schedule, which is known by its name and pattern"
            warnings.warn(told, RuntimeWarning, stacklevel=2)
        spec = {
            "job_name": name,
            "pattern": repeat.to_dict(),
            "payload": encode_payload(data),
            "limit": limit,
            "start_after_ms": start_after_ms,
            "end_before_ms": end_before_ms,
            "missed_fires": None if missed_fires is None else _policy_dict(missed_fires),
        }
        new = NewSchedule.read(spec, retrying_of(attempts, backoff))
        return Job(await new.store(self._line), name, data, 0, now_ms(), self)

    async def get_repeatable_jobs(self, limit: int = 100) -> list[RepeatableMeta]:
        """The schedules by their next fires."""
        return await listed(self._line, limit)

    async def remove_repeatable_by_key(self, key: str) -> bool:
        """Remove a schedule; whether there was one."""
        with as_theirs():
            return await self._line.queue().unschedule(instance("key", key, str))

    # --- results --------------------------------------------------------------------------------

    async def get_job_result(self, job_id: str) -> Any:  # noqa: ANN401 - a user's
        """What the handler of a job returned; None also if that is not known, or not kept."""
        (value,) = await self.get_job_result_bulk([instance("id", job_id, str)])
        return value

    async def get_job_result_bulk(self, job_ids: Sequence[str]) -> list[Any]:
        """As `get_job_result`, of many, in their order."""
        with as_theirs():
            ids = [instance("ids", each, str) for each in job_ids or ()]
            found = await self._line.queue().raw_results(ids)
        return [None if raw is None else decode_payload(raw) for raw in found]

    async def _next_result(self, job_id: str, within_s: float) -> object:
        """For the jobs that this queue gave out: the result, as soon as it is there."""
        try:
            with as_theirs():
                return await self._line.queue().result(job_id, within_s)
        except JobFailed as failed:
            raise FailedForGood.told_by(failed) from failed


def _rest(job: dict[str, Any]) -> dict[str, Any]:
    known = (*_OPTIONS, "repeat")
    return {name: job[name] for name in known if job.get(name) is not None}


def _check_id(caller: str, job_id: object) -> str:
    if not isinstance(job_id, str) or not job_id.strip():
        raise ValueError(f"{caller}: job_id must be a non-empty, non-whitespace string")
    return job_id


def _pattern(repeat: RepeatLike) -> RepeatPattern:
    given: object = repeat
    match given:
        case RepeatPattern():
            return given
        case dict():
            return _pattern_in(given)
        case _:
            got = type(given).__name__
            raise TypeError(f"repeat must be a RepeatPattern or dict; got {got}")


def _pattern_in(given: dict[str, Any]) -> RepeatPattern:
    match given.get("kind"):
        case "cron":
            return RepeatPattern.cron(given["expression"], tz=given.get("tz"))
        case "every":
            return RepeatPattern.every(int(given["interval_ms"]))
        case kind:
            raise ValueError(f"repeat dict must include kind='cron' or 'every'; got {kind!r}")


def _policy_dict(policy: MissedFiresLike) -> dict[str, Any]:
    given: object = policy
    match given:
        case MissedFiresPolicy():
            return given.to_dict()
        case dict():
            return given
        case _:
            got = type(given).__name__
            raise TypeError(f"missed_fires must be a MissedFiresPolicy or dict; got {got}")
