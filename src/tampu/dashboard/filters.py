"""Which jobs somebody means: a filter as it is in a link, a form and the record of an action."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tampu.admin.browsing import JobBrowser, JobPlace
from tampu.dashboard.page import bad_request, link
from tampu.errors import OptionError
from tampu.wire.keys import QueueKeys

if TYPE_CHECKING:
    from tampu.admin.browsing import JobPage
    from tampu.dashboard.access import Redaction
    from tampu.dashboard.page import View
    from tampu.dashboard.source import DataSource
    from tampu.job import JobInfo

PAGE: Final = 50
_MOST_TEXT: Final = 500
_SEARCHED_S: Final = 10.0  # a search reads much: what it found is shown for so long
_LISTED_S: Final = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """The jobs of a queue in a state, with a task, an error, and a text in them."""

    queue: str
    place: JobPlace = JobPlace.WAITING
    task: str = ""
    error: str = ""  # the type of its error; without one, the reason why it is dead
    text: str = ""  # in its id, payload, headers or error

    @classmethod
    def of_view(cls, view: View, queue: str) -> JobFilter:
        """The filter in a query or form."""
        return cls.parse(queue, view.choice("state", JobPlace.WAITING), view.params)

    @classmethod
    def parse(cls, queue: str, place: JobPlace, given: Mapping[str, str]) -> JobFilter:
        """The filter with these parts; 400 if one of them is too long."""
        parts = {name: given.get(name, "") for name in ("task", "error", "q")}
        for name, value in parts.items():
            if len(value) > _MOST_TEXT:
                raise bad_request(f"{name} must have at most {_MOST_TEXT} characters.")
        text = parts["q"].strip()
        return cls(queue=queue, place=place, task=parts["task"], error=parts["error"], text=text)

    @property
    def params(self) -> dict[str, str]:
        """The filter as parameters of a link or hidden fields of a form."""
        own = {"task": self.task, "error": self.error, "q": self.text}
        given = {name: value for name, value in own.items() if value}
        return {"queue": self.queue, "state": str(self.place)} | given

    @property
    def link(self) -> str:
        """The link to the jobs."""
        return link("jobs", **self.params)

    @property
    def searches(self) -> bool:
        """Whether jobs must be read to know which are meant."""
        return bool(self.task or self.error or self.text)

    def at(self, place: JobPlace) -> JobFilter:
        """The same for another state; only dead letters have an error to filter by."""
        return replace(self, place=place, error=self.error if place is JobPlace.DEAD else "")

    def describe(self) -> str:
        """The filter as people read it."""
        words = [f"{self.place} jobs of {self.queue}"]
        if self.task:
            words.append(f"of the task {self.task}")
        if self.error:
            words.append(f"with the error {self.error}")
        if self.text:
            words.append(f'with "{self.text}" in them')
        return " ".join(words)

    def matcher(self, redaction: Redaction) -> Callable[[JobInfo], bool]:
        """Whether a job is meant. What is hidden cannot be searched for."""
        wanted = self.text.casefold()

        def matches(info: JobInfo) -> bool:
            if self.task and info.name != self.task:
                return False
            if self.error and error_of(info) != self.error:
                return False
            if not wanted:
                return True
            return any(wanted in text.casefold() for text in texts_of(info, redaction))

        return matches


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
        browser = await open_browser(view.source, keys)
        return await browser.page(chosen.place, after=after, want=PAGE, matches=matches)

    kept_s = _SEARCHED_S if chosen.searches else _LISTED_S
    try:
        return await view.source.cached(("jobs", chosen, after), kept_s, read)
    except OptionError:
        raise bad_request("after must be the cursor of a page.") from None


async def open_browser(source: DataSource, keys: QueueKeys) -> JobBrowser:
    """Reads the jobs of a queue."""
    return JobBrowser(await source.lane(keys), keys, group=source.group)


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
