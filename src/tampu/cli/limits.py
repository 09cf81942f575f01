"""`tampu limits` and `tampu why`: what holds jobs, and changing it while workers run."""

from collections.abc import Sequence
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from tampu.admin.limits import KeyBacklog, LimitInfo, LimitUse, Pause, StoppedTask
from tampu.cli.command import add_group, command
from tampu.cli.options import QueueName, SharedOptions, new_app
from tampu.cli.output import CommandFailed, usage_error
from tampu.cli.screen import (
    NOTHING,
    JsonObject,
    Screen,
    count_of,
    format_instant,
    grid,
    short_text,
)
from tampu.cli.target import open_queue
from tampu.limits.model import Concurrency, Rate

app = new_app()
limits = add_group(app, "limits", "List or change limits, weights of keys, and what is paused.")

_MOST_USES: Final = 10
_RESET: Final = ("is reset", "was not changed")
_OPENED: Final = ("is open", "was open already")
Name = Annotated[
    str,
    typer.Argument(metavar="LIMIT", help='Name of the limit, such as stripe or "charge(tenant)".'),
]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The key.")]
Most = Annotated[
    int | None,
    typer.Option("--concurrency", metavar="N", help="Jobs that run at a time.", show_default=False),
]
RateText = Annotated[
    str | None,
    typer.Option(
        "--rate", metavar="RATE", help="Jobs that start, such as 25/s.", show_default=False
    ),
]
Burst = Annotated[
    int | None,
    typer.Option("--burst", metavar="N", help="Jobs that may start at once.", show_default=False),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="No window of time has more jobs than the rate says."),
]
Value = Annotated[
    str | None,
    typer.Option("--value", metavar="VALUE", help="Only for this value.", show_default=False),
]
Weight = Annotated[
    float | None,
    typer.Argument(metavar="[WEIGHT]", help="Its share. Default: as its jobs say."),
]
JobId = Annotated[str, typer.Argument(metavar="ID", help="Id of the job.", show_default=False)]


@command(limits, "ls")
async def list_limits(shared: SharedOptions, queue: QueueName) -> None:
    """Show the limits of a queue, what holds them, the keys that wait, and what is paused."""
    async with open_queue(shared, queue) as opened:
        found = await opened.limits.list()
        keys = await opened.limits.keys()
        pauses = await opened.limits.pauses()
        stopped = await opened.limits.stopped_tasks()
    data = {
        "queue": queue,
        "limits": found,
        "keys": keys,
        "pauses": pauses,
        "stopped_tasks": stopped,
    }
    Screen(shared).show(data, lambda: _page(found, keys, pauses=pauses, stopped=stopped))


@command(limits, "set")
async def set_limit(
    shared: SharedOptions,
    queue: QueueName,
    name: Name,
    *,
    concurrency: Most = None,
    rate: RateText = None,
    burst: Burst = None,
    strict: Strict = False,
    value: Value = None,
) -> None:
    """Change a limit for all workers at once, until the code declares something else."""
    if concurrency is None and rate is None:
        raise usage_error("Pass --concurrency, --rate, or both.")
    if rate is None and (burst is not None or strict):
        raise usage_error("--burst and --strict need a --rate.")
    wanted: list[Concurrency | Rate] = []
    if concurrency is not None:
        wanted.append(Concurrency(concurrency))
    if rate is not None:
        wanted.append(Rate(rate, burst=burst, strict=strict))
    async with open_queue(shared, queue) as opened:
        await opened.limits.set(name, *wanted, value=value)
    data = {"queue": queue, "limit": name, "value": value, "concurrency": concurrency, "rate": rate}
    Screen(shared).show(data, lambda: f"{_whose(name, value)} is changed.")


@command(limits, "reset")
async def reset_limit(
    shared: SharedOptions, queue: QueueName, name: Name, *, value: Value = None
) -> None:
    """Let a limit be as the code declares it again."""
    async with open_queue(shared, queue) as opened:
        changed = await opened.limits.reset(name, value=value)
    _show_change(shared, queue, _whose(name, value), changed=changed, words=_RESET)


@command(limits, "open")
async def open_limit(
    shared: SharedOptions, queue: QueueName, name: Name, *, value: Value = None
) -> None:
    """Open a limit that a job has closed because it met a rate limit."""
    async with open_queue(shared, queue) as opened:
        changed = await opened.limits.open(name, value=value)
    _show_change(shared, queue, _whose(name, value), changed=changed, words=_OPENED)


