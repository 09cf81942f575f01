"""What the search box finds: queues, tasks and schedules by a part of their name, jobs by id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tampu.admin.jobs import job_info
from tampu.dashboard.filters import job_link
from tampu.dashboard.history import Period, read_trends
from tampu.dashboard.page import Page, View, link
from tampu.dashboard.pages.schedules import read_rows
from tampu.errors import OptionError
from tampu.job import JobState
from tampu.metrics.history import Span
from tampu.util.lifecycle import run_all
from tampu.wire.keys import QueueKeys
from tampu.wire.names import check_job_id

if TYPE_CHECKING:
    from tampu.job import JobInfo

_MOST: Final = 50
_MOST_QUEUES: Final = 50  # in which a job is looked for
_MOST_SEARCHED: Final = 1_000  # jobs of each state, for ids that lead to no place
Found = tuple[str, str, str]
"""What was found: its kind, its name and the link to it."""


async def load(view: View) -> Mapping[str, object]:
    """Everything whose name contains the text, and the job with that id."""
    wanted = view.text("q")[:600]
    found = await find(view, wanted) if wanted else []
    return {"wanted": wanted, "found": found[:_MOST], "more": len(found) > _MOST}


async def find(view: View, wanted: str) -> list[Found]:
    """Jobs first: nobody types an id by chance."""
    names = await view.queues()
    return [
        *await find_job(view, names[:_MOST_QUEUES], wanted),
        *await find_names(view, names, wanted.casefold()),
    ]


async def find_job(view: View, names: list[str], job_id: str) -> list[Found]:
    """The job with an id, in whichever queue it is."""
    try:
        check_job_id(job_id)
    except OptionError:
        return []

    async def look(name: str) -> JobInfo:
        keys = QueueKeys(name)
        return await job_info(await view.source.lane(keys), keys, job_id, most=_MOST_SEARCHED)

    infos = await run_all(look(name) for name in names)
    return [
        (f"Job, {info.state}, on {name}", info.id, job_link(name, info.id, info.dead_id))
        for name, info in zip(names, infos, strict=True)
        if info.state is not JobState.UNKNOWN
    ]


async def find_names(view: View, names: list[str], wanted: str) -> list[Found]:
    """Queues, tasks and schedules by a part of their name."""
    found = [
        ("Queue", name, link("queue", name=name)) for name in names if wanted in name.casefold()
    ]
    trends = await read_trends(view.source, names, Period.of(Span.DAY))
    for queue, trend in trends.by_queue.items():
        found += [
            ("Task", task.name, link("task", queue=queue, name=task.name))
            for task in trend.tasks
            if wanted in task.name.casefold()
        ]
    for rows in await run_all(read_rows(view, name) for name in names):
        found += [
            (f"Schedule of {row.queue}", row.schedule.key, row.link)
            for row in rows
            if wanted in row.schedule.key.casefold() or wanted in row.schedule.name.casefold()
        ]
    return found


PAGES = (Page(path="search", template="search.html", load=load),)
