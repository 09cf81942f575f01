"""Which jobs somebody means: a filter as it is in a link, a form and the record of an action."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tampu.admin.browsing import JobBrowser, JobPlace, is_entry_id
from tampu.admin.lines import is_line_row
from tampu.dashboard.page import bad_request, link
from tampu.errors import OptionError
from tampu.wire.keys import QueueKeys
from tampu.wire.names import check_job_id

if TYPE_CHECKING:
    from tampu.admin.browsing import JobPage
    from tampu.dashboard.access import Redaction
    from tampu.dashboard.page import View
    from tampu.dashboard.source import DataSource
    from tampu.job import JobInfo

PAGE: Final = 50
MOST_SELECTED: Final = 1000
_MOST_TEXT: Final = 500
_NAMED: Final = 10
_SEARCHED_S: Final = 10.0  # a search reads much: what it found is shown for so long
_LISTED_S: Final = 0.9
_ROWS: Final = "rows"  # in the record of an action


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """The jobs of a queue in a state, with a task, a key, an error, and a text in them.

    With `rows`, which `ListedJob.row` tells, only those of them that are in these rows.
    """

    queue: str
    place: JobPlace = JobPlace.WAITING
    task: str = ""
    error: str = ""  # the type of its error; without one, the reason why it is dead
    text: str = ""  # in its id, payload, headers or error
    key: str = ""  # what flow control groups it by
    rows: tuple[str, ...] = ()

    @classmethod
    def of_view(cls, view: View, queue: str) -> JobFilter:
        """The filter in a query or form."""
        return cls.parse(queue, view.choice("state", JobPlace.WAITING), view.params)

    @classmethod
    def parse(cls, queue: str, place: JobPlace, given: Mapping[str, str]) -> JobFilter:
        """The filter with these parts; 400 if one of them is too long."""
        parts = {name: given.get(name, "") for name in ("task", "error", "q", "key")}
        for name, value in parts.items():
            if len(value) > _MOST_TEXT:
                raise bad_request(f"{name} must have at most {_MOST_TEXT} characters.")
        return cls(
            queue=queue,
            place=place,
            task=parts["task"],
            error=parts["error"],
            text=parts["q"].strip(),
            key=parts["key"],
        )

    @classmethod
    def of_record(cls, queue: str, place: JobPlace, kept: Mapping[str, str]) -> JobFilter:
        """The filter in the record of an action."""
        rows = tuple(json.loads(kept[_ROWS])) if _ROWS in kept else ()
        return replace(cls.parse(queue, place, kept), rows=rows)

    @property
    def record(self) -> dict[str, str]:
        """The filter in the record of an action."""
        return self.params | ({_ROWS: json.dumps(self.rows)} if self.rows else {})

    def select(self, rows: Sequence[str]) -> JobFilter:
        """The same for some rows only; 400 if there are none, or they cannot be rows."""
        if not rows:
            raise bad_request("No job is selected. Tick the boxes of some rows first.")
        if len(rows) > MOST_SELECTED:
            raise bad_request(f"At most {MOST_SELECTED} jobs can be selected.")
        is_delayed = self.place is JobPlace.DELAYED
        if not all(_may_be_job_id(row) if is_delayed else self._may_be_row(row) for row in rows):
            raise bad_request("row must be the key of a row in the list of jobs.")
        return replace(self, rows=tuple(dict.fromkeys(rows)))

    def _may_be_row(self, row: str) -> bool:
        return is_entry_id(row) or (self.place is JobPlace.WAITING and is_line_row(row))

    @property
    def params(self) -> dict[str, str]:
        """The filter as parameters of a link or hidden fields of a form, without its rows."""
        own = {"task": self.task, "error": self.error, "q": self.text, "key": self.key}
        given = {name: value for name, value in own.items() if value}
        return {"queue": self.queue, "state": str(self.place)} | given

    @property
    def link(self) -> str:
        """The link to the jobs."""
        return link("jobs", **self.params)

    @property
    def searches(self) -> bool:
        """Whether jobs must be read to know which are meant."""
        return bool(self.task or self.error or self.text or self.key or self.rows)

    def at(self, place: JobPlace) -> JobFilter:
        """The same for another state; only dead letters have an error to filter by."""
        return replace(self, place=place, error=self.error if place is JobPlace.DEAD else "")

    def with_key(self, key: str) -> JobFilter:
        """The same for one key."""
        return replace(self, key=key)

    def describe(self) -> str:
        """The filter as people read it."""
        count = len(self.rows)
        which = f"{count} selected {self.place} {'job' if count == 1 else 'jobs'}"
        words = [f"{which if count else f'{self.place} jobs'} of {self.queue}"]
        if self.task:
            words.append(f"of the task {self.task}")
        if self.key:
            words.append(f"of the key {self.key}")
        if self.error:
            words.append(f"with the error {self.error}")
        if self.text:
            words.append(f'with "{self.text}" in them')
        return " ".join(words)

    def name_rows(self) -> str:
        """The filter as people read it, with the ids of rows."""
        named, more = ", ".join(self.rows[:_NAMED]), len(self.rows) - _NAMED
        rest = f" and {more} more" if more > 0 else ""
        return f"{self.describe()}{': ' if named else ''}{named}{rest}"

    def matcher(self, redaction: Redaction) -> Callable[[JobInfo], bool]:
        """Whether a job is meant. What is hidden cannot be searched for."""
        wanted = self.text.casefold()

        def matches(info: JobInfo) -> bool:
            if self.task not in {"", info.name} or self.key not in {"", info.key}:
                return False
            if self.error and error_of(info) != self.error:
                return False
            if not wanted:
                return True
            return any(wanted in text.casefold() for text in texts_of(info, redaction))

        return matches


def _may_be_job_id(given: str) -> bool:
    try:
        return bool(check_job_id(given))
    except OptionError:
        return False


def error_of(info: JobInfo) -> str:
    """What a failed job is grouped by: the type of its error, or why it was buried."""
    failure = info.failure
    return (failure.error_type if failure is not None else "") or info.reason or ""


def texts_of(info: JobInfo, redaction: Redaction) -> Iterator[str]:
    """Every text in a job that may be shown."""
    yield info.id
    if info.failure is not None:
        yield info.failure.error_type
        yield info.failure.message
    yield from _texts(redaction.apply(info.headers))
    yield from _texts(redaction.apply(info.data))


def _texts(value: object) -> Iterator[str]:
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            left += each.values()
            yield from map(str, each)
        elif isinstance(each, list | tuple):
            left += each
        elif each is not None:
            yield str(each)


async def list_jobs(view: View, chosen: JobFilter, keys: QueueKeys) -> JobPage:
    """A page of jobs, as the query's cursor says. Visitors who look at the same share it."""
    after = view.text("after")[:60]
    matches = chosen.matcher(view.redaction)

    async def read() -> JobPage:
        browser = await open_browser(view.source, keys, key=chosen.key)
        return await browser.page(chosen.place, after=after, want=PAGE, matches=matches)

    kept_s = _SEARCHED_S if chosen.searches else _LISTED_S
    try:
        return await view.source.cache(("jobs", chosen, after), kept_s, read)
    except OptionError:
        raise bad_request("after must be the cursor of a page.") from None


async def open_browser(source: DataSource, keys: QueueKeys, *, key: str = "") -> JobBrowser:
    """Reads the jobs of a queue; of those that wait in lines, only those of a key."""
    return JobBrowser(await source.lane(keys), keys, group=source.group, key=key)


async def choose_queue(view: View) -> tuple[QueueKeys | None, list[str]]:
    """The queue that a query names, else the first that the visitor sees; and all of those."""
    names = await view.queues()
    if view.params.get("queue"):
        keys = await view.queue("queue")
        return keys, names if keys.name in names else sorted([*names, keys.name])
    return (QueueKeys(names[0]) if names else None), names


def job_link(queue: str, job_id: str, dead_id: str | None = None) -> str:
    """The link to a job; a dead letter is found by its own id."""
    if dead_id:
        return link("job", queue=queue, dead=dead_id)
    return link("job", queue=queue, id=job_id)
