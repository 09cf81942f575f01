"""What the search box finds: jobs and flows by their ids, other things by a part of their names."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from tampu.admin.history import task_names
from tampu.admin.jobs import job_info
from tampu.dashboard.filters import job_link
from tampu.dashboard.page import Page, View, link
from tampu.dashboard.pages.alerts import alert_text, alerts_of
from tampu.dashboard.pages.flows import flow_link, flows_of
from tampu.dashboard.pages.limits import read_holds_of, value_text
from tampu.dashboard.pages.schedules import read_rows
from tampu.dashboard.pages.workers import read_workers
from tampu.errors import OptionError
from tampu.job import JobInfo, JobState
from tampu.util.lifecycle import run_all
from tampu.wire.keys import QueueKeys
from tampu.wire.names import check_job_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tampu.admin.limits import QueueHolds

_MOST: Final = 50
_MOST_QUEUES: Final = 1_000  # that are looked into
_QUEUES_AT_A_TIME: Final = 20
_LONGEST_S: Final = 3.0  # then no further queues are searched for a job
_MOST_SEARCHED: Final = 1_000  # jobs of each state, for ids that lead to no place
_MOST_KEYS: Final = 10_000  # of a queue
_FRESH_S: Final = 4.0
Found = tuple[str, str, str]
"""What was found: its kind, its name and the link to it."""


@dataclass(frozen=True, slots=True)
class JobSearch:
    """The jobs and flows with an id, and where was looked for it."""

    found: Sequence[Found] = ()
    searched: int = 0  # queues
    left: int = 0  # queues that were not searched
    in_part: Sequence[str] = ()  # queues with more jobs than were looked at

    @property
    def gap(self) -> str:
        """What was not searched, in a sentence; empty if the job was found, or can be nowhere."""
        sentences = []
        if self.left and not self.found:
            queues = self.searched + self.left
            sentences.append(
                f"A job with this id was looked for in {self.searched} of {queues} queues."
            )
        if self.in_part and not self.found:
            more = len(self.in_part) - 1
            others = f" and {more} more {'queue' if more == 1 else 'queues'}" if more else ""
            sentences.append(
                f"Of {self.in_part[0]}{others}, only {_MOST_SEARCHED} jobs of each state were "
                "searched for this id."
            )
        return " ".join(sentences)


async def load(view: View) -> Mapping[str, object]:
    """Everything whose name contains the text, and the job or flow with that id."""
    wanted = view.text("q")[:600]
    jobs, others = JobSearch(), list[Found]()
    if wanted:
        names = await view.queues()
        jobs = await find_job(view, names, wanted)
        others = await find_names(view, names, wanted.casefold())
    found = [*jobs.found, *others]  # jobs first: nobody types an id by chance
    return {"wanted": wanted, "found": found[:_MOST], "more": len(found) > _MOST, "gap": jobs.gap}


# --- jobs ---------------------------------------------------------------------------------------


async def find_job(view: View, names: Sequence[str], job_id: str) -> JobSearch:
    """The job or the flow with an id, in whichever queue it is."""
    try:
        check_job_id(job_id)
    except OptionError:
        return JobSearch()

    async def look(name: str) -> JobInfo:
        keys = QueueKeys(name)
        if (flow := await flows_of(view, keys).info(job_id)) is not None:
            flows.append((f"Flow, {flow.state}, of {name}", job_id, flow_link(name, job_id)))
        return await job_info(await view.source.lane(keys), keys, job_id, most=_MOST_SEARCHED)

    loop = asyncio.get_running_loop()
    until, infos, flows = loop.time() + _LONGEST_S, dict[str, JobInfo](), list[Found]()
    for start in range(0, min(len(names), _MOST_QUEUES), _QUEUES_AT_A_TIME):
        part = names[start : start + _QUEUES_AT_A_TIME]
        infos.update(zip(part, await run_all(look(name) for name in part), strict=True))
        if loop.time() >= until:
            break
    return JobSearch(
        [
            *flows,
            *(
                (f"Job, {info.state}, on {name}", info.id, job_link(name, info.id, info.dead_id))
                for name, info in infos.items()
                if info.state is not JobState.UNKNOWN
            ),
        ],
        len(infos),
        len(names) - len(infos),
        [name for name, info in infos.items() if not info.searched_all],
    )


# --- names --------------------------------------------------------------------------------------


async def find_names(view: View, names: Sequence[str], wanted: str) -> list[Found]:
    """Everything else, by a part of its name; `wanted` is in lower case."""
    found = [
        ("Queue", name, link("queue", name=name)) for name in names if wanted in name.casefold()
    ]
    names = names[:_MOST_QUEUES]
    for name, tasks in zip(names, await run_all(_tasks(view, each) for each in names), strict=True):
        found += [
            (f"Task of {name}", task, link("task", queue=name, name=task))
            for task in tasks
            if wanted in task.casefold()
        ]
    for rows in await run_all(read_rows(view, name) for name in names):
        found += [
            (f"Schedule of {row.queue}", row.schedule.key, row.link)
            for row in rows
            if wanted in row.schedule.key.casefold() or wanted in row.schedule.name.casefold()
        ]
    found += await _find_limits(view, names, wanted)
    for row in await read_workers(view, names):
        if wanted in row.id.casefold() or wanted in row.host.casefold():
            href = f"workers#{quote(f'worker-{row.id}')}"
            found.append((f"Worker, {row.state}, on {row.host or 'an unknown host'}", row.id, href))
    for alert in await alerts_of(view, names):
        text = alert_text(alert)
        if wanted in text.casefold() or wanted in alert.key.casefold():
            found.append((f"Alert of {alert.queue}, {alert.phase}", text, "alerts"))
    return found


async def _tasks(view: View, name: str) -> list[str]:
    keys = QueueKeys(name)

    async def read() -> list[str]:
        return await task_names(await view.source.lane(keys), keys)

    return await view.source.cache(("task names", name), _FRESH_S, read)


async def _find_limits(view: View, names: Sequence[str], wanted: str) -> list[Found]:
    """Limits, their values, and keys, of those queues that have any."""
    summaries = await view.source.summaries(names)
    gated = [each.queue for each in summaries if each.gate is not None]
    states = await run_all(
        read_holds_of(view, QueueKeys(name), most_keys=_MOST_KEYS) for name in gated
    )
    found: list[Found] = []
    for name, state in zip(gated, states, strict=True):
        for kind, text, href in _limit_names(view, name, state):
            if wanted in text.casefold():
                found.append((f"{kind} {name}", text, href))
    return found


def _limit_names(view: View, queue: str, state: QueueHolds) -> Iterator[Found]:
    limits = f"{link('queue', name=queue)}#limits"
    for info in state.limits:
        yield "Limit of", info.name, limits
        for use in info.uses:
            text = "" if use.value is None else value_text(info.name, use.value, view.redaction)
            if text and text == use.value:
                yield f"Value of limit {info.name} of", text, limits
    held = f"{link('queue', name=queue)}#held"
    for each in state.keys:
        yield "Key of", each.key, link("jobs", queue=queue, state="waiting", key=each.key)
    for pause in state.pauses:
        if pause.key is not None:
            yield "Paused key of", pause.key, held
    for key in state.halted:
        yield "Stopped key of", key, held


PAGES = (Page(path="search", template="search.html", load=load),)
