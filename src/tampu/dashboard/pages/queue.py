"""One queue: its states, its tasks, and pausing it."""

from collections.abc import Mapping

from tampu.dashboard.access import Action
from tampu.dashboard.history import Period, drain_s, read_trend, read_unknown_counts
from tampu.dashboard.page import Answer, Operation, Page, View, link
from tampu.dashboard.pages.limits import load_limits
from tampu.dashboard.pages.overview import (
    QueueRow,
    choose_period,
    period_choices,
    queue_charts,
    task_spark,
)
from tampu.dashboard.render import format_seconds
from tampu.metrics.history import Span
from tampu.server.scripts.control import pause_queue


async def load(view: View) -> Mapping[str, object]:
    """The queue that the query names."""
    keys = await view.queue()
    trend = await read_trend(view.source, keys, await choose_period(view))
    recent = await read_trend(view.source, keys, Period.of(Span.HOUR))
    summary = await view.source.summary(keys)
    return {
        "queue": keys.name,
        "row": QueueRow(summary, trend),
        "now": summary.at,
        "trend": trend,
        "drain": drain_text(drain_s(recent, summary.counts.waiting), summary.counts.waiting),
        "charts": queue_charts(trend),
        "unknown": await read_unknown_counts(view.source, [keys.name]),
        "tasks": [(task, task_spark(task.name, task)) for task in trend.tasks],
        **period_choices(view, trend),
        "may_pause": view.may(Action.PAUSE, keys.name),
        **await load_limits(view, keys),
    }


def drain_text(left_s: float | None, waiting: int) -> str:
    """When the backlog will be empty."""
    if not waiting:
        return "nothing waits"
    return "not shrinking" if left_s is None else f"empty in about {format_seconds(left_s)}"


async def pause(view: View) -> Answer:
    """Let no worker start another job."""
    return await _set_paused(view, paused=True)


async def resume(view: View) -> Answer:
    """Let workers start jobs again."""
    return await _set_paused(view, paused=False)


async def _set_paused(view: View, *, paused: bool) -> Answer:
    keys = await view.queue()
    view.demand(Action.PAUSE, keys.name)
    changed = await pause_queue(await view.source.lane(keys), keys, paused=paused)
    await view.note("pause" if paused else "resume", keys.name, "the queue", count=int(changed))
    if paused:
        sentence = f"{keys.name} is {'paused' if changed else 'paused already'}."
    else:
        sentence = f"{keys.name} {'is resumed' if changed else 'was not paused'}."
    return Answer(sentence, link("queue", name=keys.name))


PAGES = (
    Page(
        path="queue",
        template="queue.html",
        load=load,
        under="queues",
        live=("tiles", "state", "charts", "tasks", "limits", "waiting", "held"),
    ),
)
OPERATIONS = (
    Operation(path="pause-queue", run=pause),
    Operation(path="resume-queue", run=resume),
)
