"""Flows at random, and a model of them: what may start, what has ended, and how a flow ends."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any, Final

from msgspec.msgpack import decode

from tampu import App
from tampu.flows.flow import Flow
from tampu.flows.nodes import Edge, Node, Nodes

SUCCESS, END, ORDER = "s", "e", "a"


class Ended(Enum):
    """What has become of a job, as its flow knows it."""

    NOT_YET = 0
    DONE = 1
    DEAD = 2


@dataclass
class ModelJob:
    """A job of a flow."""

    ended: Ended = Ended.NOT_YET
    generation: int = 0
    has_ended_once: bool = False
    is_parked: bool = False
    has_letter: bool = False  # its flow knows where its dead letter is
    is_copied: bool = False  # it has run twice, as if a peer had added it again
    starts: int = 0
    allowed: int = 1
    value: bytes = b""


@dataclass
class ModelNode:
    """A node, the edges that it waits for, and its jobs by their numbers."""

    number: int
    queue: str
    is_map: bool
    tolerated: float = 0.0
    items: int | None = None  # of a map that knows them when it starts
    source: tuple[int, str] | None = None  # of a map: the node, and how it is asked
    waits_for: set[tuple[int, str]] = field(default_factory=set)
    jobs: dict[int, ModelJob] = field(default_factory=dict)
    is_whole: bool = False
    is_handled: bool = False  # somebody takes care of its failures
    has_succeeded: bool = False
    is_over: bool = False

    @property
    def dead(self) -> int:
        """How many of its jobs are dead."""
        return sum(job.ended is Ended.DEAD for job in self.jobs.values())

    @property
    def is_bad(self) -> bool:
        """Whether its failures are the flow's."""
        is_known = self.is_whole or not self.tolerated
        return is_known and self.dead > self.allowed and not self.is_handled

    @property
    def allowed(self) -> int:
        """How many of its jobs may fail."""
        return math.floor(self.tolerated * len(self.jobs) + 1e-9)

    def note(self) -> None:
        """See what is fired: once, whatever comes later."""
        jobs = self.jobs.values()
        if self.is_whole and all(each.has_ended_once for each in jobs):
            self.is_over = True
        if self.is_whole and all(each.ended is not Ended.NOT_YET for each in jobs):
            self.has_succeeded |= self.dead <= self.allowed


class Model:
    """The nodes of a flow, and what its jobs' ends lead to."""

    def __init__(self, nodes: list[ModelNode]) -> None:
        self.nodes = nodes

    def may_start(self, node: ModelNode) -> bool:
        """Whether all that it waits for has happened."""
        for number, kind in node.waits_for:
            before = self.nodes[number]
            if not (before.has_succeeded if kind == SUCCESS else before.is_over):
                return False
        return True

    def jobs(self) -> Iterator[tuple[ModelNode, int, ModelJob]]:
        """All jobs that are known."""
        for node in self.nodes:
            for number, job in node.jobs.items():
                yield node, number, job

    def end(self, node: int, number: int, run: int, *, ended: Ended, value: bytes = b"") -> bool:
        """A job has ended; whether that counts."""
        job = self.nodes[node].jobs[number]
        if run < job.generation or job.ended is not Ended.NOT_YET:
            return False
        job.ended, job.has_ended_once, job.value = ended, True, value
        self.nodes[node].note()
        return True

    def replay(self, node: int, number: int, run: int) -> None:
        """A dead job is to run once more."""
        job = self.nodes[node].jobs[number]
        if run > job.generation and job.ended is Ended.DEAD:
            job.generation, job.ended, job.has_letter = run, Ended.NOT_YET, False

    def grow(self, node: int, count: int) -> None:
        """A map has so many jobs now."""
        for number in range(len(self.nodes[node].jobs), count):
            self.nodes[node].jobs[number] = ModelJob()

    def close(self, node: int) -> None:
        """A map gets no more jobs."""
        self.nodes[node].is_whole = True
        self.nodes[node].note()

    def size_of(self, node: ModelNode) -> tuple[int, int]:
        """How many jobs a map can have, at least and at most."""
        if node.source is None:
            return node.items or 0, node.items or 0
        number, how = node.source
        source = self.nodes[number]
        if how == "outcomes":
            return len(source.jobs), len(source.jobs)
        if source.is_map:  # those that were tolerated may have run again since
            return len(source.jobs) - source.allowed, len(source.jobs)
        size = len(decode(source.jobs[0].value))
        return size, size


