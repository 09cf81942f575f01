"""Queues and priorities: the setting `task_routes`, and what `queue=` and `priority=` name."""

import re
from bisect import bisect
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from tampu.compat.celery.exceptions import NotSupported

_STEPS: Final = (0, 3, 6, 9)
_LEVELS: Final = (None, 3, 2, 0)
"""Celery on Redis has four levels, the first of which is the default and the most urgent one."""


def level_of(priority: int | None) -> int | None:
    """The level of tampu for a priority of Celery on Redis, where 0 is the most urgent one."""
    return None if priority is None else _LEVELS[max(0, bisect(_STEPS, priority) - 1)]


def queue_name(given: object) -> str:
    """The name of a queue, also of one of kombu's."""
    return str(getattr(given, "name", given))


def find_route(routes: Any, name: str) -> str | None:
    """The queue of a task, or None if no route matches its name."""
    for pattern, target in _pairs(routes):
        if _matches(pattern, name):
            return _queue_of(target)
    return None


def check_routes(routes: Any) -> None:
    """Refuse routes that name more than a queue."""
    for _, target in _pairs(routes):
        _queue_of(target)


def _pairs(routes: Any) -> list[tuple[Any, Any]]:
    if not routes:
        return []
    if isinstance(routes, Mapping):
        return list(routes.items())
    if callable(routes) or isinstance(routes, str):
        advice = "set queue= where the task is declared, or in apply_async"
        raise NotSupported("a function as a route", advice)
    if isinstance(routes, tuple) and len(routes) == 2 and isinstance(routes[0], str | re.Pattern):
        return [(routes[0], routes[1])]
    return [pair for each in routes for pair in _pairs(each)]


def _matches(pattern: str | re.Pattern[str], name: str) -> bool:
    if isinstance(pattern, re.Pattern):
        return pattern.match(name) is not None
    return fnmatchcase(name, pattern)


def _queue_of(target: str | Mapping[str, object]) -> str | None:
    if isinstance(target, str):
        return target
    for key in target:
        if key != "queue":
            advice = "a route names a queue; set other options where the task is declared"
            raise NotSupported(f"{key!r} in task_routes", advice)
    queue = target.get("queue")
    return None if queue is None else queue_name(queue)
