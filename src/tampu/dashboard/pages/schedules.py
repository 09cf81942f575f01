"""The schedules of all queues: when they fire, what happened to it, pausing and triggering them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final, NoReturn
from urllib.parse import parse_qsl, urlencode

from tampu.admin.browsing import JobPlace
from tampu.admin.control import OpenQueue
from tampu.dashboard.access import Action
from tampu.dashboard.filters import job_link, open_browser
from tampu.dashboard.fires import read_history
from tampu.dashboard.page import Answer, Nav, Operation, Page, View, bad_request, link, not_found
from tampu.dashboard.render import format_count
from tampu.dashboard.values import tree
from tampu.errors import OptionError, WrongContext
from tampu.schedules.admin import Schedules
from tampu.server.scripts.schedules import spec_fields
from tampu.server.streams import server_time_ms
from tampu.timing import Cron
from tampu.timing.zones import parse_zone
from tampu.util.clock import instant, instant_if_any
from tampu.util.lifecycle import run_all
from tampu.wire.keys import QueueKeys
from tampu.wire.schedule import LAST

if TYPE_CHECKING:
    from datetime import tzinfo

    from tampu.admin.browsing import ListedJob
    from tampu.producer.request import Request
    from tampu.schedules.model import Schedule

_MOST: Final = 500
_PREVIEWED: Final = 10
_MOST_PREVIEWED: Final = 100
_MOST_SEARCHED: Final = 2_000
_JOBS: Final = 10
_FRESH_S: Final = 0.9
_SEARCHED_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A schedule of a queue, and when it last fired."""

    queue: str
    schedule: Schedule
    last_at: datetime | None

    @property
    def link(self) -> str:
        """The link to its page."""
        return link("schedule", queue=self.queue, key=self.schedule.key)

    @property
    def rule(self) -> str:
        """When it fires, in words."""
        rule = self.schedule.rule
        return "" if rule is None else rule.explain()

    @property
    def short_rule(self) -> str:
        """The same without where an interval begins."""
        return self.rule.partition(", counted from ")[0]

    @property
    def expression(self) -> str:
        """The cron expression, if it has one."""
        rule = self.schedule.rule
        return f"{rule.text} {rule.tz}" if isinstance(rule, Cron) else ""

    @property
    def fields(self) -> dict[str, str]:
        """What its forms send."""
        return {"queue": self.queue, "key": self.schedule.key}

    @property
    def value(self) -> str:
        """What its box sends."""
        return urlencode(self.fields, errors="surrogatepass")


async def read_rows(view: View, queue: str) -> list[ScheduleRow]:
    """The schedules of a queue, the next to fire first."""
    keys = QueueKeys(queue)

    async def read() -> list[ScheduleRow]:
        lane = await view.source.lane(keys)
        found = await _schedules(view, keys).list(_MOST)
        last = await spec_fields(lane, keys, [each.raw_key for each in found], fields=[LAST])
        return [
            ScheduleRow(queue, each, _entry_time(fields[0] if fields else None))
            for each, fields in zip(found, last, strict=True)
        ]

    return await view.source.cache(("schedules", queue), _FRESH_S, read)


def _entry_time(raw: bytes | None) -> datetime | None:
    """When an entry was written, by its id."""
    head = (raw or b"").partition(b"-")[0]
    return instant_if_any(int(head)) if head.isdigit() else None


def _schedules(view: View, keys: QueueKeys) -> Schedules:
    """The schedules of a queue, to read them over the shared lane."""

    async def connect() -> OpenQueue:
        return OpenQueue(await view.source.lane(keys), None)

    async def add_jobs(_: list[Request]) -> NoReturn:
        raise WrongContext("add jobs here", "these schedules are for reading")

    return Schedules(keys, connect, max_payload=0, add_jobs=add_jobs)


async def load(view: View) -> Mapping[str, object]:
    """All schedules that the visitor may see."""
    names = await view.queues()
    if view.params.get("queue"):
        names = [(await view.queue("queue")).name]
    found = await run_all(read_rows(view, name) for name in names)
    rows = [row for part in found for row in part]
    rows.sort(key=lambda row: (row.schedule.paused, row.schedule.next_at is None, _next(row)))
    shown = [(row, view.may(Action.SCHEDULE, row.queue)) for row in rows[:_MOST]]
    return {
        "rows": shown,
        "may_any": any(may for _, may in shown),
        "more": len(rows) > _MOST,
        "now": instant(await server_time_ms(await view.source.lane(b"tampu"))),
    }


def _next(row: ScheduleRow) -> float:
    at = row.schedule.next_at
    return 0.0 if at is None else at.timestamp()


async def find(view: View) -> tuple[QueueKeys, ScheduleRow]:
    """The schedule that a query or form names; 404 if there is none."""
    keys = await view.queue("queue")
    wanted = view.params.get("key", "")
    for row in await read_rows(view, keys.name):
        if row.schedule.key == wanted:
            return keys, row
    raise not_found("There is no such schedule.")


async def load_one(view: View) -> Mapping[str, object]:
    """One schedule."""
    keys, row = await find(view)
    zone = _zone(view)
    count = view.number("count", _PREVIEWED, least=1, most=_MOST_PREVIEWED)
    schedule, fires = row.schedule, list[datetime]()
    if schedule.problem is None:
        fires = await _schedules(view, keys).preview(schedule.raw_key, count)
    return {
        "row": row,
        "schedule": schedule,
        "settings": schedule.settings,
        "payload": tree(view.redaction.apply(schedule.data)),
        "fires": [(each, _local(each, zone)) for each in fires],
        "zone": view.text("tz")[:60],
        "history": await read_history(view.source, keys, schedule.key),
        "jobs": await _jobs_of(view, keys, schedule.key),
        "now": instant(await server_time_ms(await view.source.lane(keys))),
        "may": view.may(Action.SCHEDULE, keys.name),
        "job_link": job_link,
    }


