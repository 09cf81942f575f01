"""The jobs of a queue by state, task and text, and what is done to all that match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tampu.admin.audit import read_audit
from tampu.admin.browsing import JobPlace, is_entry_id
from tampu.dashboard.bulk import BulkAction, abort, allowed_actions, find, prepare, start
from tampu.dashboard.filters import JobFilter, choose_queue, job_link, list_jobs
from tampu.dashboard.page import Answer, Nav, Operation, Page, View, bad_request, link
from tampu.dashboard.render import format_count
from tampu.dashboard.values import preview
from tampu.wire.audit import AUDIT

if TYPE_CHECKING:
    from tampu.admin.browsing import JobPage
    from tampu.admin.queues import QueueSummary

_AUDITED = 50


async def load(view: View) -> Mapping[str, object]:
    """A page of jobs."""
    keys, queues = await choose_queue(view)
    if keys is None:
        return {"queues": [], "chosen": None, "rows": []}
    chosen = JobFilter.of_view(view, keys.name)
    summary = await view.source.summary(keys)
    page = await list_jobs(view, chosen, keys)
    after = view.text("after")
    rows = job_rows(view, keys.name, page)
    return {
        "queues": queues,
        "chosen": chosen,
        "states": state_choices(chosen, summary),
        "rows": rows,
        "keyed": summary.gate is not None or bool(chosen.key),
        "now": summary.at,
        "note": search_note(page, chosen, summary),
        "first": chosen.link if after else "",
        "next": "" if page.next is None else link("jobs", **chosen.params, after=page.next),
        "actions": allowed_actions(view, chosen),
        "Place": JobPlace,
    }


def job_rows(view: View, queue: str, page: JobPage) -> list[Mapping[str, object]]:
    """The jobs in the table, with what is hidden hidden."""
    return [
        {
            "info": info,
            "link": job_link(queue, info.id, info.dead_id),
            "preview": preview(info.data, view.redaction),
            "key": job.row,
        }
        for job in page.jobs
        if (info := job.info) is not None
    ]


def state_choices(chosen: JobFilter, summary: QueueSummary) -> Sequence[tuple[str, str, bool]]:
    """The switch between states, with how many jobs are in each."""
    counts = {place: getattr(summary.counts, str(place)) for place in JobPlace}
    return [
        (
            f"{str(place).capitalize()} {format_count(counts[place])}",
            chosen.at(place).link,
            place is chosen.place,
        )
        for place in JobPlace
    ]


def search_note(page: JobPage, chosen: JobFilter, summary: QueueSummary) -> str:
    """How much was searched."""
    if not chosen.searches:
        return ""
    total = max(page.searched, getattr(summary.counts, str(chosen.place)))
    return f"Searched {format_count(page.searched)} of {format_count(total)} {chosen.place} jobs."


# --- actions on all that match ------------------------------------------------------------------


async def plan_bulk(view: View) -> Answer:
    """Count what the filter matches, and ask."""
    keys = await view.queue("queue")
    return await _plan(view, JobFilter.of_view(view, keys.name))


async def plan_selected(view: View) -> Answer:
    """Count which of the selected jobs are still there, and ask."""
    keys = await view.queue("queue")
    return await _plan(view, JobFilter.of_view(view, keys.name).select(view.all("row")))


async def _plan(view: View, chosen: JobFilter) -> Answer:
    try:
        action = BulkAction(view.text("action"))
    except ValueError:
        known = ", ".join(map(str, BulkAction))
        raise bad_request(f"action must be one of {known}.") from None
    bulk_id = await prepare(view, chosen, action)
    return Answer("Counted.", link("bulk", id=bulk_id), leave=True)


async def start_bulk(view: View) -> Answer:
    """Do what was confirmed."""
    bulk_id = view.text("id")
    is_first = await start(view, bulk_id)
    sentence = "Started." if is_first else "This was started before. It is done only once."
    return Answer(sentence, link("bulk", id=bulk_id), leave=True)


async def abort_bulk(view: View) -> Answer:
    """End what runs."""
    bulk_id = view.text("id")
    asked = await abort(view, bulk_id)
    sentence = "It ends after the jobs it works on." if asked else "It does not run any more."
    return Answer(sentence, link("bulk", id=bulk_id))


async def load_bulk(view: View) -> Mapping[str, object]:
    """An action that waits for its confirmation, runs, or has ended."""
    bulk = await find(view, view.text("id"))
    queue = bulk.plan.queue
    samples = [
        (sample, job_link(queue, sample.job_id, sample.dead_id)) for sample in bulk.plan.samples
    ]
    return {
        "bulk": bulk,
        "samples": samples,
        "may_act": view.may(bulk.action.needs, queue),
        "asks_workers": bulk.chosen.place is JobPlace.ACTIVE,
    }


async def load_audit(view: View) -> Mapping[str, object]:
    """What was done by hand to the queues that the visitor sees."""
    after = view.text("after")
    if after and not is_entry_id(after):
        raise bad_request("after must be the cursor of a page.")
    lane = await view.source.lane(AUDIT)
    found = await read_audit(lane, after=after, count=_AUDITED)
    return {
        "entries": [each for each in found if view.access.sees(each.entry.queue)],
        "first": link("audit") if after else "",
        "next": link("audit", after=found[-1].id) if len(found) == _AUDITED else "",
    }


PAGES = (
    Page(
        path="jobs",
        template="jobs.html",
        load=load,
        nav=Nav("Jobs", 20, "j"),
        live=("states", "tools", "rows"),
        every_s=2.0,
    ),
    Page(path="bulk", template="bulk.html", load=load_bulk, under="jobs", live=("progress",)),
    Page(path="audit", template="audit.html", load=load_audit, nav=Nav("Audit", 70, "u")),
)
OPERATIONS = (
    Operation(path="plan-bulk", run=plan_bulk),
    Operation(path="plan-selected", run=plan_selected),
    Operation(path="start-bulk", run=start_bulk),
    Operation(path="abort-bulk", run=abort_bulk),
)
