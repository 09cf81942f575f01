"""A task of Django with options of tampu."""

from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any, Final, Self, cast

from django.conf import settings
from django.utils import timezone

from tampu.backoff import Backoff
from tampu.consumer.handler import check_policy
from tampu.django.tasks_api import InvalidTask, Task
from tampu.errors import OptionError
from tampu.job import JobOptions
from tampu.util.clock import Duration, to_positive_ms
from tampu.util.options import check_names

_MIDDLE: Final = 5
_ABOVE: Final = 4
_BELOW: Final = 5


@dataclass(frozen=True, kw_only=True)
class TampuTask(Task):  # type: ignore[misc] # Django has no types
    """What `@task` makes for a `TampuBackend`. Options that are None come from the backend."""

    attempts: int | None = None  # how often it is run at most if it fails
    backoff: Backoff | None = None  # the wait between attempts
    timeout: Duration | None = None  # of one attempt
    expires: Duration | None = None  # a job that has not started by then is not run any more

    def __new__(cls, **given: object) -> Self:
        """Refuse options that a task does not have: `InvalidTask`."""
        try:
            check_names("a task", given, [each.name for each in fields(cls)])
        except OptionError as error:
            raise InvalidTask(str(error)) from error
        made: Self = super().__new__(cls)
        return made

    def using(self, *, run_after: datetime | timedelta | None = None, **changes: object) -> Self:
        """The same task with other options. `run_after` is an instant, or how long to wait."""
        given = {"run_after": run_after, **changes}
        known: dict[str, Any] = {name: each for name, each in given.items() if each is not None}
        return replace(self, **known)

    def check_options(self) -> None:
        """Refuse invalid options of tampu: `OptionError`."""
        check_policy(self.attempts, self.backoff, timeout=self.timeout, isolation=None)
        if self.expires is not None:
            to_positive_ms("expires", self.expires)


def due_at(run_after: datetime | timedelta | None) -> datetime | None:
    """The instant that `run_after` means now. Django knows naive ones if USE_TZ is off."""
    if isinstance(run_after, timedelta):
        return datetime.now(UTC) + run_after
    if run_after is not None and timezone.is_naive(run_after) and not settings.USE_TZ:
        aware: datetime = timezone.make_aware(run_after)
        return aware
    return run_after


def level_of(priority: int) -> int | None:
    """Our level, from 0 to 9, for a priority of Django, from -100 to 100; None for the middle."""
    if priority > 0:
        return _MIDDLE + ceil(priority * _ABOVE / 100)
    return _MIDDLE - ceil(-priority * _BELOW / 100) if priority else None


def job_options(task: Task, due: datetime | None) -> JobOptions:
    """The options of a job of the task."""
    given: dict[str, Any] = {"at": due, "priority": level_of(task.priority)}
    for name in ("attempts", "backoff", "timeout", "expires"):
        given[name] = getattr(task, name, None)
    known = {name: each for name, each in given.items() if each is not None}
    return cast("JobOptions", known)
