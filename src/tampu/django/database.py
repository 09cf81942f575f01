"""Database connections of jobs: checked before each job, closed after it where Django says so.

A connection of Django belongs to a thread. All plain code of a job runs in one thread of the
worker: its function, and what async code passes to `sync_to_async`, as Django's models do. So there
are at most as many connections as jobs at a time.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager, contextmanager
from copy import deepcopy
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakSet

from asgiref.sync import ThreadSensitiveContext
from django.db import close_old_connections, connections, reset_queries

from tampu.job import Job
from tampu.tasks.attempt_thread import AttemptThread, attempt_thread

P = ParamSpec("P")
R = TypeVar("R")
logger = logging.getLogger(__name__)
_opened: Final[WeakSet[Any]] = WeakSet()  # the connections of threads that have run jobs


@asynccontextmanager
async def clean_connections(job: Job[Any]) -> AsyncIterator[None]:
    """Middleware for an `App` whose tasks use Django's database.

    Before a job: a connection that has died, or is too old, is replaced. After it: connections are
    closed unless `CONN_MAX_AGE` keeps them. A job that uses no thread costs nothing of that.
    """
    del job
    thread = attempt_thread()
    if thread is None:  # a child process, which has its connections for itself
        yield
        return
    thread.around = clean_thread
    async with ThreadSensitiveContext(executor=_JobExecutor(thread)):
        yield


@contextmanager
def clean_thread() -> Iterator[None]:
    """What `clean_connections` does, in the thread of the job. Never raises."""
    _attempt("before", _prepare)
    try:
        yield
    finally:
        _attempt("after", _tidy)


def close_connections() -> None:
    """Close what is left when a worker has stopped: its threads take no more jobs."""
    for each in list(_opened):
        each.inc_thread_sharing()  # the thread that it belongs to does nothing any more
        _attempt("at the end", each.close)
    _opened.clear()


def connect_anew(alias: str) -> Any:  # noqa: ANN401 - of the database's driver
    """A new connection to a database of `DATABASES`, as its driver has it, for who asks."""
    given = deepcopy(connections.settings[alias])
    given.get("OPTIONS", {}).pop("pool", None)  # it is kept, and would be missing there
    wrapper = type(connections[alias])(given, alias)
    return wrapper.get_new_connection(wrapper.get_connection_params())


def _prepare() -> None:
    reset_queries()
    close_old_connections()
    for each in connections.all(initialized_only=True):
        # The first query of the job finds out whether the connection is alive. Django does so for
        # each request, but only if CONN_HEALTH_CHECKS is set, and a job is not sent again.
        each.health_check_enabled, each.health_check_done = True, False


def _tidy() -> None:
    _opened.update(connections.all(initialized_only=True))
    reset_queries()
    close_old_connections()


def _attempt(when: str, act: Callable[[], object]) -> None:
    try:
        act()
    except Exception:
        logger.warning(
            "cannot clean database connections %s a job", when, exc_info=True, extra={"when": when}
        )


class _JobExecutor(Executor):
    """Runs what async code passes to `sync_to_async` in the thread of its job."""

    def __init__(self, thread: AttemptThread) -> None:
        self._thread = thread

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Begin a call in the thread."""
        future: Future[R] = Future()
        self._thread.begin(partial(_run_into, future, partial(fn, *args, **kwargs)))
        return future


def _run_into(future: Future[R], call: Callable[[], R]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
        future.set_exception(error)
