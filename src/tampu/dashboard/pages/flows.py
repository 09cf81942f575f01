"""The flows of all queues, and one of them: its graph, when its nodes ran, what can be done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from tampu.admin.control import OpenQueue
from tampu.admin.flow_info import EdgeKind, FlowInfo, NodeInfo, NodeState, RunState
from tampu.admin.flows import Flows
from tampu.dashboard.access import Action
from tampu.dashboard.filters import job_link
from tampu.dashboard.flow_drawing import (
    TONES,
    URGENCY,
    draw_graph,
    draw_timeline,
    meter,
    picture_of,
)
from tampu.dashboard.page import Answer, Nav, Operation, Page, View, bad_request, link, not_found
from tampu.dashboard.render import age_s
from tampu.server.streams import server_time_ms
from tampu.util.clock import instant
from tampu.util.lifecycle import run_all
from tampu.wire.keys import QueueKeys

if TYPE_CHECKING:
    from markupsafe import Markup

_PAGE: Final = 50
_MOST: Final = 10_000
_MOST_ROWS: Final = 200
_MOST_NAMED: Final = 20
_FRESH_S: Final = 0.9
_HIDDEN: Final = "hidden"
STATE_TONES: Final = {
    RunState.RUNNING: "blue",
    RunState.HALTED: "amber",
    RunState.DONE: "green",
    RunState.FAILED: "red",
    RunState.CANCELLED: "amber",
}
_STATES: Final = ("", *(str(state) for state in RunState))
_EDGES: Final = {
    EdgeKind.SUCCESS: "",
    EdgeKind.END: "its outcome",
    EdgeKind.ORDER: "order only",
}


@dataclass(frozen=True, slots=True)
class FlowRow:
    """A flow in the list."""

    info: FlowInfo
    now: datetime

    @property
    def link(self) -> str:
        """The link to its page."""
        return flow_link(self.info.queue, self.info.id)

    @property
    def tone(self) -> str:
        """The colour of its state."""
        return STATE_TONES[self.info.state]

    @property
    def meter(self) -> Markup:
        """How far it is."""
        return meter(self.info.done, self.info.failed, self.info.jobs)

    @property
    def took_s(self) -> float | None:
        """How long it took, or takes so far."""
        return age_s(self.info.started_at, self.info.ended_at or self.now)


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node in the table of a flow."""

    node: NodeInfo
    href: str
    job: str  # the link to its job
    waits: Sequence[tuple[str, str, bool]]  # a node, what of it is needed, whether that is missing
    now: datetime

    @property
    def tone(self) -> str:
        """The colour of its state."""
        return "plain" if self.node.state is NodeState.WAITING else TONES[self.node.state]

    @property
    def meter(self) -> Markup:
        """How far it is."""
        return meter(self.node.done, self.node.failed, self.node.jobs)

    @property
    def took_s(self) -> float | None:
        """How long it took, or takes so far; None if it has not begun."""
        return age_s(self.node.started_at, self.node.ended_at or self.now)


def flow_link(queue: str, flow_id: str) -> str:
    """The link to the page of a flow."""
    return link("flow", queue=queue, id=flow_id)


# --- many ---------------------------------------------------------------------------------------


async def load(view: View) -> Mapping[str, object]:
    """The newest flows of the queues that the visitor may see, or of one of them."""
    state = view.text("state")
    if state not in _STATES:
        raise bad_request(f"state must be one of {', '.join(_STATES[1:])}.")
    names = await view.queues()
    chosen = (await view.queue("queue")).name if view.params.get("queue") else ""
    after = view.number("after", 0, most=_MOST) if chosen else 0
    found = await run_all(
        _read_many(view, name, state=state, after=after) for name in ([chosen] if chosen else names)
    )
    infos = sorted((info for part in found for info in part), key=_started, reverse=True)
    now = instant(await server_time_ms(await view.source.lane(b"tampu")))
    return {
        "rows": [FlowRow(info, now) for info in infos[:_PAGE]],
        "queues": sorted({*names, chosen} - {""}),
        "chosen": chosen,
        "state": state,
        "states": [
            (each.capitalize() or "All", link("flows", queue=chosen, state=each), each == state)
            for each in _STATES
        ],
        "now": now,
        "first": link("flows", queue=chosen, state=state) if after else "",
        "next": link("flows", queue=chosen, state=state, after=after + _PAGE)
        if chosen and len(infos) > _PAGE
        else "",
        "note": "There are more. Look at one queue at a time."
        if not chosen and len(infos) > _PAGE
        else "",
    }


def _started(info: FlowInfo) -> datetime:
    return info.started_at


async def _read_many(view: View, name: str, *, state: str, after: int) -> Sequence[FlowInfo]:
    async def read() -> Sequence[FlowInfo]:
        flows = flows_of(view, QueueKeys(name))
        return await flows.newest(_PAGE + 1, after=after, state=state or None)

    return await view.source.cache_by_cost(("flows", name, state, after), _FRESH_S, read)


def flows_of(view: View, keys: QueueKeys) -> Flows:
    """The flows of a queue, to read them over the shared lane."""

    async def connect() -> OpenQueue:
        return OpenQueue(await view.source.lane(keys), None)

    return Flows(keys, connect)


# --- one ----------------------------------------------------------------------------------------


