"""A flow before it starts: its nodes, their edges, and how it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar, overload

from tampu.errors import OptionError, WrongContext
from tampu.flows.nodes import Edge, Node, Nodes, check_node, edge_kind
from tampu.flows.run import FlowRun, SyncFlowRun
from tampu.flows.storing import DraftedNode, StartContext, fields_of
from tampu.server.scripts.flows import FlowStart
from tampu.tasks.arguments import ReturnType
from tampu.util.clock import Duration, now_ms, to_ms
from tampu.util.ids import new_id
from tampu.util.options import check_flag
from tampu.wire.flow import MAX_NODES
from tampu.wire.names import check_job_name
from tampu.wire.payload import encode_payload
from tampu.wire.placeholders import ITEM, join_list
from tampu.wire.result import result_ttl_s

if TYPE_CHECKING:
    from tampu.flows.run import FlowProducer
    from tampu.tasks.calls import Call
    from tampu.tasks.drafts import Draft
    from tampu.tasks.task import Task

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
RESULT_TTL: Final = "1h"
_MAX_ITEMS_BYTES: Final = 64 * 1024 * 1024


class Flow:
    """A graph of jobs. Made by `app.flow()`; nothing is sent before `start`.

    A node whose arguments contain other nodes starts when these are done, and gets their results.
    Retries happen inside a job. A job that is buried fails the flow, unless whoever depends on it
    takes its `outcome` or a `default`; jobs that do not depend on it go on. With `fail_fast` jobs
    that have not started then wait until `FlowRun.retry`.
    """

    def __init__(
        self,
        name: str,
        app: FlowProducer,
        *,
        queue: str,
        fail_fast: bool = False,
        result_ttl: Duration = RESULT_TTL,
    ) -> None:
        self.name = check_job_name(name)
        self._app = app
        self._home = queue
        check_flag("fail_fast", fail_fast)
        self._fail_fast = fail_fast
        self._ttl_s = result_ttl_s(to_ms("result_ttl", result_ttl))
        self._drafted: list[DraftedNode] = []
        self._id: str | None = None  # from the moment on when it may be on the server
        self._is_started = False

    def __repr__(self) -> str:
        return f"<Flow {self.name!r} with {len(self._drafted)} nodes>"

    # --- building -------------------------------------------------------------------------------

    @overload
    def add(self, task: Task[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Node[R]: ...
    @overload
    def add(
        self,
        task: Task[Concatenate[A, P], R],
        first: Edge[A],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Node[R]: ...
    @overload
    def add(
        self,
        task: Task[Concatenate[A, B, P], R],
        first: Edge[A],
        second: Edge[B],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Node[R]: ...
    @overload
    def add(
        self,
        task: Task[Concatenate[A, B, P], R],
        first: A,
        second: Edge[B],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Node[R]: ...
    @overload
    def add(
        self,
        task: Task[Concatenate[A, B, C, P], R],
        first: Edge[A],
        second: Edge[B],
        third: Edge[C],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Node[R]: ...
    @overload
    def add(
        self,
        task: Task[Concatenate[A, B, C, P], R],
        first: Edge[A],
        second: B,
        third: Edge[C],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Node[R]: ...
    @overload
    def add(
        self,
        task: Task[Concatenate[A, B, C, P], R],
        first: A,
        second: Edge[B],
        third: Edge[C],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Node[R]: ...
    @overload
    def add(
        self,
        task: Task[Concatenate[A, B, C, P], R],
        first: A,
        second: B,
        third: Edge[C],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Node[R]: ...
    @overload
    def add(
        self,
        task: Task[Concatenate[A, B, C, D, P], R],
        first: Edge[A],
        second: Edge[B],
        third: Edge[C],
        fourth: Edge[D],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Node[R]: ...
    def add(self, task: Task[Any, R], /, *args: Any, **kwargs: Any) -> Node[R]:
        """A job of a task; its arguments may be nodes of the flow, which stand for their results.

        `ArgumentError` if an argument that is known does not fit. For type checkers, use
        `node.value` by keyword, inside of lists and dicts, and after the third argument.
        """
        self._check_open()
        draft = task.draft(args, kwargs)
        node: Node[R] = Node(self, len(self._drafted), task.name, kind=task.return_type)
        self._note(DraftedNode(node, draft))
        return node

    @overload
    def map(
        self,
        task: Task[Concatenate[A, P], R],
        items: Edge[list[A]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Nodes[R]: ...
    @overload
    def map(
        self,
        task: Task[Concatenate[A, P], R],
        items: Iterable[A],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Nodes[R]: ...
    def map(self, task: Task[Any, R], items: Any, /, *args: Any, **kwargs: Any) -> Nodes[R]:
        """A job of a task for each item, which is its first argument.

        The items are known now, or they are the result of a node, and then how many there are is
        known only when it is done. A map over nothing is done at once.
        """
        self._check_open()
        nodes: Nodes[R] = Nodes(self, len(self._drafted), task.name, kind=task.return_type)
        is_known = not isinstance(items, Edge)
        # What flow control needs to know of a job may be in its item.
        draft = task.draft((ITEM, *args), kwargs, place=not is_known)
        drafted = DraftedNode(nodes, draft)
        if isinstance(items, Edge):
            drafted.source = items
        else:
            if not isinstance(items, Iterable):
                raise OptionError("items", type(items), "expected items, or a node")
            given = list(items)
            task.check_items(given)
            encoded = [encode_payload(each, max_bytes=_MAX_ITEMS_BYTES) for each in given]
            drafted.items = join_list(encoded, max_bytes=_MAX_ITEMS_BYTES)
            if task.is_placed:
                drafted.placed = [task.draft((each, *args), kwargs, check=False) for each in given]
                drafted.has_own_lines = True
        self._note(drafted)
        return nodes

    def add_call(self, call: Call[R]) -> Node[R]:
        """A job for a call that was checked before."""
        self._check_open()
        task = call.task
        draft = task.draft((), call.arguments, check=False)
        node: Node[R] = Node(self, len(self._drafted), task.name, kind=task.return_type)
        self._note(DraftedNode(node, draft))
        return node

    def open_batch(self) -> Nodes[Any]:
        """A node whose jobs are added while the flow runs."""
        nodes: Nodes[Any] = Nodes(self, len(self._drafted), "batch", kind=ReturnType(None))
        self._note(DraftedNode(nodes, None))
        return nodes

    def connect(self, upstream: Node[Any], node: Node[Any], kind: str) -> None:
        """Let a node wait for another one, as its methods `after` and `needs` do."""
        self._check_open()
        before, then = check_node(self, upstream), check_node(self, node)
        if self._reaches(then.number, before.number):
            problem = f"{before!r} waits for {then!r} already"
            raise OptionError("node", before, problem)
        self._connect(before.number, then.number, kind)

    def _note(self, drafted: DraftedNode) -> None:
        number = len(self._drafted)
        if number >= MAX_NODES:
            raise OptionError("flow", self, f"it can have at most {MAX_NODES} nodes; use map")
        later = [] if drafted.draft is None else list(drafted.draft.later)
        if drafted.source is not None:
            later.append(drafted.source)
        edges = [each for each in later if isinstance(each, Edge)]
        for each in edges:
            if each.flow is not self:
                raise OptionError("node", each.placeholder.node, "it belongs to another flow")
        self._drafted.append(drafted)
        for each in edges:
            self._connect(each.placeholder.node, number, edge_kind(each))

    def _connect(self, before: int, then: int, kind: str) -> None:
        edges = self._drafted[before].dependents
        if (then, kind) not in edges:
            edges[then, kind] = None
            self._drafted[then].waits += 1

    def _reaches(self, start: int, goal: int) -> bool:
        """Whether a node waits, directly or not, for another one, or is that one."""
        seen, todo = {start}, [start]
        while todo:
            number = todo.pop()
            if number == goal:
                return True
            new = {then for then, _ in self._drafted[number].dependents} - seen
            seen |= new
            todo += new
        return False

    def _check_open(self) -> None:
        if self._id is not None:
            problem = f"it was started as {self._id}, or may have been; make another one"
            raise WrongContext("change a flow", problem)

    # --- starting -------------------------------------------------------------------------------

    @overload
    async def start(self) -> FlowRun[None]: ...
    @overload
    async def start(self, *, result: Node[R]) -> FlowRun[R]: ...
    async def start(self, *, result: Node[Any] | None = None) -> FlowRun[Any]:
        """Start the flow; `result` is the node whose result is that of the flow.

        Once this returns, the flow is stored on the server and will end.
        """
        if not self._drafted:
            raise OptionError("flow", self, "it has no nodes; add some before it starts")
        if self._is_started:
            self._check_open()
        node = None if result is None else check_node(self, result)
        flows = self._app.queue(self._home).flows
        flow_id = self._id or new_id(now_ms())
        start = StartContext(flow_id, self._home, now_ms(), self._app.trace_headers())
        stored = self._store(start, node)
        await self._app.prepare_gates(self._placed())
        # Now it may be on the server. If it is started again after an error, it keeps its id.
        self._id = flow_id
        await flows.start(stored)
        self._is_started = True
        return FlowRun(self._app, self._home, flow_id, node=node)

    @overload
    def start_sync(self) -> SyncFlowRun[None]: ...
    @overload
    def start_sync(self, *, result: Node[R]) -> SyncFlowRun[R]: ...
    def start_sync(self, *, result: Node[Any] | None = None) -> SyncFlowRun[Any]:
        """As `start`, from code without an event loop."""
        portal = self._app.portal()

        async def start() -> FlowRun[Any]:
            return await (self.start() if result is None else self.start(result=result))

        return SyncFlowRun(portal.call(start), portal)

    def _placed(self) -> Sequence[Draft]:
        return [draft for each in self._drafted for draft in each.placed]

    def _store(self, start: StartContext, result: Node[Any] | None) -> FlowStart:
        """The flow as the server keeps it; `parts/flow.lua` explains the fields."""
        queues = {each.draft.queue for each in self._drafted if each.draft is not None}
        fields: dict[str, bytes | str | int] = {
            "s": "running",
            "live": 0,
            "held": len(self._drafted),
            "bad": 0,
            "fast": int(self._fail_fast),
            "ttl": self._ttl_s,
            "name": self.name,
            "nodes": len(self._drafted),
            "queues": "\n".join(sorted(queues | {self._home})),
            "maps": ",".join(
                str(each.node.number) for each in self._drafted if isinstance(each.node, Nodes)
            ),
        }
        if result is not None:
            fields["res"] = result.number
        for each in self._drafted:
            fields |= fields_of(each, start)
        ready = [number for number, each in enumerate(self._drafted) if not each.waits]
        return FlowStart(start.flow_id, fields, ready)
