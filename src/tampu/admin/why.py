"""Why a job is not running yet, in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tampu.admin.found import JobFinder, read_entry
from tampu.admin.limits import parse_pause
from tampu.admin.workers import WorkerState, workers_of
from tampu.job import JobState
from tampu.limits.reasons import WaitsFor, Why
from tampu.server.gates import (
    holders,
    place_in_line,
    read_gate,
    read_holds,
    read_pauses,
    read_resource,
    resource_of_line,
)
from tampu.server.inspection import groups_of, was_delivered
from tampu.server.scripts.control import is_paused
from tampu.server.streams import fields_of, server_time_ms, sizes
from tampu.util.clock import instant
from tampu.wire.flow import parse_step
from tampu.wire.lines import (
    FOREVER_MS,
    ORDERED,
    PAUSED,
    limit_of,
    parse_breaker,
    parse_definition,
    parse_line,
    pauses_of,
    unescape,
)

if TYPE_CHECKING:
    from datetime import datetime

    from tampu.admin.found import FoundJob
    from tampu.job import JobInfo
    from tampu.server.gates import ResourceState
    from tampu.server.lane import Lane
    from tampu.wire.flow import StepId
    from tampu.wire.keys import QueueKeys
    from tampu.wire.lines import BreakerDefinition

_MOST_HOLDERS: Final = 5


async def why_waiting(lane: Lane, keys: QueueKeys, job_id: str, *, group: bytes) -> Why | None:
    """Why a job that waits is not running yet; None if it does not wait."""
    found = (await JobFinder(lane, keys).find([job_id])).get(job_id)
    asking = None if found is None else _Asking(lane, keys, found, group)
    if asking is not None and asking.job.line:
        return await _why_in_line(asking)
    if asking is not None and asking.job.entry_id:
        groups = await groups_of(lane, keys.stream)
        if not was_delivered(groups, asking.job.entry_id):
            return await _why_in_stream(asking)
    return None


async def why_not_added(lane: Lane, keys: QueueKeys, step: StepId) -> Why | None:
    """Why a step of a chain does not exist yet: an earlier one does; None if there is none."""
    found = await JobFinder(lane, keys).find_of_chain(step)
    current = None if found is None else parse_step(found.id)
    if found is None or current is None or current.step >= step.step:
        return None
    sentence = f"It waits for step {current.step} of {step.steps} of its chain, job {found.id}."
    return Why(job_id=str(step), waits_for=WaitsFor.STEP, sentence=sentence, holders=[found.id])


def why_of(info: JobInfo) -> Why:
    """The answer for a job that no limit holds, from what is known about it."""
    waits_for, sentence = WaitsFor.NOTHING, _STATES.get(info.state, "It is not known.")
    until = info.due_at
    match info.state:
        case JobState.DELAYED:
            waits_for, sentence = WaitsFor.TIME, f"It is delayed until {_time(until)}."
        case JobState.RETRYING:
            waits_for = WaitsFor.RETRY
            sentence = f"Attempt {info.attempt} failed; the next one is due at {_time(until)}."
        case JobState.DEAD:
            waits_for = WaitsFor.REPLAY
            sentence = f"It is dead ({info.reason}) until somebody replays it."
        case JobState.ACTIVE:
            sentence = f"It is not waiting: worker {info.worker} has it, attempt {info.attempt}."
        case JobState.WAITING:
            waits_for, sentence = WaitsFor.SLOT, "It waits for a worker."
        case _:
            pass
    return Why(job_id=info.id, waits_for=waits_for, sentence=sentence, until=until)


_STATES: Final = {
    JobState.DONE: "It is not waiting: it is done.",
    JobState.CANCELLED: "It is not waiting: it was cancelled.",
    JobState.UNKNOWN: "There is no such job: it is done, was removed, or was never added.",
}


class _Asking(NamedTuple):
    """A job that waits, and where to ask about it."""

    lane: Lane
    keys: QueueKeys
    job: FoundJob
    group: bytes

    def answer(
        self,
        waits_for: WaitsFor,
        sentence: str,
        *,
        until_ms: int | None = None,
        held_by: tuple[str, ...] = (),
        limit: str | None = None,
        value: str | None = None,
    ) -> Why:
        until = None if until_ms is None or until_ms >= FOREVER_MS else instant(until_ms)
        return Why(
            job_id=self.job.id,
            waits_for=waits_for,
            sentence=sentence,
            until=until,
            holders=list(held_by),
            limit=limit,
            value=value,
        )


async def _why_nothing_runs(asking: _Asking) -> Why | None:
    """The answer if no job of the queue is started at all."""
    if await is_paused(asking.lane, asking.keys):
        return asking.answer(WaitsFor.RESUME, "Its queue is paused.")
    workers = await workers_of(asking.lane, asking.keys, asking.group)
    if not any(each.state is not WorkerState.GONE for each in workers):
        return asking.answer(WaitsFor.WORKER, "No worker serves its queue.")
    return None


async def _why_in_stream(asking: _Asking) -> Why:
    reason = await _why_nothing_runs(asking)
    if reason is not None:
        return reason
    found = await sizes(asking.lane, asking.keys, asking.group)
    sentence = (
        f"It is the turn of this job, or nearly: {found.stream - found.pending} jobs wait for a "
        "worker that has a slot for them."
    )
    return asking.answer(WaitsFor.SLOT, sentence)


async def _why_in_line(asking: _Asking) -> Why | None:
    lane, keys, line = asking.lane, asking.keys, asking.job.line
    reason = await _why_nothing_runs(asking)
    if reason is not None:
        return reason
    resource = await _what_holds(asking, line)
    if resource is None:
        return await _why_not_its_turn(asking)
    limit, _ = limit_of(resource)
    if limit == PAUSED:
        what = resource.partition(":")[2]
        until_ms = (await read_pauses(lane, keys)).get(what, FOREVER_MS)
        return _explain_pause(asking, what, until_ms)
    facts = await read_resource(lane, keys, resource)
    ids = await _job_ids(lane, keys, await holders(lane, keys, resource, most=_MOST_HOLDERS))
    if limit == ORDERED:
        return _in_order(asking, facts, ids)
    breaker = parse_breaker(resource)
    if breaker is not None:
        return _explain_breaker(asking, facts, ids, breaker=breaker)
    return await _explain_limit(asking, facts, ids)


async def _what_holds(asking: _Asking, line: bytes) -> str | None:
    """The resource that a job waits for; None if it waits for its turn.

    A line without room does not come up, so nobody may have noted yet that it is paused or closed.
    """
    lane, keys = asking.lane, asking.keys
    parsed = parse_line(line.decode("utf-8", "replace"))
    paused = {each.what for each in await read_holds(lane, keys)}
    for what in pauses_of(asking.job.name, parsed.key):
        if what in paused:
            return f"{PAUSED}:{what}"
    noted = await resource_of_line(lane, keys, line)
    if noted is not None:
        return noted
    now_ms = await server_time_ms(lane)
    for name in parsed.resources:
        closed_until_ms = (await read_resource(lane, keys, name)).closed_until_ms
        if closed_until_ms is not None and closed_until_ms > now_ms:
            return name
    return None


def _explain_pause(asking: _Asking, what: str, until_ms: int) -> Why:
    pause = parse_pause(what, until_ms)
    parts = [
        f"task {pause.task}" if pause.task is not None else "",
        f"key {pause.key}" if pause.key is not None else "",
    ]
    end = "" if pause.until is None else f" until {_time(pause.until)}"
    sentence = f"Its {' with '.join(filter(None, parts))} is paused{end}."
    return asking.answer(WaitsFor.RESUME, sentence, until_ms=until_ms)


def _in_order(asking: _Asking, facts: ResourceState, ids: tuple[str, ...]) -> Why:
    start = f"The jobs of key {limit_of(facts.name)[1]} run one after the other"
    if ids:
        sentence = f"{start}, and {ids[0]} runs now."
        return asking.answer(WaitsFor.ORDER, sentence, held_by=ids)
    if facts.is_closed_forever:
        return asking.answer(WaitsFor.ORDER, f"{start}, and the first one is dead: it was halted.")
    until_ms = facts.closed_until_ms
    if until_ms is None:
        return asking.answer(WaitsFor.TURN, f"{start}, and another one comes first.")
    sentence = f"{start}, and the first one waits for its next attempt until {_ms(until_ms)}."
    return asking.answer(WaitsFor.ORDER, sentence, until_ms=until_ms)


def _explain_breaker(
    asking: _Asking, facts: ResourceState, ids: tuple[str, ...], *, breaker: BreakerDefinition
) -> Why:
    start = f"Too many of the last {breaker.of} attempts of {breaker.task} failed"
    if ids:
        sentence = f"{start}: {ids[0]} is tried now, and if it succeeds the others run too."
        return asking.answer(WaitsFor.BREAKER, sentence, held_by=ids)
    until_ms = facts.closed_until_ms
    when = "soon" if until_ms is None else f"at {_ms(until_ms)}"
    sentence = f"{start}: one of its jobs is tried {when}."
    return asking.answer(WaitsFor.BREAKER, sentence, until_ms=until_ms)


async def _explain_limit(asking: _Asking, facts: ResourceState, ids: tuple[str, ...]) -> Why:
    limit, value = limit_of(facts.name)
    name = unescape(limit)
    whose = "" if value is None else f" of {value}"
    definition = parse_definition(facts.definition or "")
    most = int(facts.own) if facts.own is not None else definition.concurrency
    now_ms = await server_time_ms(asking.lane)
    if facts.closed_until_ms is not None and facts.closed_until_ms > now_ms:
        end = "somebody opens it" if facts.is_closed_forever else _ms(facts.closed_until_ms)
        sentence = f"A job has met a rate limit: {name}{whose} is closed until {end}."
        closed = facts.closed_until_ms
        return asking.answer(WaitsFor.CLOSED, sentence, until_ms=closed, limit=name, value=value)
    if most and facts.runs >= most:
        count = "1 job" if most == 1 else f"{most} jobs"
        listed = ", ".join(ids) + (", ..." if facts.runs > len(ids) else "")
        sentence = f"{name} lets {count}{whose} run at a time, and {facts.runs} run now: {listed}."
        return asking.answer(WaitsFor.LIMIT, sentence, held_by=ids, limit=name, value=value)
    rate = definition.rate_text
    if rate is not None:
        opens = facts.opens_at_ms
        when = "very soon" if opens is None else f"at {_ms(opens)}"
        sentence = f"{name} lets {rate} jobs{whose} start; the next one may start {when}."
        return asking.answer(WaitsFor.RATE, sentence, until_ms=opens, limit=name, value=value)
    return asking.answer(
        WaitsFor.TURN, f"It waits for {name}{whose}, which is free now.", limit=name, value=value
    )


async def _why_not_its_turn(asking: _Asking) -> Why | None:
    """The answer for a job whose line waits for nothing but room; None if it has left the line."""
    lane, keys, line = asking.lane, asking.keys, asking.job.line
    ahead = await place_in_line(lane, keys, line=line, member=asking.job.member)
    if ahead is None:
        return None
    before = "It is the first of its line" if not ahead else f"{ahead} jobs of its line come first"
    gate = await read_gate(lane, keys)
    if gate is not None and gate.room == 0:
        return asking.answer(WaitsFor.WORKER, f"{before}, and no worker takes jobs now.")
    total = 0 if gate is None else gate.waiting
    sentence = f"{before}; {total} jobs wait in all lines, and workers have no free slot."
    waits_for = WaitsFor.SLOT if not ahead and line == b"5" else WaitsFor.TURN
    return asking.answer(waits_for, sentence)


async def _job_ids(lane: Lane, keys: QueueKeys, entry_ids: list[bytes]) -> tuple[str, ...]:
    found = await fields_of(lane, keys.stream, entry_ids)
    jobs = [read_entry(*each) for each in zip(entry_ids, found, strict=True)]
    return tuple(job.id for job in jobs if job is not None)


def _ms(at_ms: int) -> str:
    return _time(instant(at_ms))


def _time(at: datetime | None) -> str:
    return "an unknown time" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"
