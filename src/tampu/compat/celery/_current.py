"""The current app: the one of shared tasks, and of results and signatures that name none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tampu.compat.celery.exceptions import NotSupported

if TYPE_CHECKING:
    from tampu.compat.celery.app import Celery

_current: list[Celery] = []


def set_current(app: Celery) -> None:
    """Make an app the current one."""
    _current[:] = [app]


def current() -> Celery | None:
    """The current app, if there is one."""
    return _current[0] if _current else None


def app_or_current(app: Celery | None) -> Celery:
    """The app itself, else the current one."""
    found = app or current()
    if found is None:
        advice = "create one first: app = Celery(...)"
        raise NotSupported("a task, signature or result without an app", advice)
    return found
