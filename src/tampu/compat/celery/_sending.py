"""Turns what `apply_async` takes into jobs, runs tasks at once, and sends what follows a task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec import json as msgspec_json

from tampu.compat.celery._routing import find_route, level_of, queue_name
from tampu.compat.celery._running import Context, Ended, trace
from tampu.compat.celery.canvas import Signature
from tampu.compat.celery.exceptions import NotSupported, Retry
from tampu.compat.celery.result import AsyncResult, EagerResult
from tampu.compat.celery.states import FAILURE, RETRY, SUCCESS
from tampu.errors import OptionError
from tampu.util.clock import now_ms
from tampu.util.options import hint_of

if TYPE_CHECKING:
    from tampu.compat.celery.app import Celery
    from tampu.compat.celery.task import Task
    from tampu.job import Job, JobOptions

_LINK: Final = "tampu-celery-link"
_LINK_ERROR: Final = "tampu-celery-link-error"
_HARMLESS: Final = frozenset(
    ("retry", "retry_policy", "add_to_parent", "compression", "delivery_mode", "shadow")
)
"""Options of a job that change nothing here."""
_KNOWN: Final = ("countdown", "eta", "expires", "queue", "priority", "headers", "time_limit")
_ACCEPTED: Final = (*_KNOWN, *_HARMLESS, "args", "kwargs", "task_id", "link", "link_error")
_REFUSED: Final = {
    "chord": "use chord(header, body)",
    "connection": "set the broker of the app",
    "exchange": "give queue=",
    "ignore_result": "set it where the task is declared",
    "producer": "set the broker of the app",
    "routing_key": "give queue=",
    "soft_time_limit": "set it where the task is declared",
}


@dataclass(frozen=True)
class SendOptions:
    """The options of one job, as `apply_async` takes them. Checked when created."""

    task_id: str | None = None
    link: Any = None
    link_error: Any = None
    others: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_options(self.others)


def send_options(options: Mapping[str, Any]) -> SendOptions:
    """The options of `send_task`, which are those of `apply_async`."""
    others = dict(options)
    task_id, link = others.pop("task_id", None), others.pop("link", None)
    return SendOptions(task_id, link, others.pop("link_error", None), others)


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options of a job that do not exist here."""
    for name, value in options.items():
        if name in _KNOWN or name in _HARMLESS:
            continue
        if name == "serializer" and value in {"json", "msgpack", None}:
            continue
        hint = "" if name in _REFUSED else hint_of(name, _ACCEPTED)
        advice = _REFUSED.get(name, "set options of tampu with task.tampu.options(...)")
        raise NotSupported(f"the option {name} of a job{hint}", advice)


def check_eager(options: Mapping[str, Any]) -> None:
    """As `check_options`, for a task that runs at once."""
    check_options({name: value for name, value in options.items() if name != "ignore_result"})


def send(
    task: Task, args: Sequence[Any], kwargs: Mapping[str, Any], given: SendOptions
) -> AsyncResult:
    """Add the job of a call."""
    queue, options = job_options(task.app, given, task)
    chosen = task.tampu.options(queue=queue, **options)
    job = chosen.enqueue_sync(*args, **kwargs)
    ignored = task.app.conf.task_ignore_result if task.ignore_result is None else task.ignore_result
    return AsyncResult(job.id, app=task.app, queue=chosen.queue, ignored=bool(ignored))


def send_unknown(
    app: Celery,
    name: str,
    arguments: tuple[Sequence[Any], Mapping[str, Any]],
    given: SendOptions,
) -> AsyncResult:
    """Add a job of a task that only the worker knows."""
    if arguments[0]:
        advice = "import its module, or give all arguments by name in kwargs="
        raise NotSupported(f"positional arguments for {name}, which is not imported here", advice)
    queue, options = job_options(app, given, None)
    chosen = queue or find_route(app.conf.task_routes, name) or app.tampu.default_queue
    app.note_queue(chosen)

    async def add() -> Job[Any]:
        return await app.tampu.queue(chosen).add(name, dict(arguments[1]), **options)

    return AsyncResult(app.tampu.portal().call(add).id, app=app, queue=chosen)


def job_options(
    app: Celery, given: SendOptions, task: Task | None
) -> tuple[str | None, JobOptions]:
    """The queue, if it is another one, and the options of tampu."""
    others = given.others
    options: JobOptions = {}
    if given.task_id is not None:
        options["job_id"] = given.task_id
    wait_s = _wait_s(app, others)
    if wait_s:
        options["delay"] = wait_s
    if others.get("expires") is not None:
        options["expires"] = _expires_s(app, others["expires"]) - wait_s
    priority = others.get("priority", app.conf.task_default_priority)
    if priority is not None and level_of(priority) is not None:
        options["priority"] = level_of(priority)
    if others.get("time_limit") is not None:
        options["timeout"] = _checked_limit(task, others["time_limit"])
    headers = {**(others.get("headers") or {}), **_link_headers(given)}
    if headers:
        options["headers"] = headers
    return _noted_queue(app, others.get("queue")), options


