"""Calls of tasks that are not added yet, alone and as steps of a chain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

from msgspec import Raw, Struct

from tampu.errors import OptionError
from tampu.util.clock import now_ms
from tampu.util.ids import new_id
from tampu.wire.flow import MAX_STEPS, StepId
from tampu.wire.placeholders import PREVIOUS, ChainStep, encode_steps

if TYPE_CHECKING:
    from tampu.job import Job
    from tampu.producer.sync_job import SyncJob
    from tampu.tasks.drafts import Draft
    from tampu.tasks.task import Task

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
A_contra = TypeVar("A_contra", contravariant=True)
S = TypeVar("S")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")


class Call(Struct, Generic[R_co], frozen=True):
    """A call of a task, for `enqueue_many`, `chain` and flows: its arguments and options."""

    task: "Task[..., R_co]"
    arguments: Mapping[str, object]

    def __repr__(self) -> str:
        return f"<Call of {self.task!r}>"  # without arguments, which may be private

    @overload
    def then(self, task: NextTask[R_co, S], /) -> Chain[S]: ...
    @overload
    def then(
        self: Call[A], task: Task[Concatenate[A, P], S], /, *args: P.args, **kwargs: P.kwargs
    ) -> Chain[S]: ...
    def then(self, task: Any, /, *args: Any, **kwargs: Any) -> Chain[Any]:
        """A chain: this call, then one of `task` that gets its result as the first argument."""
        return Chain(self).then(task, *args, **kwargs)


class NextTask(Protocol[A_contra, R_co]):
    """A task that can be called with one value."""

    def call(self, value: A_contra, /) -> Call[R_co]:
        """A call with this value."""


class FirstStep(Struct, frozen=True):
    """The id of the first step of a chain, and the payload that has all others."""

    job_id: str
    payload: bytes


class Chain(Generic[R_co]):
    """Calls that run one after the other, each with the result of the one before.

    The rest of a chain travels with its jobs, so it needs no state on the server. All of its tasks
    are of one queue. A step that is buried stops it; replaying the dead letter lets it go on.
    """

    def __init__(self, first: Call[Any]) -> None:
        self._first = first
        self._drafts: tuple[Draft, ...] = ()
        self._last: Task[..., Any] = first.task

    def __repr__(self) -> str:
        names = [self._first.task.name, *(each.name for each in self._drafts)]
        return f"<Chain {' > '.join(names)}>"

    @overload
    def then(self, task: NextTask[R_co, S], /) -> Chain[S]: ...
    @overload
    def then(
        self: Chain[A], task: Task[Concatenate[A, P], S], /, *args: P.args, **kwargs: P.kwargs
    ) -> Chain[S]: ...
    def then(self, task: Any, /, *args: Any, **kwargs: Any) -> Chain[Any]:
        """The chain with one more step, which gets the result as its first argument."""
        if len(self._drafts) + 2 > MAX_STEPS:
            problem = f"a chain has at most {MAX_STEPS} steps"
            raise OptionError("chain", len(self._drafts) + 2, problem)
        queue = self._first.task.queue
        if task.queue != queue:
            problem = (
                f"it is of queue {task.queue!r}, and the chain of queue {queue!r}; "
                "use a flow for several queues"
            )
            raise OptionError("task", task, problem)
        draft = task.draft((PREVIOUS, *args), kwargs)
        if len(draft.later) > 1:
            raise OptionError("task", task, "steps of a chain cannot wait for nodes; use a flow")
        longer: Chain[Any] = Chain(self._first)
        longer._drafts = (*self._drafts, draft)
        longer._last = task
        return longer

    async def enqueue(self) -> Job[R_co]:
        """Add the first step. The job that this returns is the last one: it has the result.

        Cancelling it cancels the whole chain. If a step is buried, it fails.
        """
        task, last = self._first.task, self._last
        first = task.draft((), self._first.arguments, check=False)
        headers = task.trace_headers()
        drafts = [each.with_headers(headers) for each in self._drafts]
        steps = [
            ChainStep(each.name, Raw(each.template), each.extras, each.retry) for each in drafts
        ]
        at_ms = now_ms()
        step = StepId(new_id(at_ms), 1, 1 + len(steps))
        payload = encode_steps(first.template, steps)
        await task.add_first(first, self._drafts, step=FirstStep(str(step), payload))
        return last.job(str(step.last))

    def enqueue_sync(self) -> SyncJob[R_co]:
        """As `enqueue`, from code without an event loop."""
        return self._last.in_portal(self.enqueue)


@overload
def chain(first: Call[A] | Chain[A], second: NextTask[A, B], /) -> Chain[B]: ...
@overload
def chain(
    first: Call[A] | Chain[A], second: NextTask[A, B], third: NextTask[B, C], /
) -> Chain[C]: ...
@overload
def chain(
    first: Call[A] | Chain[A],
    second: NextTask[A, B],
    third: NextTask[B, C],
    fourth: NextTask[C, D],
    /,
) -> Chain[D]: ...
@overload
def chain(
    first: Call[A] | Chain[A],
    second: NextTask[A, B],
    third: NextTask[B, C],
    fourth: NextTask[C, D],
    fifth: NextTask[D, E],
    /,
) -> Chain[E]: ...
def chain(first: Call[Any] | Chain[Any], /, *tasks: NextTask[Any, Any]) -> Chain[Any]:
    """Calls one after the other: each task gets the result of the one before.

    For steps that need more arguments, and for more than five steps, use `then`.
    """
    if not isinstance(first, Call | Chain):
        raise OptionError("chain", type(first), "begins with a call: chain(task.call(...), other)")
    found: Chain[Any] = Chain(first) if isinstance(first, Call) else first
    for task in tasks:
        found = found.then(task)
    return found
