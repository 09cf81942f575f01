"""Builds the flow of tampu that a chain or chord becomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tampu.compat.celery._routing import level_of, queue_name
from tampu.compat.celery._settings import result_ttl
from tampu.compat.celery.exceptions import NotSupported
from tampu.compat.celery.result import AsyncResult
from tampu.flows.nodes import Node

if TYPE_CHECKING:
    from tampu.compat.celery.app import Celery
    from tampu.compat.celery.canvas import Signature
    from tampu.flows.flow import Flow

_IN_FLOW: Final = ("queue", "priority")
"""Options that a job of a chain or chord can have."""
Before: TypeAlias = Node[Any] | list[Node[Any]] | None
"""What runs before: one job, whose result is the first argument, or several, with a list."""


class Graph:
    """A flow that is being built."""

    def __init__(self, app: Celery, name: str) -> None:
        self.app = app
        self.flow: Flow = app.tampu.flow(name, result_ttl=result_ttl(app.conf))

    def add(self, sig: Signature, before: Before) -> Node[Any]:
        """A job of a signature."""
        for option in sig.options:
            if option not in _IN_FLOW:
                advice = "start the chain or chord from a task that has this option"
                raise NotSupported(f"the option {option} inside a chain or chord", advice)
        task = self.app.task_named(sig.task)
        chosen = task.tampu.options(**_flow_options(sig.options))
        nodes = [] if before is None else before if isinstance(before, list) else [before]
        if sig.immutable:
            return self.flow.add(chosen, *sig.args, **sig.kwargs).needs(*nodes)
        first = [] if before is None else [_values(before)]
        return self.flow.add(chosen, *first, *sig.args, **sig.kwargs)

    def start(self, result: Node[Any]) -> AsyncResult:
        """Start it; the result is that of one node."""
        run = self.flow.start_sync(result=result)
        return AsyncResult(run.id, app=self.app, queue=run.queue, run=run)


def _flow_options(options: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if options.get("queue") is not None:
        found["queue"] = queue_name(options["queue"])
    if level_of(options.get("priority")) is not None:
        found["priority"] = level_of(options["priority"])
    return found


def _values(before: Node[Any] | list[Node[Any]]) -> Any:
    if isinstance(before, list):
        return [each.value for each in before]
    return before.value
