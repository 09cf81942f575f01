"""Nodes of a flow, and what their edges carry: a result, an outcome, or only an order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Self, TypeAlias, TypeVar, cast

from msgspec import Raw, Struct, convert
from msgspec.structs import replace

from tampu.errors import OptionError
from tampu.job import current_run
from tampu.tasks.arguments import ReturnType
from tampu.tasks.hints import ByReference
from tampu.wire.payload import encode_payload
from tampu.wire.placeholders import Expected, Later, Placeholder

if TYPE_CHECKING:
    from tampu.flows.flow import Flow

_MAX_DEFAULT_BYTES: Final = 1_048_576
T = TypeVar("T")
D = TypeVar("D")
T_co = TypeVar("T_co", covariant=True)


class Ok(Struct, Generic[T_co], frozen=True, tag="ok"):
    """The outcome of a job that is done."""

    value: T_co


class NodeFailed(Struct, frozen=True, tag="failed"):
    """The outcome of a job that was buried or cancelled."""

    reason: str  # "retries_exhausted", "cancelled" and others, as of a dead letter
    error_type: str = ""
    message: str = ""


NodeOutcome: TypeAlias = Ok[T] | NodeFailed
"""What a task gets that asks for the outcome of a job instead of its result."""


class _Reference(Struct, frozen=True):
    """Where the results of a map are, as a job gets it."""

    flow: str
    node: int
    queue: str


class Results(ByReference, Generic[T_co]):
    """The results of a map, read page by page: `async for result in results`.

    For a task that joins so many results that they should not be in memory together. They come in
    the order in which their jobs have ended.
    """

    def __init__(self, reference: _Reference, kind: ReturnType) -> None:
        self.flow = reference.flow
        self.node = reference.node
        self.queue = reference.queue
        self._kind = kind

    def __repr__(self) -> str:
        return f"<Results of node {self.node} of {self.flow}>"

    @classmethod
    def from_reference(cls, reference: object, hint: Any) -> Self:  # noqa: ANN401 - an annotation
        """The results that a job gets, as its annotation describes them."""
        return cls(convert(reference, _Reference), ReturnType(hint))

    async def __aiter__(self) -> AsyncIterator[T_co]:
        """The results of the jobs that are done."""
        run = current_run()
        if run is None:
            raise OptionError("results", self, "can be read only by the task that gets them")
        async for value in run.host.read_results(self):
            yield cast("T_co", self._kind.convert(value))


class Edge(Later, Generic[T_co]):
    """Stands for a value that a node will have, as an argument of another task."""

    def __init__(self, flow: Flow, placeholder: Placeholder) -> None:
        super().__init__(placeholder)
        self.flow = flow

    def __repr__(self) -> str:
        expected = self.placeholder.expected.name.lower()
        return f"<Edge from node {self.placeholder.node}: {expected}>"  # without a default

    @property
    def value(self) -> T_co:
        """The same where a checker wants the value itself: by keyword, or inside a list."""
        return cast("T_co", _Value(self.flow, self.placeholder))


class _Value(Edge[Any]):
    """As `Edge`; `*` in front of it puts the items of its list where it stands."""

    def __iter__(self) -> Iterator[Edge[Any]]:
        before = self.placeholder
        yield Edge(self.flow, replace(before, spreads=True))


class Node(Edge[T_co]):
    """A job of a flow. As an argument it stands for its result, and needs its success."""

    def __init__(
        self, flow: Flow, number: int, name: str, *, kind: ReturnType, is_map: bool = False
    ) -> None:
        super().__init__(flow, Placeholder(Expected.VALUE, number, is_map))
        self.number = number
        self.name = name
        self.kind = kind  # of the result of each job

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.number} {self.name!r}>"

    @property
    def outcome(self) -> Edge[Ok[T_co] | NodeFailed]:
        """Its outcome: a job that gets it runs in any case, and then a failure fails no flow."""
        return Edge(self.flow, Placeholder(Expected.OUTCOME, self.number))

    def default(self, value: D) -> Edge[T_co | D]:
        """Its result, or this value if it fails."""
        default = _encode_default(value)
        return Edge(self.flow, Placeholder(Expected.DEFAULT, self.number, default=default))

    def after(self, *others: Node[Any]) -> Node[T_co]:
        """Start it only when others have ended, in whatever way; returns the node itself."""
        for other in others:
            self.flow.connect(other, self, "a")
        return self

    def needs(self, *others: Node[Any]) -> Node[T_co]:
        """Start it only when others are done, without their results; returns the node itself."""
        for other in others:
            self.flow.connect(other, self, "s")
        return self


class Nodes(Node[list[T]], Generic[T]):
    """The jobs of a map. As an argument they stand for the list of their results."""

    def __init__(self, flow: Flow, number: int, name: str, *, kind: ReturnType) -> None:
        super().__init__(flow, number, name, kind=kind, is_map=True)
        self.tolerated = 0.0

    @property
    def outcome(self) -> NoReturn:
        """Refused: each of the jobs has one; see `outcomes`."""
        raise OptionError("outcome", self, "a map has many; take its outcomes")

    @property
    def outcomes(self) -> Edge[list[Ok[T] | NodeFailed]]:
        """Their outcomes: whoever gets them runs in any case."""
        return Edge(self.flow, Placeholder(Expected.OUTCOME, self.number, is_map=True))

    def default(self, value: D) -> Edge[list[T] | D]:
        """The list of their results, or this value if more of them fail than are tolerated."""
        default = _encode_default(value)
        placeholder = Placeholder(Expected.DEFAULT, self.number, is_map=True, default=default)
        return Edge(self.flow, placeholder)

    @property
    def results(self) -> Edge[Results[T]]:
        """Their results, to be read one after the other."""
        return Edge(self.flow, Placeholder(Expected.REFERENCE, self.number, is_map=True))

    def tolerate(self, share: float) -> Nodes[T]:
        """Let up to this share of the jobs fail; returns the nodes themselves.

        Whoever gets the list of results then gets those that there are.
        """
        given: object = share
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
            raise OptionError("tolerate", given, "expected a share from 0 to 1")
        self.tolerated = float(share)
        return self


def check_node(flow: Flow, given: object) -> Node[Any]:
    """A node of this flow, or `OptionError`."""
    if not isinstance(given, Node):
        raise OptionError("node", type(given), "expected a node, as flow.add() returns it")
    if given.flow is not flow:
        raise OptionError("node", given, "it belongs to another flow")
    return given


def edge_kind(later: Later) -> str:
    """What an argument needs: the success of its node, or any end of it."""
    is_handled = later.placeholder.expected in {Expected.OUTCOME, Expected.DEFAULT}
    return "e" if is_handled else "s"


def _encode_default(value: object) -> Raw:
    """A value as arguments are encoded; `EncodeError` if it cannot be sent."""
    return Raw(encode_payload(value, max_bytes=_MAX_DEFAULT_BYTES, what="default"))
