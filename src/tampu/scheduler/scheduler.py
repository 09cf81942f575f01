"""Runs functions by rules of time, in this process."""

from typing import Any, Self, Unpack

from tampu.errors import WrongContext
from tampu.scheduler.handle import TaskHandle
from tampu.scheduler.report import Report
from tampu.scheduler.session import Session
from tampu.scheduler.settings import SchedulerOptions, SchedulerSettings
from tampu.scheduler.task import ScheduledTask
from tampu.settings import settings_from


class Scheduler:
    """Runs one task with `run`, or many with `add` and `serve` inside of `async with`.

    It may be opened again after it was closed, and by several who share it. Options are those of
    `SchedulerSettings`.
    """

    def __init__(self, **options: Unpack[SchedulerOptions]) -> None:
        self._settings = settings_from(SchedulerSettings, "Scheduler", options)
        self._session: Session | None = None
        self._users = 0

    async def __aenter__(self) -> Self:
        self._users += 1
        try:
            if self._session is None:
                self._session = Session(self._settings)
            await self._session.open()
        except BaseException:
            self._users -= 1
            if not self._users:
                self._session = None
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        self._users -= 1
        if self._users or self._session is None:
            return
        session, self._session = self._session, None
        await session.close(cancel_runs=kind is not None)

    def add(self, task: ScheduledTask[Any]) -> TaskHandle:
        """Have a task run by its rule from now on; its state is looked up first.

        `OptionError` names what this scheduler cannot do, or an id that it has already.
        """
        return self._here("add").add(task)

    def handle(self, task_id: str) -> TaskHandle:
        """The handle of a task that was added; `KeyError` if there is none of this id."""
        return self._here("handle").handle(task_id)

    def handles(self) -> list[TaskHandle]:
        """Of all tasks that were added and have not ended, in that order."""
        return self._here("handles").handles()

    async def run(self, task: ScheduledTask[Any]) -> Report:
        """Run one task until its schedule ends or it is stopped; raises what makes it fail."""
        async with self:
            handle = self.add(task)
            try:
                return await handle.wait()
            finally:
                handle.cancel()

    async def serve(self) -> dict[str, Report]:
        """Until every task has ended or was stopped; a report for each, by its id.

        Of tasks that had ended before, or that came and went meanwhile, it is the last 1000.
        Raises what makes the scheduler fail: a store that refuses.
        """
        return await self._here("serve").serve()

    def cancel(self) -> None:
        """Stop all tasks as by their handles' `cancel`."""
        for handle in self.handles():
            handle.cancel()

    def shutdown(self) -> None:
        """Stop all tasks as by their handles' `shutdown`."""
        for handle in self.handles():
            handle.shutdown()

    def _here(self, what: str) -> Session:
        if self._session is None:
            raise WrongContext(what, "it works only inside `async with scheduler`")
        return self._session
