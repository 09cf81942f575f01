"""Results: of a job by its id, of several jobs, and of a task that ran at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NoReturn

from tampu.compat.celery import _running
from tampu.compat.celery._absent import refuse, refuse_imports
from tampu.compat.celery._current import app_or_current
from tampu.compat.celery._eager import EagerResult
from tampu.compat.celery.exceptions import (
    NotSupported,
    TaskRevokedError,
    TimeoutError,
    error_of,
)
from tampu.compat.celery.states import READY_STATES
from tampu.errors import JobCancelled, JobFailed, ResultTimeout
from tampu.job import CancelState, JobInfo, JobState

if TYPE_CHECKING:
    from tampu.compat.celery.app import Celery
    from tampu.flows.run import SyncFlowRun

__all__ = ["AsyncResult", "EagerResult", "GroupResult", "allow_join_result"]

__getattr__ = refuse_imports("celery.result")

_ONE_WAIT_S: Final = 60.0
"""Waits without a limit are repeated waits of this length."""
_STATES: Final = {
    JobState.DONE: "SUCCESS",
    JobState.DEAD: "FAILURE",
    JobState.CANCELLED: "REVOKED",
    JobState.RETRYING: "RETRY",
}
_may_wait: ContextVar[bool] = ContextVar("tampu_celery_may_wait", default=False)


@contextmanager
def allow_join_result() -> Iterator[None]:
    """Inside the block, a task may wait for results; it keeps its slot while it waits."""
    token = _may_wait.set(True)
    try:
        yield
    finally:
        _may_wait.reset(token)


class _Result:
    """What all results have."""

    id: str

    def __getattr__(self, name: str) -> NoReturn:
        refuse(type(self).__name__, name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.id}>"


class AsyncResult(_Result):
    """The result of a job, by its id.

    The queue of the job is found by asking the queues that the app knows.
    """

    parent: None = None

    def __init__(
        self,
        id: str,
        backend: None = None,
        *,
        app: Celery | None = None,
        queue: str | None = None,
        ignored: bool = False,
        run: SyncFlowRun[Any] | None = None,
    ) -> None:
        del backend
        self.id, self.app, self.ignored = id, app_or_current(app), ignored
        self._queue = queue  # None: not known yet
        self._run = run  # of a chain or chord

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncResult) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __str__(self) -> str:
        return self.id

    @property
    def task_id(self) -> str:
        """The id."""
        return self.id

    # --- looking --------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, FAILURE, SUCCESS or REVOKED; also PENDING if it is unknown."""
        return self._state_of(self._info())

    @property
    def status(self) -> str:
        """The state."""
        return self.state

    @property
    def result(self) -> Any:
        """The value, or the error if it has failed; None before the end."""
        if not self.ready():
            return None
        try:
            return self.get(timeout=0.1, propagate=False)
        except TimeoutError:  # it is not kept, or no longer
            return None

    @property
    def info(self) -> Any:
        """The same."""
        return self.result

    @property
    def traceback(self) -> str | None:
        """The traceback of the last error, as text."""
        info = self._info()
        return None if info is None or info.failure is None else info.failure.traceback

    @property
    def retries(self) -> int | None:
        """How many retries there were; None if that is not known any more."""
        info = self._info()
        return None if info is None else len(info.failed_at)

    @property
    def name(self) -> str | None:
        """The name of the task, as long as the job is there."""
        info = self._info()
        return None if info is None else info.name

    def ready(self) -> bool:
        """Whether it has ended."""
        return self.state in READY_STATES

    def successful(self) -> bool:
        """Whether it has ended without an error; `ValueError` before its end, as in Celery."""
        state = self.state
        if state not in READY_STATES:
            raise ValueError("Cannot check if the task was successful before it is ready")
        return state == "SUCCESS"

    def failed(self) -> bool:
        """Whether it has failed."""
        return self.state == "FAILURE"

    def _state_of(self, info: JobInfo | None) -> str:
        if info is None:
            return "PENDING"
        if info.state is JobState.DEAD and info.reason == "expired":
            return "REVOKED"
        if info.state is JobState.ACTIVE and self.app.tracks_start(info.name):
            return "STARTED"
        return _STATES.get(info.state, "PENDING")

    def _info(self) -> JobInfo | None:
        """What is known about the job; None if no queue of the app knows it."""
        portal, app = self.app.tampu.portal(), self.app.tampu
        names = self.app.known_queues() if self._queue is None else [self._queue]

        async def look() -> tuple[str, JobInfo] | None:
            for name in names:
                info = await app.queue(name).job(self.id).info()
                if info.state is not JobState.UNKNOWN:
                    return name, info
            return None

        found = portal.call(look)
        if found is None:
            return None
        self._queue = found[0]
        return found[1]

    # --- waiting --------------------------------------------------------------------------------

    def get(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        interval: float = 0.5,
        no_ack: bool = True,
        follow_parents: bool = True,
        callback: object = None,
        on_message: object = None,
        on_interval: object = None,
        disable_sync_subtasks: bool = True,
    ) -> Any:
        """Wait for the value, without a limit if there is no `timeout`.

        Raises what the task raised, if this program has imported the class of the error, else
        `JobFailed`; with `propagate=False` returns it. `TimeoutError` after `timeout`.
        """
        if (callback, on_message, on_interval) != (None, None, None):
            advice = "wait with a timeout in a loop, or read events with tampu.QueueEvents"
            raise NotSupported("get with a callback, on_message or on_interval", advice)
        if self.ignored:
            return None
        check_may_wait(disable_sync_subtasks=disable_sync_subtasks)
        try:
            return self._wait(timeout, interval)
        except JobFailed as failed:
            error = error_of(failed)
            if propagate:
                raise error from (None if error is failed else failed)
            return error
        except JobCancelled as cancelled:
            if propagate:
                raise TaskRevokedError("revoked") from cancelled
            return TaskRevokedError("revoked")

    wait = get

    def _wait(self, timeout: float | None, interval: float) -> Any:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _left_s(deadline)
            try:
                if self._run is not None:
                    return self._run.result(min(left, _ONE_WAIT_S))
                if self._queue is None and self._info() is None:
                    _pause(min(interval, left))  # nobody knows yet where it will be
                else:
                    return self._wait_on_queue(min(left, _ONE_WAIT_S))
            except ResultTimeout:
                pass
            if _left_s(deadline) <= 0:
                raise TimeoutError("The operation timed out.")

    def _wait_on_queue(self, limit_s: float) -> Any:
        app, queue = self.app.tampu, self._queue

        async def wait() -> object:
            return await app.queue(queue).job(self.id).result(limit_s)

        return app.portal().wait(wait)

    # --- acting ---------------------------------------------------------------------------------

    def revoke(
        self,
        connection: None = None,
        terminate: bool = False,
        signal: str | None = None,
        wait: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Do not run the job; with `terminate`, stop it also if it runs.

        A plain function in a thread cannot be stopped; one in a process of its own is killed.
        """
        if (connection, signal, wait, timeout) != (None, None, False, None):
            advice = "give `terminate` alone; a process is killed, and nothing has to be waited for"
            raise NotSupported("revoke with connection, signal, wait or timeout", advice)
        if self._run is not None:
            self._run.cancel()
            return
        info = self._info()
        if info is not None and (terminate or info.state is not JobState.ACTIVE):
            self._cancel()

    def _cancel(self) -> CancelState:
        app, queue = self.app.tampu, self._queue

        async def cancel() -> CancelState:
            return await app.queue(queue).job(self.id).cancel()

        return app.portal().call(cancel)

    def forget(self) -> None:
        """Delete the result, which would expire by itself; a dead letter stays."""
        if self._queue is not None or self._info() is not None:
            app, queue = self.app.tampu, self._queue

            async def forget() -> None:
                await app.queue(queue).forget_result(self.id)

            app.portal().call(forget)


class GroupResult(_Result):
    """The results of a group, in its order."""

    def __init__(self, id: str, results: Sequence[Any]) -> None:
        self.id, self.results = id, list(results)

    def __len__(self) -> int:
        return len(self.results)

    @property
    def children(self) -> list[Any]:
        """The results."""
        return self.results

    def __iter__(self) -> Iterator[Any]:
        return iter(self.results)

    def __getitem__(self, index: int) -> Any:
        return self.results[index]

    def ready(self) -> bool:
        """Whether all have ended."""
        return all(each.ready() for each in self.results)

    def successful(self) -> bool:
        """Whether all have ended without an error."""
        return all(each.ready() and each.successful() for each in self.results)

    def failed(self) -> bool:
        """Whether one of them has failed."""
        return any(each.failed() for each in self.results)

    def waiting(self) -> bool:
        """Whether one of them has not ended."""
        return not self.ready()

    def completed_count(self) -> int:
        """How many have ended without an error."""
        return sum(each.ready() and each.successful() for each in self.results)

    def get(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        interval: float = 0.5,
        callback: Callable[[str, Any], object] | None = None,
        disable_sync_subtasks: bool = True,
    ) -> list[Any]:
        """The values of all, within one time limit for all of them."""
        deadline = None if timeout is None else time.monotonic() + timeout
        values = []
        for each in self.results:
            left = None if deadline is None else max(0.001, _left_s(deadline))
            value = each.get(
                timeout=left,
                propagate=propagate,
                interval=interval,
                disable_sync_subtasks=disable_sync_subtasks,
            )
            if callback is not None:
                callback(each.id, value)
            values.append(value)
        return values

    join = join_native = get

    def forget(self) -> None:
        """Delete the result of each of them."""
        for each in self.results:
            each.forget()

    def revoke(self, terminate: bool = False) -> None:
        """Revoke each of them."""
        for each in self.results:
            each.revoke(terminate=terminate)


def check_may_wait(*, disable_sync_subtasks: bool) -> None:
    """Refuse to wait inside of a task, as Celery does."""
    if disable_sync_subtasks and _running.runs_in_worker() and not _may_wait.get():
        raise RuntimeError(
            "Never call result.get() within a task: the slot that waits may be the one that the "
            "other task needs. Use a chain or a chord."
        )


def known_first(*groups: Iterable[str]) -> list[str]:
    """All names, each once, in order."""
    return list(dict.fromkeys(name for names in groups for name in names))


def _left_s(deadline: float | None) -> float:
    return _ONE_WAIT_S if deadline is None else deadline - time.monotonic()


def _pause(seconds: float) -> None:
    if seconds > 0:
        time.sleep(seconds)