@command(limits, "weigh")
async def weigh_key(
    shared: SharedOptions, queue: QueueName, key: Key, *, weight: Weight = None
) -> None:
    """Give a key another share of the workers' time than other keys have."""
    async with open_queue(shared, queue) as opened:
        await opened.limits.weigh(key, weight)
    data = {"queue": queue, "key": key, "weight": weight}
    share = "the share that its jobs say" if weight is None else f"weight {weight:g}"
    Screen(shared).show(data, lambda: f"Key {key} has {share}.")


@command(app, "why")
async def why(shared: SharedOptions, queue: QueueName, job_id: JobId) -> None:
    """Say why a job is not running yet.

    Prints what it waits for, who holds that, and when it opens.
    """
    async with open_queue(shared, queue) as opened:
        reason = await opened.job(job_id).why()
    Screen(shared).show(reason, lambda: reason.sentence)


def _show_change(
    shared: SharedOptions, queue: str, what: str, *, changed: bool, words: tuple[str, str]
) -> None:
    data: JsonObject = {"queue": queue, "limit": what, "changed": changed}
    if changed:
        Screen(shared).show(data, lambda: f"{what} {words[0]}.")
        return
    Screen(shared).show_json(data)
    raise CommandFailed(f"{what} {words[1]}, or queue {queue!r} has no such limit.")


def _whose(name: str, value: str | None) -> str:
    return name if value is None else f"{name} of {value}"


def _page(
    found: Sequence[LimitInfo],
    keys: Sequence[KeyBacklog],
    *,
    pauses: Sequence[Pause],
    stopped: Sequence[StoppedTask],
) -> RenderableType:
    parts: list[RenderableType] = []
    if found:
        parts.append(_limits_table(found))
    if keys:
        parts.append(_keys_table(keys))
    parts += [Text(f"Paused: {_pause_text(each)}") for each in pauses]
    parts += [Text(f"Stopped by its breaker: {_stopped_text(each)}") for each in stopped]
    return Group(*parts) if parts else Text("This queue has no limits and no keys that wait.")


def _limits_table(found: Sequence[LimitInfo]) -> RenderableType:
    table = grid(
        "Limit", "Value", "Running", "At most", "Rate", "Waiting", "State",
        numbers=("Running", "At most", "Waiting"),
    )  # fmt: skip
    for limit in found:
        most = NOTHING if limit.concurrency is None else str(limit.concurrency)
        rate = f"{limit.rate or NOTHING}{' strict' if limit.strict else ''}"
        state = "changed by hand" if limit.changed else ""
        table.add_row(
            short_text(limit.name), "", str(limit.running), most, rate, str(limit.waiting), state
        )
        uses = [each for each in limit.uses if each.value is not None]
        for use in sorted(uses, key=lambda each: -each.waiting)[:_MOST_USES]:
            table.add_row("", short_text(use.value or ""), *_use_row(use))
        if len(uses) > _MOST_USES:
            table.add_row("", f"and {count_of(len(uses) - _MOST_USES, 'more value')}")
    return table


def _use_row(use: LimitUse) -> tuple[str, str, str, str, str]:
    state = ""
    if use.closed:
        end = use.closed_until
        state = "closed" if end is None else f"closed until {format_instant(end)}"
    own = "" if use.concurrency is None else str(use.concurrency)
    return str(use.running), own, "", str(use.waiting), state


def _keys_table(keys: Sequence[KeyBacklog]) -> RenderableType:
    table = grid("Key", "Waiting", "Weight", numbers=("Waiting", "Weight"))
    for each in keys[:_MOST_USES]:
        table.add_row(short_text(each.key), str(each.waiting), f"{each.weight:g}")
    if len(keys) > _MOST_USES:
        table.add_row(f"and {count_of(len(keys) - _MOST_USES, 'more key')}")
    return table


def _stopped_text(stopped: StoppedTask) -> str:
    when = "now" if stopped.until is None else f"at {format_instant(stopped.until)}"
    return f"task {stopped.task}; one of its jobs is tried {when}"


def _pause_text(pause: Pause) -> str:
    parts = [
        "" if pause.task is None else f"task {pause.task}",
        "" if pause.key is None else f"key {pause.key}",
    ]
    end = "" if pause.until is None else f" until {format_instant(pause.until)}"
    return " with ".join(filter(None, parts)) + end