def _zone(view: View) -> tzinfo | None:
    given = view.text("tz")
    try:
        return parse_zone("tz", given[:60]) if given else None
    except OptionError:
        raise bad_request("tz must be the name of a time zone, such as Europe/Berlin.") from None


def _local(at: datetime, zone: tzinfo | None) -> str:
    return "" if zone is None else at.astimezone(zone).strftime("%a %Y-%m-%d %H:%M:%S %Z")


async def _jobs_of(view: View, keys: QueueKeys, schedule_key: str) -> Sequence[ListedJob]:
    """Jobs of a schedule that are still somewhere, the newest first."""

    async def read() -> Sequence[ListedJob]:
        browser = await open_browser(view.source, keys)
        pages = [
            await browser.page(
                place,
                want=_JOBS,
                most=_MOST_SEARCHED,
                matches=lambda info: info.schedule_key == schedule_key,
            )
            for place in (JobPlace.ACTIVE, JobPlace.WAITING, JobPlace.DELAYED, JobPlace.DEAD)
        ]
        found = [job for page in pages for job in page.jobs]
        return sorted(found, key=_scheduled_at, reverse=True)[:_JOBS]

    return await view.source.cache(("jobs of", keys.name, schedule_key), _SEARCHED_S, read)


def _scheduled_at(job: ListedJob) -> float:
    at = None if job.info is None else job.info.scheduled_at
    return 0.0 if at is None else at.timestamp()


# --- what can be done ---------------------------------------------------------------------------


async def change_selected(view: View) -> Answer:
    """Pause or resume the schedules of the selected rows; none if the visitor may not for one."""
    word, rows = view.text("action"), view.all("row")
    if word not in {"pause", "resume"}:
        raise bad_request("action must be one of pause, resume.")
    if not rows:
        raise bad_request("No schedule is selected. Tick the boxes of some rows first.")
    if len(rows) > _MOST:
        raise bad_request(f"At most {_MOST} schedules can be selected.")
    by_queue: dict[str, set[str]] = {}
    for row in rows:
        one = replace(view, pairs=tuple(parse_qsl(row, errors="surrogatepass")))
        keys = await one.queue("queue")
        view.demand(Action.SCHEDULE, keys.name)
        by_queue.setdefault(keys.name, set()).add(one.params.get("key", ""))
    changed = sum([await _change_many(view, name, by_queue[name]) for name in by_queue])
    done = "paused" if word == "pause" else "resumed"
    noun = "schedule is" if changed == 1 else "schedules are"
    return Answer(f"{format_count(changed)} {noun} {done}.", link("schedules"))


async def _change_many(view: View, name: str, wanted: set[str]) -> int:
    """Pause or resume schedules of a queue; returns how many were not so before."""
    found = [row for row in await read_rows(view, name) if row.schedule.key in wanted]
    changed, word = 0, view.text("action")
    async with view.source.open_queue(QueueKeys(name)) as queue:
        act = queue.schedules.pause if word == "pause" else queue.schedules.resume
        for row in found:
            changed += await act(row.schedule.raw_key)
    named = ", ".join(row.schedule.key for row in found)
    await view.note(f"{word} schedules", name, named, count=changed)
    return changed


async def _change(view: View, word: str) -> Answer:
    keys, row = await find(view)
    view.demand(Action.SCHEDULE, keys.name)
    schedule = row.schedule
    async with view.source.open_queue(keys) as queue:
        if word == "trigger":
            if schedule.problem is not None:
                raise bad_request("This schedule cannot be read, so it cannot be triggered.")
            job = await queue.schedules.trigger(schedule.raw_key)
            changed, sentence = True, f"Job {job.id} of {schedule.key} was added."
        elif word == "pause":
            changed = await queue.schedules.pause(schedule.raw_key)
            sentence = f"{schedule.key} is {'paused' if changed else 'paused already'}."
        else:
            changed = await queue.schedules.resume(schedule.raw_key)
            sentence = f"{schedule.key} {'is resumed' if changed else 'was not paused'}."
    await view.note(f"{word} schedule", keys.name, schedule.key, count=int(changed))
    return Answer(sentence, row.link)


async def pause(view: View) -> Answer:
    """Stop a schedule from firing."""
    return await _change(view, "pause")


async def resume(view: View) -> Answer:
    """Let a schedule fire again."""
    return await _change(view, "resume")


async def trigger(view: View) -> Answer:
    """Add one job of a schedule now."""
    return await _change(view, "trigger")


PAGES = (
    Page(
        path="schedules",
        template="schedules.html",
        load=load,
        nav=Nav("Schedules", 40, "s"),
        live=("rows",),
        every_s=2.0,
    ),
    Page(
        path="schedule",
        template="schedule.html",
        load=load_one,
        under="schedules",
        live=("state", "facts", "fires", "past", "jobs"),
        every_s=2.0,
    ),
)
OPERATIONS = (
    Operation(path="pause-schedule", run=pause),
    Operation(path="resume-schedule", run=resume),
    Operation(path="trigger-schedule", run=trigger),
    Operation(path="change-schedules", run=change_selected),
)