# --- flows at random ----------------------------------------------------------------------------


class Tasks:
    """The tasks of two queues; they are never run."""

    def __init__(self, app: App, number: int) -> None:
        self.home, self.away = f"h{number}", f"a{number}"
        self.single: dict[str, Any] = {}
        self.each: dict[str, Any] = {}
        for queue in (self.home, self.away):
            self.single[queue] = app.task(queue=queue, name=f"single-{queue}")(_single)
            self.each[queue] = app.task(queue=queue, name=f"each-{queue}")(_each)


async def _single(inputs: list[Any]) -> list[int]:
    return inputs


async def _each(item: Any, inputs: list[Any]) -> list[int]:  # noqa: ANN401 - of any kind
    return [item, inputs]


MOST_NODES: Final = 8


class RandomGraph:
    """A flow at random, and its model."""

    def __init__(self, flow: Flow, tasks: Tasks, rng: Random) -> None:
        self.flow, self._tasks, self._rng = flow, tasks, rng
        self._nodes: list[Node[Any]] = []
        found = [self._add(number) for number in range(rng.randint(1, MOST_NODES))]
        self.model = Model(found)
        self.result = rng.choice([None, *self._nodes])
        for each in found:
            is_handled = any((each.number, END) in other.waits_for for other in found)
            is_result = self.result is not None and self.result.number == each.number
            each.is_handled = is_handled and not is_result

    def _add(self, number: int) -> ModelNode:
        rng = self._rng
        queue = rng.choice((self._tasks.home, self._tasks.home, self._tasks.away))
        is_map = rng.random() < 0.45
        found = ModelNode(number, queue, is_map)
        inputs, before, needed = self._choose_edges(found)
        if is_map:
            node: Node[Any] = self._add_map(found, inputs)
        else:
            node = self.flow.add(self._tasks.single[queue], inputs)
            found.jobs[0], found.is_whole = ModelJob(), True
        node.after(*before).needs(*needed)
        found.waits_for |= {(each.number, ORDER) for each in before}
        found.waits_for |= {(each.number, SUCCESS) for each in needed}
        self._nodes.append(node)
        return found

    def _choose_edges(self, found: ModelNode) -> tuple[list[Any], list[Node[Any]], list[Node[Any]]]:
        inputs: list[Any] = []
        before: list[Node[Any]] = []
        needed: list[Node[Any]] = []
        for node in self._nodes:
            for kind in self._rng.choices("vvodan", k=self._rng.choice((0, 0, 1, 1, 2))):
                if kind == "a":
                    before.append(node)
                elif kind == "n":
                    needed.append(node)
                else:
                    edge, needs = self._edge(node, kind)
                    inputs.append(edge.value)
                    found.waits_for.add((node.number, needs))
        return inputs, before, needed

    @staticmethod
    def _edge(node: Node[Any], kind: str) -> tuple[Edge[Any], str]:
        if kind == "v":
            return node, SUCCESS
        if isinstance(node, Nodes):
            return node.outcomes, END
        return (node.outcome, END) if kind == "o" else (node.default([1, 2]), END)

    def _add_map(self, found: ModelNode, inputs: list[Any]) -> Nodes[Any]:
        rng, task = self._rng, self._tasks.each[found.queue]
        if self._nodes and rng.random() < 0.4:
            source = rng.choice(self._nodes)
            takes_outcomes = isinstance(source, Nodes) and rng.random() < 0.4
            edge, needs = self._edge(source, "o" if takes_outcomes else "v")
            found.source = (source.number, "outcomes" if takes_outcomes else "value")
            found.waits_for.add((source.number, needs))
            nodes = self.flow.map(task, edge, inputs)
        else:
            found.items = rng.choice((0, 1, 2, 3, 5))
            nodes = self.flow.map(task, range(found.items), inputs)
        if rng.random() < 0.3:
            found.tolerated = rng.choice((0.2, 0.5, 1.0))
            nodes.tolerate(found.tolerated)
        return nodes
