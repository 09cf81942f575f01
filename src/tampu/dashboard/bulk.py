"""Actions on all jobs that a filter matches: counted first, run in the background, once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tampu.admin.audit import BulkRecord, is_bulk_id, new_bulk_id
from tampu.admin.browsing import MOST_SEARCHED, JobPage, JobPlace, step_back
from tampu.admin.lines import is_line_cursor
from tampu.dashboard.access import Action
from tampu.dashboard.filters import JobFilter, open_browser
from tampu.dashboard.page import bad_request, not_found
from tampu.errors import TampuError
from tampu.job import CancelState
from tampu.server.streams import server_time_ms
from tampu.util.options import Word
from tampu.wire.audit import (
    ABORTED,
    DONE,
    FAILED,
    PREPARED,
    RUNNING,
    AuditEntry,
    BulkPlan,
    BulkSample,
    bulk_key,
)
from tampu.wire.keys import QueueKeys

if TYPE_CHECKING:
    from tampu.admin.browsing import JobBrowser, ListedJob
    from tampu.dashboard.page import View
    from tampu.job import JobInfo
    from tampu.queue import Queue
    from tampu.wire.audit import BulkProgress

logger = logging.getLogger(__name__)

_SAMPLES: Final = 5
_JOBS_A_STEP: Final = 200
_SILENT_MS: Final = 30_000


class BulkAction(Word):
    """What can be done to many jobs."""

    CANCEL = "cancel"
    RUN_NOW = "run-now"
    REPLAY = "replay"
    DISCARD = "discard"

    @property
    def needs(self) -> Action:
        """What a visitor must be allowed to do."""
        return _NEEDS[self]

    @property
    def label(self) -> str:
        """What its buttons say."""
        return _LABELS[self]

    def label_for(self, which: str) -> str:
        """What it does to which jobs: run all now."""
        verb, _, rest = self.label.partition(" ")
        return " ".join(filter(None, (verb, which, rest)))

    @property
    def tone(self) -> str:
        """How its buttons look: what takes jobs away is a danger."""
        return "danger" if self in {BulkAction.CANCEL, BulkAction.DISCARD} else ""


_NEEDS: Final = {
    BulkAction.CANCEL: Action.CANCEL,
    BulkAction.RUN_NOW: Action.RESCHEDULE,
    BulkAction.REPLAY: Action.REPLAY,
    BulkAction.DISCARD: Action.DISCARD,
}
_LABELS: Final = {
    BulkAction.CANCEL: "Cancel",
    BulkAction.RUN_NOW: "Run now",
    BulkAction.REPLAY: "Replay",
    BulkAction.DISCARD: "Discard",
}
BULK_ACTIONS: Final = {
    JobPlace.WAITING: (BulkAction.CANCEL,),
    JobPlace.ACTIVE: (BulkAction.CANCEL,),
    JobPlace.DELAYED: (BulkAction.RUN_NOW, BulkAction.CANCEL),
    JobPlace.DEAD: (BulkAction.REPLAY, BulkAction.DISCARD),
}


def allowed_actions(view: View, chosen: JobFilter) -> list[BulkAction]:
    """What the visitor may do to the jobs of a filter."""
    return [each for each in BULK_ACTIONS[chosen.place] if view.may(each.needs, chosen.queue)]


@dataclass(frozen=True, slots=True)
class BulkView:
    """A planned, running or past action, as its page shows it."""

    id: str
    progress: BulkProgress
    chosen: JobFilter
    action: BulkAction
    is_silent: bool  # it runs, but nothing was heard of it for long

    @property
    def plan(self) -> BulkPlan:
        """What was to be done."""
        return self.progress.plan

    @property
    def gone(self) -> int:
        """How many of the selected rows were not there any more when they were counted."""
        return max(0, len(self.chosen.rows) - self.plan.matched)

    @property
    def is_prepared(self) -> bool:
        """Whether it waits for somebody to confirm it."""
        return self.progress.state == PREPARED

    @property
    def is_running(self) -> bool:
        """Whether it runs now."""
        return self.progress.state == RUNNING and not self.is_silent


async def prepare(view: View, chosen: JobFilter, action: BulkAction) -> str:
    """Count what a filter matches now, keep that as a plan, and return its id."""
    view.demand(action.needs, chosen.queue)
    if action not in BULK_ACTIONS[chosen.place]:
        raise bad_request(f"{chosen.place} jobs cannot be treated so: {action}.")
    keys = QueueKeys(chosen.queue)
    lane = await view.source.lane(keys)
    upto_ms = await server_time_ms(lane)
    total = getattr((await view.source.summary(keys)).counts, str(chosen.place))
    browser = await open_browser(view.source, keys, key=chosen.key)
    page = await _count(browser, chosen, chosen.matcher(view.redaction))
    plan = BulkPlan(
        queue=chosen.queue,
        action=str(action),
        filter=chosen.record,
        upto_ms=upto_ms,
        matched=len(page.jobs) if chosen.searches else total,
        searched_all=page.next is None or not chosen.searches,
        total=max(total, page.searched),
        samples=[_sample(job.info) for job in page.jobs[:_SAMPLES] if job.info is not None],
        by=view.access.user,
    )
    bulk_id = new_bulk_id()
    await (await _record(view, bulk_id)).prepare(plan)
    return bulk_id


async def _count(
    browser: JobBrowser, chosen: JobFilter, matches: Callable[[JobInfo], bool]
) -> JobPage:
    """The jobs that a filter matches now."""
    if chosen.rows:
        return await _pick(browser, chosen, matches)
    # Without a filter the server knows how many there are, and some samples are enough.
    want = MOST_SEARCHED if chosen.searches else _SAMPLES
    return await browser.page(chosen.place, want=want, matches=matches)


async def _pick(
    browser: JobBrowser, chosen: JobFilter, matches: Callable[[JobInfo], bool]
) -> JobPage:
    """The jobs in the rows of a filter that still match."""
    found = await browser.pick(chosen.place, chosen.rows)
    jobs = [job for job in found if job.info is not None and matches(job.info)]
    return JobPage(jobs, None, len(chosen.rows))


def _sample(info: JobInfo) -> BulkSample:
    return BulkSample(info.id, info.name or "", info.dead_id or "")


async def find(view: View, bulk_id: str) -> BulkView:
    """An action by its id; 404 if there is none or its queue is hidden."""
    progress = await (await _record(view, bulk_id)).read() if is_bulk_id(bulk_id) else None
    if progress is None or not view.access.sees(progress.plan.queue):
        raise not_found(
            "There is no such action. A plan expires if nobody confirms it within an hour."
        )
    plan = progress.plan
    now = await server_time_ms(await view.source.lane(bulk_key(bulk_id)))
    silent = progress.state == RUNNING and now - progress.seen_ms > _SILENT_MS
    try:
        place = JobPlace(plan.filter.get("state", ""))
        action = BulkAction(plan.action)
    except ValueError:
        raise not_found("This version of the dashboard does not know such an action.") from None
    chosen = JobFilter.of_record(plan.queue, place, plan.filter)
    return BulkView(bulk_id, progress, chosen, action, silent)


async def start(view: View, bulk_id: str) -> bool:
    """Run a plan in the background; False if it was started before."""
    bulk = await find(view, bulk_id)
    view.demand(bulk.action.needs, bulk.plan.queue)
    record = await _record(view, bulk_id)
    if not bulk.is_prepared or not await record.start():
        return False
    await _note(view, bulk, outcome="started", count=bulk.plan.matched)
    run = BulkRun(view, bulk, record)
    view.source.start(run.run(), name="tampu-dashboard-bulk")
    return True


async def abort(view: View, bulk_id: str) -> bool:
    """Ask a running action to end; False if it does not run."""
    bulk = await find(view, bulk_id)
    view.demand(bulk.action.needs, bulk.plan.queue)
    if bulk.progress.state != RUNNING:
        return False
    await (await _record(view, bulk_id)).abort(view.access.user)
    return True


async def _record(view: View, bulk_id: str) -> BulkRecord:
    return BulkRecord(await view.source.lane(bulk_key(bulk_id)), bulk_id)


async def _note(view: View, bulk: BulkView, *, outcome: str, count: int) -> None:
    entry = AuditEntry(
        user=view.access.user,
        action=str(bulk.action),
        queue=bulk.plan.queue,
        what=bulk.chosen.name_rows(),
        outcome=outcome,
        count=count,
    )
    await view.source.note(entry)


class BulkRun:
    """Carries out a plan: never on jobs that came after it, nor on more than were counted."""

    def __init__(self, view: View, bulk: BulkView, record: BulkRecord) -> None:
        self._view = view
        self._bulk = bulk
        self._record = record
        self._changed = 0
        self._left = bulk.plan.matched if bulk.plan.searched_all else None

    async def run(self) -> None:
        """Do it, and write down what happened to it."""
        try:
            state, problem = await self._work(), ""
        except asyncio.CancelledError:
            async with asyncio.timeout(2):
                await self._end(ABORTED, "The dashboard that ran it was stopped.")
            raise
        except TampuError as error:
            state, problem = FAILED, str(error)
            logger.warning("a bulk action ended early: %s", error, exc_info=True)
        await self._end(state, problem)

    async def _end(self, state: str, problem: str) -> None:
        try:
            await self._record.finish(state, self._changed, problem=problem)
            await _note(self._view, self._bulk, outcome=state, count=self._changed)
        except TampuError as error:
            logger.warning("the end of a bulk action was not recorded: %s", error)

    async def _work(self) -> str:
        chosen, source = self._bulk.chosen, self._view.source
        keys = QueueKeys(chosen.queue)
        browser = await open_browser(source, keys, key=chosen.key)
        matches, cursor = self._matcher(), ""
        async with source.open_queue(keys) as queue:
            if chosen.rows:
                return await self._work_on_rows(queue, browser)
            while self._left is None or self._left > 0:
                want = _JOBS_A_STEP if self._left is None else min(_JOBS_A_STEP, self._left)
                page = await browser.page(chosen.place, after=cursor, want=want, matches=matches)
                gone = await self._apply(queue, page.jobs)
                if self._left is not None:
                    self._left -= len(page.jobs)
                if not await self._report(gone):
                    return ABORTED
                if page.next is None:
                    break
                cursor = _go_on(chosen.place, page.next, gone)
        return DONE

    async def _work_on_rows(self, queue: Queue, browser: JobBrowser) -> str:
        chosen, matches = self._bulk.chosen, self._matcher()
        for start in range(0, len(chosen.rows), _JOBS_A_STEP):
            step = replace(chosen, rows=chosen.rows[start : start + _JOBS_A_STEP])
            jobs = (await _pick(browser, step, matches)).jobs[: self._left]
            if self._left is not None:
                self._left -= len(jobs)
            if not await self._report(await self._apply(queue, jobs)):
                return ABORTED
        return DONE

    async def _report(self, done: Sequence[ListedJob]) -> bool:
        """Say how far it is; False if somebody wants it to end."""
        self._changed += len(done)
        return await self._record.report(self._changed)

    def _matcher(self) -> Callable[[JobInfo], bool]:
        """The filter, for jobs that were there when they were counted."""
        chosen, upto_ms = self._bulk.chosen, self._bulk.plan.upto_ms
        is_meant = chosen.matcher(self._view.redaction)

        def matches(info: JobInfo) -> bool:
            return came_at_ms(info) <= upto_ms and is_meant(info)

        return matches

    async def _apply(self, queue: Queue, jobs: Sequence[ListedJob]) -> list[ListedJob]:
        """Do it to some jobs; returns as many as it was done to, of delayed ones exactly those."""
        match self._bulk.action:
            case BulkAction.CANCEL:
                found = [job for job in jobs if job.found is not None]
                states = await queue.actions.cancel_found([job.found for job in found if job.found])
                done = [state is not CancelState.TOO_LATE for state in states]
                return [job for job, is_done in zip(found, done, strict=True) if is_done]
            case BulkAction.RUN_NOW:
                return [
                    job for job in jobs if job.found and await queue.actions.run_found(job.found)
                ]
            case BulkAction.REPLAY:
                ids = [job.cursor for job in jobs]
                return list(jobs[: await queue.dead.replay(len(ids), ids=ids)]) if ids else []
            case BulkAction.DISCARD:
                ids = [job.cursor for job in jobs]
                return list(jobs[: await queue.dead.purge(ids=ids)]) if ids else []


def _go_on(place: JobPlace, cursor: str, gone: Sequence[ListedJob]) -> str:
    """Where to go on: delayed jobs, or jobs in lines, that were removed count no longer."""
    if place is not JobPlace.DELAYED and not is_line_cursor(cursor):
        return cursor
    due = cursor.partition(":")[0]
    return step_back(cursor, sum(job.cursor.partition(":")[0] == due for job in gone))


def came_at_ms(info: JobInfo) -> int:
    """When a job came to where it is, as far as it is known."""
    if info.dead_id is not None or info.entry_id is not None:
        return int((info.dead_id or info.entry_id or "0").partition("-")[0])
    times = [at for at in (info.created_at, *info.failed_at) if at is not None]
    return max((round(at.timestamp() * 1000) for at in times), default=0)
