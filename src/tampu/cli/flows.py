"""`tampu flow`: list, show, cancel and retry flows."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from tampu.admin.flow_info import EdgeInfo, EdgeKind, FlowInfo, NodeInfo, RunState
from tampu.cli.command import add_group, command
from tampu.cli.options import QueueName, SharedOptions, Yes, new_app
from tampu.cli.output import CommandFailed, confirm
from tampu.cli.screen import (
    NOTHING,
    JsonObject,
    Screen,
    count_of,
    details,
    format_age,
    format_duration,
    format_instant,
    full_text,
    grid,
    join_words,
    progress_bar,
    short_text,
)
from tampu.cli.target import open_queue
from tampu.queue import Queue
from tampu.util.options import check_choice
from tampu.wire.flow import parse_member, parse_step

_STATES: Final = [state.value for state in RunState]
_COLORS: Final = {
    "running": "blue",
    "waiting": "dim",
    "halted": "yellow",
    "done": "green",
    "failed": "red",
    "cancelled": "yellow",
}
_EDGE_WORDS: Final = {
    EdgeKind.SUCCESS: "",
    EdgeKind.END: " (outcome)",
    EdgeKind.ORDER: " (order)",
}
_MOST_NAMED: Final = 5

app = new_app()
flow = add_group(app, "flow", "List, show, cancel or retry flows.")

HomeQueue = Annotated[
    str,
    typer.Argument(metavar="QUEUE", help="The queue that keeps the flow.", show_default=False),
]
FlowId = Annotated[str, typer.Argument(metavar="ID", help="Id of the flow.", show_default=False)]
State = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="STATE",
        help=f"Only flows in this state: {', '.join(_STATES)}.",
        show_default=False,
    ),
]
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="How many to list.")]


@command(flow, "ls")
async def list_flows(
    shared: SharedOptions, queue: QueueName, *, state: State = None, limit: Limit = 20
) -> None:
    """List the flows that a queue keeps, newest first."""
    if state is not None:
        check_choice("state", state, _STATES)
    async with open_queue(shared, queue) as opened:
        found = await opened.flows.newest(limit, state=state)
    data = {"queue": queue, "flows": [flow_json(each) for each in found]}
    Screen(shared).show(data, lambda: flows_table(found, datetime.now(UTC)))


@command(flow, "show")
async def show_flow(shared: SharedOptions, queue: HomeQueue, flow_id: FlowId) -> None:
    """Show a flow with its nodes and what each of them waits for."""
    async with open_queue(shared, queue) as opened:
        found = await _find(opened, flow_id)
    data = flow_json(found) | {
        "result_node": found.result_node,
        "failure": None
        if found.failure is None
        else {
            "error_type": found.failure.error_type,
            "message": found.failure.message,
            "traceback": found.failure.traceback,
        },
        "nodes": [node_json(each) for each in found.nodes],
    }
    Screen(shared).show(data, lambda: flow_page(found, datetime.now(UTC)))


@command(flow, "cancel")
async def cancel_flow(
    shared: SharedOptions, queue: HomeQueue, flow_id: FlowId, *, yes: Yes = False
) -> None:
    """Cancel a flow: nothing more of it starts, and what runs is cancelled.

    Exit code 1 if it is done or was cancelled before.
    """
    async with open_queue(shared, queue) as opened:
        found = await _find(opened, flow_id)
        left = found.jobs - found.done - found.failed
        is_late = found.state in {RunState.DONE, RunState.CANCELLED}
        confirm(
            f"Cancel flow {found.name} with {count_of(left, 'job')} not done?", yes=yes or is_late
        )
        if not await opened.flows.cancel(flow_id):
            raise CommandFailed(f"Flow {flow_id!r} cannot be cancelled: it is {found.state.value}.")
    data = {"queue": queue, "flow_id": flow_id, "cancelled": True}
    Screen(shared).show(data, lambda: f"Flow {flow_id} is cancelled.")


@command(flow, "retry")
async def retry_flow(
    shared: SharedOptions, queue: HomeQueue, flow_id: FlowId, *, yes: Yes = False
) -> None:
    """Run the dead letters of a flow again, and let it go on. What is done stays done.

    Exit code 1 if it is done or cancelled.
    """
    async with open_queue(shared, queue) as opened:
        found = await _find(opened, flow_id)
        if found.state in {RunState.DONE, RunState.CANCELLED}:
            raise CommandFailed(f"Flow {flow_id!r} cannot be retried: it is {found.state.value}.")
        letters = sum(map(len, (await opened.flows.dead_letters(flow_id)).values()))
        question = f"Run {count_of(letters, 'dead letter')} of flow {found.name} again?"
        confirm(question, yes=yes or not letters)

        async def replay(name: str, ids: Sequence[str]) -> int:
            async with Queue(name, shared.url) as other:
                return await other.dead.replay(len(ids), ids=ids)

        count = await opened.flows.retry(flow_id, replay)
        state = (await _find(opened, flow_id)).state
    data = {"queue": queue, "flow_id": flow_id, "replayed": count, "state": state}
    sentence = f"{count_of(count, 'job')} put back; the flow is {state.value}."
    Screen(shared).show(data, lambda: sentence)


async def _find(queue: Queue, flow_id: str) -> FlowInfo:
    """What is known about a flow; `CommandFailed` if it is not there."""
    found = await queue.flows.info(flow_id)
    if found is not None:
        return found
    step, member = parse_step(flow_id), parse_member(flow_id)
    if step is not None:
        why = "That is a job of a chain, which `tampu job show` shows"
    elif member is not None:
        why = f"That is a job of the flow {member.flow}"
    else:
        why = "It was never started, ended long ago, or another queue keeps it"
    raise CommandFailed(f"Queue {queue.name!r} has no flow {flow_id!r}. {why}.")


# --- what is printed ----------------------------------------------------------------------------


def flow_json(found: FlowInfo) -> JsonObject:
    """One flow, without its nodes."""
    return {
        "id": found.id,
        "name": found.name,
        "queue": found.queue,
        "state": found.state,
        "started_at": found.started_at,
        "ended_at": found.ended_at,
        "jobs": found.jobs,
        "done": found.done,
        "failed": found.failed,
        "is_growing": found.is_growing,
        "lost": found.lost,
    }


def node_json(node: NodeInfo) -> JsonObject:
    """One node of a flow."""
    return {field: getattr(node, field) for field in node.__struct_fields__}


def flows_table(found: Sequence[FlowInfo], now: datetime) -> RenderableType:
    """Flows, one a line."""
    if not found:
        return Text("There are no flows.")
    numbers = ("Done", "Failed", "Age", "Took")
    table = grid("Id", "Name", "State", "Progress", *numbers, numbers=numbers, shrink=("Name",))
    for each in found:
        table.add_row(
            each.id,
            short_text(each.name),
            _state_text(each.state.value),
            progress_bar(each.done / each.jobs if each.jobs else each.is_over),
            _done_of(each),
            str(each.failed),
            format_age(each.started_at, now),
            _took(each, now),
        )
    return table


def flow_page(found: FlowInfo, now: datetime) -> RenderableType:
    """One flow in full."""
    failure = found.failure
    page: list[RenderableType] = [
        details(
            [
                ("Flow", found.id),
                ("Name", found.name),
                ("Queue", found.queue),
                ("State", found.state.value),
                ("Jobs", f"{_done_of(found)} done, {found.failed} failed, {found.running} running"),
                ("Started at", format_instant(found.started_at)),
                ("Took", _took(found, now)),
                *([] if not found.lost else [("Lost", _lost_text(found.lost))]),
                *([("Error", f"{failure.error_type}: {failure.message}")] if failure else []),
            ]
        ),
        Text(""),
        _nodes_table(found, now),
    ]
    if failure is not None and failure.traceback:
        page += [Text(""), full_text(failure.traceback.rstrip("\n"))]
    return Group(*page)


def _nodes_table(found: FlowInfo, now: datetime) -> RenderableType:
    numbers = ("Node", "Done", "Failed", "Took")
    columns = ("Node", "Task", "Queue", "State", "Done", "Failed", "Took", "Waits for")
    table = grid(*columns, numbers=numbers, shrink=("Task", "Queue", "Waits for"))
    for node in found.nodes:
        table.add_row(
            str(node.number),
            short_text(node.name),
            short_text(node.queue),
            _state_text(node.state.value),
            _done_of(node),
            str(node.failed),
            _took(node, now),
            short_text(_waits_text(found, node)),
        )
    return table


def _waits_text(found: FlowInfo, node: NodeInfo) -> str:
    """The nodes that a node still waits for; of one that waits for none, all that it needed."""
    edges = [each for each in node.waits_for if each.node in node.missing or not node.missing]
    return ", ".join(_edge_text(found, each) for each in edges) or NOTHING


def _edge_text(found: FlowInfo, edge: EdgeInfo) -> str:
    what = f"{edge.node} {found.nodes[edge.node].name}"
    return what + _EDGE_WORDS[edge.kind]


def _state_text(state: str) -> Text:
    return Text(state, style=_COLORS[state])


def _done_of(found: FlowInfo | NodeInfo) -> str:
    """How many jobs are done, of how many; `+` if there will be more."""
    return f"{found.done}/{found.jobs}{'+' if found.is_growing else ''}"


def _took(found: FlowInfo | NodeInfo, now: datetime) -> str:
    if found.started_at is None:
        return NOTHING
    end = found.ended_at or now
    return format_duration(max(0.0, (end - found.started_at).total_seconds()))


def _lost_text(lost: Sequence[str]) -> str:
    named = join_words([*lost[:_MOST_NAMED], *(["others"] if len(lost) > _MOST_NAMED else [])])
    return f"{named}: another program took them away, so the flow waits in vain"
