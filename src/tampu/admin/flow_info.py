"""What is known about a flow: its nodes, what they wait for, how many of their jobs have ended."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct

from tampu.util.clock import instant
from tampu.util.options import Word
from tampu.wire.dead import Failure
from tampu.wire.fields import decode_text
from tampu.wire.flow import MemberId
from tampu.wire.result import CANCELLED, decode_failure


class RunState(Word):
    """The state of a flow."""

    RUNNING = "running"
    HALTED = "halted"  # a job has failed, and with fail_fast no other one starts
    DONE = "done"
    FAILED = "failed"  # it can be retried
    CANCELLED = "cancelled"


class NodeState(Word):
    """The state of a node of a flow."""

    WAITING = "waiting"  # for other nodes
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


_GOING_ON: Final = (RunState.RUNNING, RunState.HALTED)
_ENDED: Final = (NodeState.DONE, NodeState.FAILED)


class EdgeKind(Word):
    """How a node must end for whoever waits for it."""

    SUCCESS = "success"
    END = "end"  # in any way: whoever waits gets the outcome
    ORDER = "order"  # in any way, and nothing is handed over


class EdgeInfo(Struct, frozen=True):
    """What a node waits for: another node, and how that must end."""

    node: int
    kind: EdgeKind


class NodeInfo(Struct, frozen=True, kw_only=True):
    """One node of a flow."""

    number: int
    name: str  # of its task
    queue: str
    state: NodeState
    is_map: bool
    is_growing: bool  # a map that has not got all of its jobs yet
    jobs: int  # known so far
    done: int
    failed: int
    waits_for: tuple[EdgeInfo, ...]  # all that it depends on
    missing: tuple[int, ...]  # those that it still waits for
    job_id: str | None  # of its job, None if it has many
    started_at: datetime | None  # when its first jobs were added
    ended_at: datetime | None  # when the last of them ended

    @property
    def is_over(self) -> bool:
        """Whether all of its jobs have ended."""
        return self.state in _ENDED

    @property
    def running(self) -> int:
        """How many of its jobs wait on their queue or run."""
        return 0 if self.state is NodeState.WAITING else self.jobs - self.done - self.failed


class FlowInfo(Struct, frozen=True, kw_only=True):
    """What is known about a flow."""

    id: str
    name: str
    queue: str  # its home
    state: RunState
    started_at: datetime
    ended_at: datetime | None
    nodes: tuple[NodeInfo, ...]
    result_node: int | None
    failure: Failure | None  # of the first job that failed
    lost: tuple[str, ...] = ()  # ids of jobs that are nowhere: the flow waits for them in vain

    def __repr__(self) -> str:
        return f"<FlowInfo {self.id} {self.name!r} {self.state.value}>"

    @property
    def is_over(self) -> bool:
        """Whether it has ended, though a retry may let it go on."""
        return self.state not in _GOING_ON

    @property
    def is_growing(self) -> bool:
        """Whether a map has not got all of its jobs yet."""
        return any(each.is_growing for each in self.nodes)

    @property
    def jobs(self) -> int:
        """How many jobs are known so far."""
        return sum(each.jobs for each in self.nodes)

    @property
    def running(self) -> int:
        """How many of its jobs wait on their queues or run."""
        return sum(each.running for each in self.nodes)

    @property
    def done(self) -> int:
        """How many jobs are done."""
        return sum(each.done for each in self.nodes)

    @property
    def failed(self) -> int:
        """How many jobs have failed."""
        return sum(each.failed for each in self.nodes)


_EDGE_KINDS: Final = {"s": EdgeKind.SUCCESS, "e": EdgeKind.END, "a": EdgeKind.ORDER}


STATE_FIELDS: Final = ("s", "halt")


def state_of(stored: bytes | None, halted: bytes | None) -> RunState | None:
    """The state of a flow from `STATE_FIELDS`; None if it is no longer stored."""
    if stored is None:
        return None
    state = RunState(decode_text(stored))
    return RunState.HALTED if state is RunState.RUNNING and halted == b"1" else state


def read_flow(flow_id: str, queue: str, fields: Mapping[str, bytes]) -> FlowInfo:
    """A flow from the fields of its state."""

    def text(name: str) -> str:
        return decode_text(fields.get(name, b""))

    def number(name: str) -> int:
        return int(fields.get(name) or 0)

    count = number("nodes")
    edges: dict[int, list[EdgeInfo]] = {node: [] for node in range(count)}
    for node in range(count):
        for edge in filter(None, text(f"o{node}").split(",")):
            edges[int(edge[:-1])].append(EdgeInfo(node, _EDGE_KINDS[edge[-1]]))
    nodes = tuple(
        _read_node(fields, node, waits_for=tuple(edges[node]), home=(flow_id, queue))
        for node in range(count)
    )
    state = state_of(fields.get("s"), fields.get("halt")) or RunState.RUNNING
    why = fields.get("why")
    stored = None if why is None else decode_failure(why)
    ended = text("end")
    return FlowInfo(
        id=flow_id,
        name=text("name"),
        queue=queue,
        state=state,
        started_at=instant(number("at")),
        ended_at=instant(int(ended)) if ended and state not in _GOING_ON else None,
        nodes=nodes,
        result_node=number("res") if "res" in fields else None,
        failure=None
        if stored is None or stored.reason == CANCELLED
        else Failure(stored.error_type, stored.message, stored.traceback),
        lost=tuple(text("lost").split("\n")) if text("lost") and state in _GOING_ON else (),
    )


def _read_node(
    fields: Mapping[str, bytes],
    node: int,
    *,
    waits_for: tuple[EdgeInfo, ...],
    home: tuple[str, str],
) -> NodeInfo:
    def number(letter: str) -> int:
        return int(fields.get(f"{letter}{node}") or 0)

    is_map = fields.get(f"k{node}") == b"m"
    left, dead, stage = number("u"), number("x"), fields.get(f"z{node}", b"")
    jobs = number("p") if is_map else 1
    if not stage:
        state = NodeState.WAITING
    elif b"s" in fields.get(f"c{node}", b""):
        state = NodeState.DONE
    elif stage == b"2" and left == dead:
        state = NodeState.FAILED
    else:
        state = NodeState.RUNNING
    flow_id, home_queue = home
    queue = decode_text(fields.get(f"q{node}", b"")) or home_queue
    job_id = MemberId(flow_id, node, None, number("g"), None if queue == home_queue else home_queue)
    fired = {each.node: fields.get(f"c{each.node}", b"") for each in waits_for}
    missing = (
        each.node
        for each in waits_for
        if (b"s" if each.kind is EdgeKind.SUCCESS else b"e") not in fired[each.node]
    )
    return NodeInfo(
        number=node,
        name=decode_text(fields.get(f"n{node}", b"")),
        queue=queue,
        state=state,
        is_map=is_map,
        is_growing=is_map and stage != b"2",
        jobs=jobs,
        done=jobs - left,
        failed=dead,
        waits_for=waits_for,
        missing=tuple(dict.fromkeys(missing)),
        job_id=None if is_map else str(job_id),
        started_at=instant(number("f")) if number("f") else None,
        ended_at=instant(number("d")) if state in _ENDED and number("d") else None,
    )
