"""Signatures, chains, groups and chords. Chains and chords become flows of tampu."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

from tampu.compat.celery._absent import refuse, refuse_imports
from tampu.compat.celery._current import app_or_current
from tampu.compat.celery._graph import Before, Graph
from tampu.compat.celery.exceptions import NotSupported
from tampu.compat.celery.result import AsyncResult, EagerResult, GroupResult
from tampu.util.clock import now_ms
from tampu.util.ids import new_id

if TYPE_CHECKING:
    from tampu.compat.celery.app import Celery
    from tampu.flows.nodes import Node

__all__ = ["chain", "chord", "group", "signature"]

__getattr__ = refuse_imports("celery.canvas")

Result: TypeAlias = AsyncResult | EagerResult | GroupResult


class Canvas:
    """What a signature, chain, group and chord have in common."""

    app: Celery | None = None

    def __getattr__(self, name: str) -> NoReturn:
        refuse("signature", name)

    def __or__(self, other: object) -> Canvas:
        if not isinstance(other, Canvas):
            return NotImplemented
        return make_chain(self, other)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Send it, as `delay` does; a signature calls its function instead."""
        return self.apply_async(args, kwargs)

    def delay(self, *args: Any, **kwargs: Any) -> Result:
        """Send it; these arguments come before those that it has."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Result:
        """Send it."""
        raise NotImplementedError

    def apply(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run it here and now."""
        raise NotImplementedError

    def add_to(self, graph: Graph, before: Before) -> Node[Any] | list[Node[Any]]:
        """Add its jobs to a flow, after those that were added before."""
        raise NotImplementedError

    def owner(self) -> Celery:
        """The app that it belongs to."""
        raise NotImplementedError


class Signature(Canvas):
    """A call of a task, to be sent later."""

    def __init__(
        self,
        task: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        app: Celery | None = None,
        immutable: bool = False,
    ) -> None:
        self.task, self.args, self.kwargs = task, tuple(args), dict(kwargs or {})
        self.options, self.immutable, self.app = dict(options or {}), immutable, app

    def __repr__(self) -> str:
        return f"<Signature of {self.task}>"  # without arguments, which may be private

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, without a job."""
        merged = self._merge(args, kwargs)
        return self.owner().task_named(self.task)(*merged.args, **merged.kwargs)

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.task

    def clone(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Signature:
        """A copy with further arguments in front, and further options."""
        return self._merge(args, kwargs or {}, options)

    def set(self, immutable: bool | None = None, **options: Any) -> Signature:
        """Change options; returns the signature itself."""
        self.options.update(options)
        self.immutable = self.immutable if immutable is None else immutable
        return self

    def link(self, callback: Signature) -> Signature:
        """Send another one with the result; returns that."""
        self.options.setdefault("link", []).append(callback)
        return callback

    def link_error(self, errback: Signature) -> Signature:
        """Send another one after a failure; returns that."""
        self.options.setdefault("link_error", []).append(errback)
        return errback

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncResult | EagerResult:
        """Send it."""
        sent = self._merge(args or (), kwargs or {}, options)
        app = self.owner()
        return app.send_task(self.task, sent.args, sent.kwargs, **sent.options)

    def apply(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> EagerResult:
        """Run it here and now."""
        merged = self._merge(args or (), kwargs or {})
        return self.owner().task_named(self.task).apply(merged.args, merged.kwargs)

    def add_to(self, graph: Graph, before: Before) -> Node[Any]:
        """Add its job to a flow."""
        return graph.add(self, before)

    def owner(self) -> Celery:
        """The app that it belongs to, else the current one."""
        return app_or_current(self.app)

    def _merge(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: Mapping[str, Any] | None = None,
    ) -> Signature:
        if self.immutable:
            args, kwargs = (), {}
        return Signature(
            self.task,
            (*args, *self.args),
            {**self.kwargs, **kwargs},
            options={**self.options, **(options or {})},
            app=self.app,
            immutable=self.immutable,
        )


class Chain(Canvas):
    """Signatures that run one after the other, each with the result of the one before."""

    def __init__(self, tasks: Sequence[Canvas]) -> None:
        self.tasks = list(tasks)

    def __repr__(self) -> str:
        return f"<Chain {' | '.join(map(repr, self.tasks))}>"

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncResult | EagerResult:
        """Send it; the result is that of the last one."""
        _refuse(options, "a chain")
        app = self.owner()
        if app.conf.task_always_eager:
            return cast("EagerResult", self.apply(args, kwargs))
        graph = Graph(app, "chain")
        last = with_arguments(self, args, kwargs).add_to(graph, None)
        if isinstance(last, list):
            advice = "end it with a task that takes the list of results"
            raise NotSupported("a chain that ends with a group", advice)
        return graph.start(last)

    def apply(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run it here and now, up to the first failure."""
        given: Sequence[Any] = args or ()
        result: Any = None
        for number, each in enumerate(self.tasks):
            result = each.apply(given, kwargs if number == 0 else None)
            if not result.successful():
                return result
            given = (result.get(),)
        return result

    def add_to(self, graph: Graph, before: Before) -> Node[Any] | list[Node[Any]]:
        """Add its jobs to a flow."""
        last: Before = before
        for each in self.tasks:
            last = each.add_to(graph, last)
        assert last is not None  # noqa: S101 - a chain has tasks
        return last

    def owner(self) -> Celery:
        """The app of its first signature."""
        return self.tasks[0].owner()


