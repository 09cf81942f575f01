"""What is enqueued: waiting and delayed jobs as the server has them, and what a test expects."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from tampu.errors import ArgumentError, DecodeError
from tampu.server.inspection import scored_members
from tampu.server.lane import Lane
from tampu.server.streams import entries_from
from tampu.tasks.arguments import InvalidArguments
from tampu.tasks.task import AnyTask
from tampu.util.clock import UNIT_MS, Duration, instant, instant_ms, now_ms, to_ms
from tampu.wire.entry import decode_entry, decode_member
from tampu.wire.envelope import decode_envelope
from tampu.wire.extras import decode_extras, split_extras
from tampu.wire.keys import QueueKeys
from tampu.wire.placeholders import decode_shown

_PAGE: Final = 1000


class EnqueuedJob(Struct, frozen=True, kw_only=True):
    """A job that waits on a queue, or that is delayed."""

    id: str
    name: str
    data: Any  # for a task: its arguments by name, as sent
    queue: str
    due_at: datetime | None = None  # None: it waits for a worker already
    attempts: int = 0  # that have been made
    headers: dict[str, str] = {}
    tenant: str | None = None

    @property
    def delay(self) -> timedelta:
        """How long from now until it is due; 0 if it is."""
        if self.due_at is None:
            return timedelta(0)
        return max(timedelta(0), self.due_at - instant(now_ms()))

    def __str__(self) -> str:
        shown = f"{self.name}({describe_data(self.data)})"
        if self.delay:
            shown += f", due in {describe_duration(self.delay)}"
        return f"{shown}, on queue {self.queue}"


async def read_enqueued(
    lane: Lane, keys: QueueKeys, *, without: Iterable[str]
) -> list[EnqueuedJob]:
    """The jobs of a queue that wait, in their order; then the delayed ones, by when they are due.

    `without` are ids of jobs that run right now. What cannot be decoded is left out.
    """
    found: list[EnqueuedJob] = []
    start = b"-"
    while True:
        page = await entries_from(lane, keys.stream, start=start, count=_PAGE)
        for _, fields in page:
            with suppress(DecodeError):
                found.append(_waiting_job(fields or (), keys.name))
        if len(page) < _PAGE:
            break
        start = b"(" + page[-1][0]
    for member, score in await scored_members(lane, keys.delayed):
        with suppress(DecodeError):
            found.append(_delayed_job(member, score, keys.name))
    active = set(without)
    return [each for each in found if each.id not in active]


class Wanted(Struct, frozen=True):
    """What a test expects of a job: its task, some of its arguments, and when it is due."""

    task: AnyTask
    arguments: Mapping[str, object]
    due_ms: int | None = None

    def matches(self, job: EnqueuedJob) -> bool:
        """Whether a job is what the test expects."""
        if job.name != self.task.name or job.queue != self.task.queue:
            return False
        if self.due_ms is not None and self.due_ms != _due_ms(job):
            return False
        try:
            actual = self.task.definition.arguments.convert(job.data)
        except InvalidArguments:
            return False
        return all(self._is_equal(name, actual[name]) for name in self.arguments)

    def _is_equal(self, name: str, actual: object) -> bool:
        expected = self.arguments[name]
        if expected == actual:
            return True
        # As it looks after the way over the wire: a tuple as a list, for instance.
        try:
            return bool(self.task.definition.arguments.receive(name, expected) == actual)
        except ArgumentError:
            return False

    def __str__(self) -> str:
        shown = f"{self.task.name}({describe_data(self.arguments)})"
        if self.due_ms is None:
            return shown
        left = timedelta(milliseconds=self.due_ms - now_ms())
        return f"{shown}, due {f'in {describe_duration(left)}' if left else 'now'}"


def wanted_job(
    task: AnyTask,
    args: Sequence[object],
    kwargs: dict[str, object],
    *,
    delay: Duration | None,
    at: datetime | None,
) -> Wanted:
    """What a test expects; `ArgumentError` if the task has no such parameter.

    A task may have parameters with the names of the options. Then the keywords mean those, and
    `task.options(...)` gives the options.
    """
    arguments, options = task.definition.arguments, task.own_options
    given: dict[str, Any] = {"delay": delay, "at": at}
    for name in [name for name in given if name in arguments.names]:
        if given[name] is not None:
            kwargs[name] = given[name]
        given[name] = None
    delay, at = given["delay"], given["at"]
    if delay is None and at is None:
        delay, at = options.get("delay"), options.get("at")
    due_ms = None
    if at is not None:
        due_ms = instant_ms("at", at)
    elif delay is not None:
        due_ms = now_ms() + to_ms("delay", delay)
    return Wanted(task, arguments.bind_some(tuple(args), kwargs), due_ms)


def describe_duration(duration: timedelta) -> str:
    """A duration as users write it: 1d12h."""
    ms, parts = duration // timedelta(milliseconds=1), []
    for unit, size in UNIT_MS.items():
        count, ms = divmod(ms, size)
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or "0s"


def describe_data(data: object) -> str:
    """Arguments as they are written in a call."""
    if isinstance(data, Mapping):
        return ", ".join(f"{name}={value!r}" for name, value in data.items())
    return "" if data is None else repr(data)


def describe_all(jobs: Sequence[object], *, none: str) -> str:
    """One line for each job; the text `none` if there are none."""
    return "\n".join(f"  {each}" for each in jobs) or f"  {none}"


def _due_ms(job: EnqueuedJob) -> int:
    """When a job is due; now, if it waits already or should have run."""
    return now_ms() if job.due_at is None else max(now_ms(), instant_ms("due_at", job.due_at))


def _waiting_job(fields: Sequence[bytes], queue: str) -> EnqueuedJob:
    entry = decode_entry(fields)
    body, appended = split_extras(entry.envelope or b"")
    return _job(body, entry.name, entry.extras or appended, queue=queue)


def _delayed_job(member: bytes, score: float, queue: str) -> EnqueuedJob:
    parts = decode_member(member)
    due_at = instant(round(score))
    return _job(parts.envelope, parts.name, parts.extras, queue=queue, due_at=due_at)


def _job(
    body: bytes,
    name: str,
    raw_extras: bytes | None,
    *,
    queue: str,
    due_at: datetime | None = None,
) -> EnqueuedJob:
    envelope, extras = decode_envelope(body), decode_extras(raw_extras)
    return EnqueuedJob(
        id=envelope.id,
        name=name,
        data=decode_shown(envelope.payload),
        queue=queue,
        due_at=due_at,
        attempts=envelope.attempt,
        headers=extras.headers,
        tenant=extras.tenant,
    )
