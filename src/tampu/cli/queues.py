"""`tampu queue`: list, pause, resume, drain and purge whole queues."""

from typing import Annotated

import typer

from tampu.admin.queues import Purgeable, drain, is_drained, purge_jobs, remove_queue
from tampu.cli.command import add_group, command
from tampu.cli.inspect import counts_json, queues_table, summaries
from tampu.cli.options import QueueName, SharedOptions, WorkerGroup, Yes, new_app
from tampu.cli.output import CommandFailed, confirm, usage_error
from tampu.cli.screen import JsonObject, Screen, count_of, join_words
from tampu.cli.target import QueueLane, connect_to, open_queue
from tampu.server.connect import connect
from tampu.util.clock import to_s

app = new_app()
queue_group = add_group(app, "queue", "List, pause, resume, drain or purge whole queues.")

DrainTimeout = Annotated[
    str | None,
    typer.Option(
        "--timeout",
        metavar="DURATION",
        help="How long to wait. Default: no limit.",
        show_default=False,
    ),
]
WithDelayed = Annotated[
    bool, typer.Option("--delayed", help="Wait for delayed jobs too.", show_default=False)
]
TaskName = Annotated[
    str | None,
    typer.Option("--task", metavar="NAME", help="Only jobs with this name.", show_default=False),
]
JobKey = Annotated[
    str | None,
    typer.Option("--key", metavar="KEY", help="Only jobs with this key.", show_default=False),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--for", metavar="DURATION", help="Resume the task or key after that.", show_default=False
    ),
]
States = Annotated[
    list[Purgeable] | None,
    typer.Option("--state", help="Only jobs in this state. Can be repeated.", show_default=False),
]
Everything = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Remove the queue with its schedules, results and events.",
        show_default=False,
    ),
]


@command(queue_group, "ls")
async def list_queues(shared: SharedOptions, *, group: WorkerGroup = "default") -> None:
    """List the queues on the server."""
    async with await connect(shared.url) as server:
        found = await summaries(server, group)
    data = {
        "server": server.name,
        "queues": [{"queue": each.queue, **counts_json(each.counts)} for each in found],
    }
    Screen(shared).show(data, lambda: queues_table(found))


@command(queue_group, "pause")
async def pause(
    shared: SharedOptions,
    queue: QueueName,
    *,
    task: TaskName = None,
    key: JobKey = None,
    until: Until = None,
) -> None:
    """Let workers start no more jobs of a queue until it is resumed.

    With --task or --key, only jobs of that task or key, or of both. Running jobs go on. Workers of
    ChasquiMQ do not know that a queue is paused.
    """
    async with open_queue(shared, queue) as opened:
        changed = await opened.pause(task=task, key=key, until=until)
    what = _what(queue, task, key)
    sentence = f"{what} is {'paused' if changed else 'paused already'}."
    data = {"queue": queue, "task": task, "key": key, "paused": True, "changed": changed}
    Screen(shared).show(data, lambda: sentence)


@command(queue_group, "resume")
async def resume(
    shared: SharedOptions, queue: QueueName, *, task: TaskName = None, key: JobKey = None
) -> None:
    """Let workers start jobs of a paused queue, task or key again."""
    async with open_queue(shared, queue) as opened:
        changed = await opened.resume(task=task, key=key)
    what = _what(queue, task, key)
    sentence = f"{what} {'is resumed' if changed else 'was not paused'}."
    data = {"queue": queue, "task": task, "key": key, "paused": False, "changed": changed}
    Screen(shared).show(data, lambda: sentence)


def _what(queue: str, task: str | None, key: str | None) -> str:
    parts = ["" if task is None else f"task {task}", "" if key is None else f"key {key}"]
    return " with ".join(filter(None, parts)) + f" of {queue}" if any(parts) else queue


@command(queue_group, "drain")
async def drain_queue(
    shared: SharedOptions,
    queue: QueueName,
    *,
    timeout: DrainTimeout = None,
    delayed: WithDelayed = False,
    group: WorkerGroup = "default",
) -> None:
    """Wait until a queue has no waiting and no running jobs.

    Workers must be running. Exit code 1 if the time is up.
    """
    timeout_s = None if timeout is None else to_s("timeout", timeout)
    async with connect_to(shared, queue) as connection:
        counts = await drain(
            connection.lane, connection.keys, group=group, delayed=delayed, timeout_s=timeout_s
        )
    done = is_drained(counts, delayed=delayed)
    left = f"{counts.waiting} waiting, {counts.active} active, {counts.delayed} delayed"
    if done or shared.as_json:
        data = {"queue": queue, "drained": done, **counts_json(counts)}
        Screen(shared).show(data, lambda: f"{queue} is drained: {left}.")
    if not done:
        raise CommandFailed(f"{queue} is not drained after {timeout}: {left}.")


@command(queue_group, "purge")
async def purge_queue(
    shared: SharedOptions,
    queue: QueueName,
    *,
    state: States = None,
    everything: Everything = False,
    yes: Yes = False,
) -> None:
    """Remove the waiting, delayed and dead jobs of a queue.

    Running jobs stay, except with --all.
    """
    if everything and state:
        raise usage_error("--all cannot be combined with --state.")
    async with connect_to(shared, queue) as connection:
        if everything:
            confirm(f"Remove all of queue {queue}, including running jobs?", yes=yes)
            keys = await remove_queue(connection.server, connection.keys)
            data: JsonObject = {"keys": keys}
            sentence = f"{queue} was removed ({count_of(keys, 'key')})."
        else:
            states = [each for each in Purgeable if not state or each in state]
            data, sentence = await _purge_states(connection, states, yes=yes)
    Screen(shared).show({"queue": queue, **data}, lambda: sentence)


async def _purge_states(
    connection: QueueLane, states: list[Purgeable], *, yes: bool
) -> tuple[JsonObject, str]:
    """Remove the jobs in some states; what to print about it."""
    names = join_words([each.value for each in states])
    confirm(f"Remove all {names} jobs of {connection.keys.name}?", yes=yes)
    done = await purge_jobs(connection.lane, connection.keys, states)
    data: JsonObject = {"waiting": done.waiting, "delayed": done.delayed, "dead": done.dead}
    counts = join_words([f"{data[each.value]} {each.value}" for each in states])
    return data, f"Removed {counts} jobs."
