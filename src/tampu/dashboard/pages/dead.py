"""Dead letters: grouped by what went wrong, replayed, discarded, or edited and replayed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tampu.admin.browsing import JobPlace, is_entry_id
from tampu.admin.history import failure_groups
from tampu.dashboard.access import Action
from tampu.dashboard.bulk import allowed_actions
from tampu.dashboard.filters import JobFilter, choose_queue, error_of, job_link, open_browser
from tampu.dashboard.page import Answer, Nav, Operation, Page, View, bad_request, link, not_found
from tampu.dashboard.pages.job import read_job
from tampu.dashboard.render import format_count
from tampu.dashboard.values import from_json, is_editable, to_json
from tampu.errors import DecodeError, EncodeError
from tampu.server.streams import server_time_ms
from tampu.util.clock import instant

if TYPE_CHECKING:
    from datetime import datetime

    from tampu.admin.browsing import JobPage
    from tampu.job import JobInfo
    from tampu.metrics.history import FailureGroup
    from tampu.wire.keys import QueueKeys

_MOST_GROUPED: Final = 2_000
_FRESH_S: Final = 4.0
_MAX_PAYLOAD: Final = 900_000  # a form has at most a megabyte


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadGroup:
    """Dead letters of a task with the same error, and the latest of them."""

    chosen: JobFilter
    count: int
    first_at: datetime | None
    last: JobInfo

    @property
    def message(self) -> str:
        """What the latest of them says."""
        failure = self.last.failure
        return failure.message if failure is not None else ""

    @property
    def reason(self) -> str:
        """Why the latest of them was buried."""
        return (self.last.reason or "").replace("_", " ")


def group_letters(queue: str, letters: Iterable[JobInfo]) -> list[DeadGroup]:
    """Dead letters, newest first, by task and error; the largest group first."""
    groups: dict[tuple[str, str], DeadGroup] = {}
    for info in letters:
        key = info.name or "", error_of(info)
        group = groups.get(key)
        if group is None:
            chosen = JobFilter(queue=queue, place=JobPlace.DEAD, task=key[0], error=key[1])
            groups[key] = DeadGroup(chosen=chosen, count=1, first_at=info.ended_at, last=info)
        else:
            groups[key] = replace(group, count=group.count + 1, first_at=info.ended_at)
    return sorted(groups.values(), key=lambda each: -each.count)


async def load(view: View) -> Mapping[str, object]:
    """The dead letters of a queue, and the failures that were recorded."""
    keys, queues = await choose_queue(view)
    if keys is None:
        return {"queues": [], "queue": None, "groups": [], "failures": []}
    page, failures = await _read(view, keys)
    letters = [each.info for each in page.jobs if each.info is not None]
    total = (await view.source.summary(keys)).counts.dead
    every = JobFilter(queue=keys.name, place=JobPlace.DEAD)
    return {
        "queues": queues,
        "queue": keys.name,
        "every": every,
        "actions": allowed_actions(view, every),
        "groups": group_letters(keys.name, letters),
        "note": _note(page.searched, total),
        "total": total,
        "failures": [(each, job_link(keys.name, each.job_id)) for each in failures],
        "now": instant(await server_time_ms(await view.source.lane(keys))),
    }


async def _read(view: View, keys: QueueKeys) -> tuple[JobPage, list[FailureGroup]]:
    async def read() -> tuple[JobPage, list[FailureGroup]]:
        lane = await view.source.lane(keys)
        browser = await open_browser(view.source, keys)
        page = await browser.page(JobPlace.DEAD, want=_MOST_GROUPED, most=_MOST_GROUPED)
        return page, await failure_groups(lane, keys)

    return await view.source.cache(("dead", keys.name), _FRESH_S, read)


def _note(searched: int, total: int) -> str:
    if searched >= total:
        return ""
    return f"The newest {format_count(searched)} of {format_count(total)}"


# --- one letter ---------------------------------------------------------------------------------


async def _letter(view: View, *actions: Action) -> tuple[QueueKeys, str]:
    keys = await view.queue("queue")
    for action in actions:
        view.demand(action, keys.name)
    dead_id = view.text("dead")
    if not is_entry_id(dead_id):
        raise bad_request("dead must be the id of a dead letter.")
    return keys, dead_id


async def replay(view: View) -> Answer:
    """Put a dead letter back on the queue."""
    keys, dead_id = await _letter(view, Action.REPLAY)
    async with view.source.open_queue(keys) as queue:
        count = await queue.dead.replay(1, ids=[dead_id])
    await view.note(Action.REPLAY, keys.name, f"dead letter {dead_id}", count=count)
    return Answer(
        "The job is on the queue again." if count else "There is nothing to replay any more.",
        link("dead", queue=keys.name),
        leave=True,
    )


async def discard(view: View) -> Answer:
    """Remove a dead letter."""
    keys, dead_id = await _letter(view, Action.DISCARD)
    async with view.source.open_queue(keys) as queue:
        count = await queue.dead.purge(ids=[dead_id])
    await view.note(Action.DISCARD, keys.name, f"dead letter {dead_id}", count=count)
    return Answer(
        "The dead letter is discarded." if count else "It is no dead letter any more.",
        link("dead", queue=keys.name),
        leave=True,
    )


async def load_edit(view: View) -> Mapping[str, object]:
    """The payload of a dead letter, to change it."""
    keys, dead_id = await _letter(view, Action.EDIT, Action.REPLAY)
    info, _ = await read_job(view, keys)
    if not info.id or not is_editable(info.data):
        raise bad_request("The payload of this letter cannot be written as JSON without loss.")
    return {
        "queue": keys.name,
        "info": info,
        "dead_id": dead_id,
        "text": to_json(info.data, view.redaction),
    }


async def replay_edited(view: View) -> Answer:
    """Put a dead letter back on the queue with another payload, in one step."""
    keys, dead_id = await _letter(view, Action.EDIT, Action.REPLAY)
    text = view.params.get("data", "")
    async with view.source.open_queue(keys) as queue:
        letter = await queue.dead.get(dead_id)
        if letter is None:
            raise not_found("There is no such dead letter. It may have been replayed or discarded.")
        if not is_editable(letter.data):
            raise bad_request("The payload of this letter cannot be written as JSON without loss.")
        data = from_json(text, letter.data, view.redaction)
        try:
            done = await queue.dead.replay_with(dead_id, data, max_payload=_MAX_PAYLOAD)
        except (EncodeError, DecodeError) as error:
            raise bad_request(f"This cannot be the payload of a job: {error.problem}.") from None
    await view.note(Action.EDIT, keys.name, f"dead letter {dead_id}", count=int(done))
    sentence = "The changed job is on the queue." if done else "It was replayed before."
    return Answer(sentence, link("dead", queue=keys.name), leave=True)


PAGES = (
    Page(
        path="dead",
        template="dead.html",
        load=load,
        nav=Nav("Dead letters", 30, "d"),
        live=("groups", "failures"),
        every_s=5.0,
    ),
    Page(path="edit", template="edit.html", load=load_edit, under="dead"),
)
OPERATIONS = (
    Operation(path="replay-letter", run=replay),
    Operation(path="discard-letter", run=discard),
    Operation(path="replay-edited", run=replay_edited),
)