class Group(Canvas):
    """Signatures that run side by side."""

    def __init__(self, tasks: Sequence[Canvas]) -> None:
        self.tasks = list(tasks)

    def __repr__(self) -> str:
        return f"<Group of {len(self.tasks)}>"

    def __len__(self) -> int:
        return len(self.tasks)

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> GroupResult:
        """Send all of them; the options are those of each."""
        sent = [each.apply_async(args, kwargs, **options) for each in self.tasks]
        return GroupResult(new_id(now_ms()), sent)

    def apply(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> GroupResult:
        """Run all of them here and now."""
        return GroupResult(new_id(now_ms()), [each.apply(args, kwargs) for each in self.tasks])

    def add_to(self, graph: Graph, before: Before) -> list[Node[Any]]:
        """Add its jobs to a flow."""
        added = [each.add_to(graph, before) for each in self.tasks]
        if any(isinstance(each, list) for each in added):
            raise NotSupported("a group inside of a group", "put all signatures into one group")
        return cast("list[Node[Any]]", added)

    def owner(self) -> Celery:
        """The app of its first signature."""
        return self.tasks[0].owner() if self.tasks else app_or_current(None)


class Chord(Canvas):
    """A group, and a signature that gets the list of its results."""

    def __init__(self, header: Group, body: Canvas) -> None:
        self.tasks, self.body = header.tasks, body
        self._header = header

    def __repr__(self) -> str:
        return f"<Chord of {len(self.tasks)} and {self.body!r}>"

    def __call__(self, body: Canvas | None = None, /, **options: Any) -> Result:
        """Send it."""
        chosen = self if body is None else Chord(self._header, body)
        return chosen.apply_async(**options)

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncResult | EagerResult:
        """Send it; the result is that of the body."""
        return Chain([self]).apply_async(args, kwargs, **options)

    def apply(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run it here and now."""
        joined = self._header.apply(args, kwargs)
        return self.body.apply((joined.get(),))

    def add_to(self, graph: Graph, before: Before) -> Node[Any] | list[Node[Any]]:
        """Add its jobs to a flow."""
        nodes = self._header.add_to(graph, before)
        return self.body.add_to(graph, nodes)

    def owner(self) -> Celery:
        """The app of its first signature."""
        return self._header.owner() if self.tasks else self.body.owner()


class _OpenChord:
    """A chord that has no body yet: `chord(header)(body)`."""

    def __init__(self, header: Group) -> None:
        self._header = header

    def __call__(self, body: Canvas, **options: Any) -> Result:
        """Send it with this body."""
        return Chord(self._header, body).apply_async(**options)


# --- making them --------------------------------------------------------------------------------


def signature(
    task: str | Canvas,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    immutable: bool = False,
    app: Celery | None = None,
    **others: Any,
) -> Canvas:
    """A signature of the task with this name; a signature is returned as it is."""
    if isinstance(task, Canvas):
        return task
    every = {**(options or {}), **others}
    return Signature(task, args, kwargs, options=every, app=app, immutable=immutable)


def chain(*tasks: Any) -> Canvas:
    """Signatures that run one after the other, given one by one or as one list."""
    found = _members(tasks)
    if not found:
        raise ValueError("a chain needs at least one signature")
    return found[0] if len(found) == 1 else make_chain(*found)


def group(*tasks: Any) -> Group:
    """Signatures that run side by side, given one by one or as one list."""
    return Group(_members(tasks))


def chord(header: Any, body: Canvas | None = None) -> Any:
    """A group, and a signature that gets the list of its results."""
    made = header if isinstance(header, Group) else Group(_members((header,)))
    return _OpenChord(made) if body is None else Chord(made, body)


def make_chain(*parts: Canvas) -> Canvas:
    """A chain of parts; a group that something follows becomes a chord, as in Celery."""
    tasks: list[Canvas] = []
    for part in parts:
        for each in part.tasks if isinstance(part, Chain) else [part]:
            if tasks and isinstance(tasks[-1], Group):
                tasks[-1] = Chord(tasks[-1], each)
            else:
                tasks.append(each)
    return tasks[0] if len(tasks) == 1 else Chain(tasks)


def with_arguments(
    canvas: Canvas, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None
) -> Canvas:
    """The same with further arguments for what runs first."""
    if not args and not kwargs:
        return canvas
    match canvas:
        case Signature():
            return canvas.clone(args or (), kwargs)
        case Chain():
            return Chain([with_arguments(canvas.tasks[0], args, kwargs), *canvas.tasks[1:]])
        case Group():
            return Group([with_arguments(each, args, kwargs) for each in canvas.tasks])
        case Chord():
            header = with_arguments(Group(canvas.tasks), args, kwargs)
            return Chord(cast("Group", header), canvas.body)
        case _:
            return canvas


def _members(given: Sequence[Any]) -> list[Canvas]:
    single = given[0] if len(given) == 1 else given
    found: Iterable[Any] = single if not isinstance(single, Canvas) else [single]
    members = list(found)
    for each in members:
        if not isinstance(each, Canvas):
            raise TypeError(f"expected signatures, got {type(each).__name__}")
    return members


def _refuse(options: Mapping[str, Any], what: str) -> None:
    for name in options:
        advice = "send it from a task that has this option, or use options of its signatures"
        raise NotSupported(f"the option {name} of {what}", advice)