async def load_one(view: View) -> Mapping[str, object]:
    """One flow."""
    keys, info = await find(view)
    letters = await _letters(view, keys, info)
    now = instant(await server_time_ms(await view.source.lane(keys)))
    sees_all = all(view.access.sees(queue) for queue in _queues(info))
    info = _hide(view, info)
    picture = picture_of(info, _task_link)
    rows = _rows(info, letters, now)
    is_open = info.state not in {RunState.DONE, RunState.CANCELLED}
    kinds = {edge.kind for node in info.nodes for edge in node.waits_for}
    return {
        "info": info,
        "row": FlowRow(info, now),
        "fields": {"queue": keys.name, "id": info.id},
        "graph": draw_graph(picture, now),
        "graph_note": picture.note,
        "has_outcomes": EdgeKind.END in kinds,
        "has_orders": EdgeKind.ORDER in kinds,
        "timeline": draw_timeline(info, picture, now),
        "rows": rows[:_MOST_ROWS],
        "more": len(rows) - _MOST_ROWS,
        "failure": info.failure if sees_all else None,
        "letters": len(letters),
        "lost": info.lost[:_MOST_NAMED],
        "now": now,
        "may_cancel": is_open and _may_all(view, Action.CANCEL, info),
        "may_retry": (bool(letters) or info.state is RunState.HALTED)
        and is_open
        and _may_all(view, Action.REPLAY, info),
    }


async def find(view: View) -> tuple[QueueKeys, FlowInfo]:
    """The flow that a query or form names; 404 if there is none."""
    keys = await view.queue("queue")
    flow_id = view.params.get("id", "")[:100]

    async def read() -> FlowInfo | None:
        return await flows_of(view, keys).info(flow_id)

    info = await view.source.cache_by_cost(("flow", keys.name, flow_id), _FRESH_S, read)
    if info is None:
        raise not_found(
            "There is no such flow. It may have ended long ago, or another queue has it."
        )
    return keys, info


async def _letters(view: View, keys: QueueKeys, info: FlowInfo) -> Mapping[str, tuple[str, str]]:
    """The dead letters of its jobs, by their places."""
    if not info.failed:
        return {}
    return await flows_of(view, keys).letter_places(info.id)


def _queues(info: FlowInfo) -> set[str]:
    return {info.queue, *(node.queue for node in info.nodes)}


def _may_all(view: View, action: Action, info: FlowInfo) -> bool:
    """A flow is one thing, so every queue of it must allow that."""
    return all(view.may(action, queue) for queue in _queues(info))


def _hide(view: View, info: FlowInfo) -> FlowInfo:
    """The same without the names of tasks and queues that the visitor may not see."""
    seen = {queue for queue in _queues(info) if view.access.sees(queue)}
    nodes = tuple(
        node if node.queue in seen else replace(node, name=_HIDDEN, queue="", job_id=None)
        for node in info.nodes
    )
    return replace(info, nodes=nodes)


def _task_link(node: NodeInfo) -> str:
    return link("task", queue=node.queue, name=node.name) if node.queue else ""


def _rows(info: FlowInfo, letters: Mapping[str, tuple[str, str]], now: datetime) -> list[NodeRow]:
    """Its nodes; if there are too many for a page, first those that have failed or run."""
    nodes = list(info.nodes)
    if len(nodes) > _MOST_ROWS:
        nodes.sort(key=lambda node: URGENCY.index(node.state))
    return [
        NodeRow(node, _task_link(node), _job_of(node, letters), _waits_of(info, node), now)
        for node in nodes
    ]


def _job_of(node: NodeInfo, letters: Mapping[str, tuple[str, str]]) -> str:
    """The link to the job of a node, if it has one that is there to be looked at."""
    if node.job_id is None:
        return ""
    if (letter := letters.get(str(node.number))) is not None:
        return job_link(letter[0], node.job_id, letter[1])
    return job_link(node.queue, node.job_id) if node.state is NodeState.RUNNING else ""


def _waits_of(info: FlowInfo, node: NodeInfo) -> list[tuple[str, str, bool]]:
    return [
        (info.nodes[edge.node].name, _EDGES[edge.kind], edge.node in node.missing)
        for edge in node.waits_for[:_MOST_NAMED]
    ]


# --- what can be done ---------------------------------------------------------------------------


async def cancel(view: View) -> Answer:
    """Let nothing more of a flow start, and cancel what runs."""
    keys, info = await find(view)
    for name in _queues(info):
        view.demand(Action.CANCEL, name)
    async with view.source.open_queue(keys) as queue:
        done = await queue.flows.cancel(info.id)
    await view.note("cancel flow", keys.name, f"flow {info.id} {info.name}", count=int(done))
    sentence = "The flow is cancelled." if done else "Too late: the flow has ended."
    return Answer(sentence, flow_link(keys.name, info.id))


async def retry(view: View) -> Answer:
    """Run the dead letters of a flow again, and let it go on."""
    keys, info = await find(view)
    for name in _queues(info):
        view.demand(Action.REPLAY, name)
    if info.state in {RunState.DONE, RunState.CANCELLED}:
        raise bad_request(f"The flow is {info.state}, so it cannot go on.")

    async def replay(name: str, ids: Sequence[str]) -> int:
        async with view.source.open_queue(QueueKeys(name)) as queue:
            return await queue.dead.replay(len(ids), ids=ids)

    async with view.source.open_queue(keys) as queue:
        count = await queue.flows.retry(info.id, replay)
    await view.note("retry flow", keys.name, f"flow {info.id} {info.name}", count=count)
    sentence = (
        f"The flow goes on; {count} dead {'letter runs' if count == 1 else 'letters run'} again."
    )
    return Answer(sentence, flow_link(keys.name, info.id))


PAGES = (
    Page(
        path="flows",
        template="flows.html",
        load=load,
        nav=Nav("Flows", 35, "f"),
        live=("rows",),
    ),
    Page(
        path="flow",
        template="flow.html",
        load=load_one,
        under="flows",
        live=("state", "tiles", "trouble", "graph", "timeline", "nodes"),
    ),
)
OPERATIONS = (
    Operation(path="cancel-flow", run=cancel),
    Operation(path="retry-flow", run=retry),
)