def _noted_queue(app: Celery, given: object) -> str | None:
    if given is None:
        return None
    app.note_queue(queue_name(given))
    return queue_name(given)


def _checked_limit(task: Task | None, limit_s: float) -> float:
    if task is None or task.tampu.handler.isolation is None:
        advice = "declare the task with a time_limit, so that it runs in a process of its own"
        raise NotSupported("the option time_limit of a job", advice)
    return limit_s


def schedule_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The `options` of an entry of `beat_schedule`."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name == "expires" and not isinstance(value, datetime):
            found[name] = value
        elif name == "priority":
            found[name] = level_of(value)
        elif name == "queue":
            found[name] = queue_name(value)
        elif name not in _HARMLESS:
            advice = "use app.tampu.schedule(...), which has options of its own"
            raise NotSupported(f"the option {name} in beat_schedule", advice)
    return found


def _wait_s(app: Celery, options: Mapping[str, Any]) -> float:
    eta, countdown = options.get("eta"), options.get("countdown")
    if eta is not None:
        return max(0.0, app.aware(eta).timestamp() - now_ms() / 1000)
    return 0.0 if countdown is None else max(0.0, float(countdown))


def _expires_s(app: Celery, given: object) -> float:
    if isinstance(given, datetime):
        return app.aware(given).timestamp() - now_ms() / 1000
    if isinstance(given, int | float):
        return float(given)
    raise OptionError("expires", given, "expected seconds or a datetime")


# --- what follows a task ------------------------------------------------------------------------


class Link(Struct, frozen=True):
    """A call that follows a task, as it travels in a header of its job."""

    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    immutable: bool
    queue: str | None = None


_decode_links: Final = msgspec_json.Decoder(list[Link]).decode


def _link_headers(given: SendOptions) -> dict[str, str]:
    headers = {_LINK: _links_of(given.link), _LINK_ERROR: _links_of(given.link_error)}
    return {name: msgspec_json.encode(links).decode() for name, links in headers.items() if links}


def _links_of(given: Any) -> list[Link]:
    return [_link_of(each) for each in signatures_of(given)]


def _link_of(signature: Signature) -> Link:
    others = dict(signature.options)
    queue = others.pop("queue", None)
    if others:
        advice = "send it from the task itself with apply_async"
        raise NotSupported(f"the options {', '.join(others)} of a linked task", advice)
    kwargs = dict(signature.kwargs)
    return Link(signature.task, list(signature.args), kwargs, signature.immutable, queue)


def signatures_of(given: Any) -> list[Signature]:
    """The signatures of `link` or `link_error`."""
    found = [] if given is None else given if isinstance(given, list | tuple) else [given]
    for each in found:
        if not isinstance(each, Signature):
            advice = "link single tasks; for more use chain, group and chord"
            raise NotSupported(f"linking a {type(each).__name__}", advice)
    return list(found)


def send_links(task: Task, job: Job[Any], ended: Ended, context: Context) -> None:
    """Send what was linked to a task that has ended in a worker."""
    links = _decode_links(job.headers.get(_LINK, "[]"))
    errbacks = _decode_links(job.headers.get(_LINK_ERROR, "[]"))
    _follow(task.app, links, errbacks, (ended, context))


def _follow(
    app: Celery, links: Iterable[Link], errbacks: Iterable[Link], run: tuple[Ended, Context]
) -> None:
    """Ids follow from that of the job, so that a run that is repeated sends nothing twice."""
    ended, context = run
    if ended.state == SUCCESS:
        for number, link in enumerate(links):
            args = link.args if link.immutable else [ended.value, *link.args]
            _send_link(app, link, args, f"{context.id}-link-{number}")
    if ended.state == FAILURE:
        for number, link in enumerate(errbacks):
            errback = app.task_named(link.task)
            if len(errback.positional) > 1:  # it takes the error itself, so it is called here
                trace_text = "" if ended.info is None else ended.info.traceback
                errback(context, ended.error, trace_text, *link.args, **link.kwargs)
            else:
                args = link.args if link.immutable else [context.id, *link.args]
                _send_link(app, link, args, f"{context.id}-link-error-{number}")


def _send_link(app: Celery, link: Link, args: list[Any], task_id: str) -> None:
    options = {} if link.queue is None else {"queue": link.queue}
    app.task_named(link.task).apply_async(args, link.kwargs, task_id=task_id, **options)


# --- at once ------------------------------------------------------------------------------------


def run_eagerly(
    task: Task, context: Context, *, throw: bool, links: tuple[Any, Any]
) -> EagerResult:
    """Run a task here until it needs no other run."""
    ended = trace(task, context)
    while ended.state == RETRY and isinstance(ended.error, Retry):
        context = replace(context, retries=context.retries + 1)
        ended = trace(task, context)
    if ended.state == FAILURE and ended.error is not None and throw:
        raise ended.error
    _follow(task.app, _links_of(links[0]), _links_of(links[1]), (ended, context))
    value = ended.value if ended.error is None else ended.error
    text = None if ended.info is None else ended.info.traceback
    return EagerResult(str(context.id), value, ended.state, traceback=text, name=task.name)
