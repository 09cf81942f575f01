"""The options of a task, as `@app.task` takes them."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tampu.compat.celery.exceptions import NotSupported
from tampu.compat.celery.task import Task
from tampu.util.options import hint_of

_OPTIONS: Final = frozenset(
    (
        *("name", "bind", "base", "queue", "max_retries", "default_retry_delay", "autoretry_for"),
        *("dont_autoretry_for", "retry_kwargs", "retry_backoff", "retry_backoff_max"),
        *("retry_jitter", "time_limit", "soft_time_limit", "rate_limit", "ignore_result"),
        *("expires", "priority", "track_started", "throws", "serializer"),
    )
)
_HARMLESS: Final = frozenset(("shared", "lazy", "trail", "send_events", "typing", "description"))
_MUST_BE_TRUE: Final = {
    "acks_late": "a job is always acknowledged after it has run; for one that must not run twice, "
    "declare a task of tampu with @app.tampu.task(attempts=1)",
    "reject_on_worker_lost": "a job whose worker dies always runs again; for one that must not, "
    "declare a task of tampu with @app.tampu.task(attempts=1)",
    "acks_on_failure": "a job that fails for good becomes a dead letter",
    "acks_on_timeout": "a job that fails for good becomes a dead letter",
    "acks_on_failure_or_timeout": "a job that fails for good becomes a dead letter",
    "store_errors_even_if_ignored": "errors are always kept with the dead letter",
}
_REFUSED: Final = {
    "pydantic": "leave it out: models in annotations are converted",
    "exchange": "give queue=",
    "routing_key": "give queue=",
    "resultrepr_maxsize": "leave it out: results are not logged",
}
_KNOWN: Final = _OPTIONS | _HARMLESS | _MUST_BE_TRUE.keys()


def new_task(function: Callable[..., Any], options: Mapping[str, Any]) -> Task:
    """A task of a function that belongs to no app yet."""
    base = options.get("base") or Task
    made: Task = base()
    made.set_function(function, bind=bool(options.get("bind", False)))
    set_options(made, options)
    return made


def set_options(task: Task, options: Mapping[str, Any]) -> None:
    """Set the options of a task; refuse those that do not exist here, also on its class."""
    for name, value in options.items():
        if name in {"bind", "base"}:
            continue
        if name not in _KNOWN and not hasattr(type(task), name):  # a class may have options too
            hint = "" if name in _REFUSED else hint_of(name, _KNOWN)
            advice = _REFUSED.get(name, "see the page Moving from Celery for what it has")
            raise NotSupported(f"the option {name} of a task{hint}", advice)
        if name not in _HARMLESS:
            setattr(task, name, value)
    for name, advice in _MUST_BE_TRUE.items():
        if getattr(task, name) is False:
            raise NotSupported(f"the option {name}=False of a task", advice)
    if task.serializer not in {"json", "msgpack"}:
        advice = "arguments are MessagePack, which carries what JSON does"
        raise NotSupported(f"the option serializer={task.serializer!r} of a task", advice)
