"""Plays the shop: places orders, follows each to its end, and counts what happens."""

import asyncio
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Final

from msgspec import Struct

from tampu.admin.dead import DeadLetter
from tampu.app_worker import AppWorker
from tampu.demo.shop import EMAILS, ORDERS, app, order_of, report_backlog, take_order
from tampu.errors import JobFailed
from tampu.metrics.facts import Fact, Firings, JobBuried, JobEnded, OutcomeKind, RetryScheduled

_PACE_S: Final = 0.25  # between orders
_SLOTS: Final = {ORDERS: 10, EMAILS: 5}


# --- what is counted ----------------------------------------------------------------------------


class TaskCounts(Struct):
    """The attempts of one task: `done` and `dead` ended a job, `retried` did not."""

    done: int = 0
    retried: int = 0
    dead: int = 0

    @property
    def runs(self) -> int:
        """How often the function was called."""
        return self.done + self.retried + self.dead


class ShopCounts:
    """A metrics sink that counts by task. `news` has a sentence for each notable event."""

    def __init__(self, tasks: Sequence[str]) -> None:
        self._tasks = {name: TaskCounts() for name in tasks}
        self.news: list[str] = []
        self.placed = 0  # orders

    @property
    def tasks(self) -> Mapping[str, TaskCounts]:
        """The counts of each task."""
        return self._tasks

    def record(self, facts: Sequence[Fact]) -> None:
        """Count what workers report."""
        for fact in facts:
            match fact:
                case JobEnded(name=name, outcome=OutcomeKind.DONE):
                    self._tasks[name].done += 1
                case RetryScheduled(name=name, attempt=attempt, backoff_ms=wait_ms):
                    self._tasks[name].retried += 1
                    self.news.append(f"{name} failed; attempt {attempt} follows in {wait_ms} ms")
                case JobBuried(name=name, reason=reason, attempt=attempt):
                    self._tasks[name].dead += 1
                    self.news.append(f"{name} was buried after attempt {attempt}: {reason.value}")
                case Firings(fired=fired) if fired:
                    self.news.append("a schedule fired")
                case _:
                    pass


# --- what happens -------------------------------------------------------------------------------


class FollowedOrder(Struct, frozen=True):
    """One order: when its confirmation was sent and how late its reminder was; None if not."""

    confirmed_after_s: float | None
    reminder_late_ms: float | None


class DemoReport(Struct, frozen=True):
    """How the demo went."""

    took_s: float
    followed: Sequence[FollowedOrder]
    dead: Sequence[DeadLetter]

    @property
    def confirmed_after_s(self) -> list[float]:
        """From order to confirmation, the shortest first."""
        return sorted(e.confirmed_after_s for e in self.followed if e.confirmed_after_s is not None)

    @property
    def reminders_late_ms(self) -> list[float]:
        """How late the reminders were, the least first."""
        return sorted(e.reminder_late_ms for e in self.followed if e.reminder_late_ms is not None)


async def play(orders: int, counts: ShopCounts) -> DemoReport:
    """Place orders, wait until everything has ended, and report how it went.

    Removes the schedule at the end, but leaves the dead letters for the user to look at.
    """
    began = perf_counter()
    async with app, AppWorker(app, _SLOTS, store_results=True, metrics=counts):
        followed = await _follow_all(orders, counts)
        await app.queue(ORDERS).unschedule(report_backlog.name)
        dead = await app.queue(EMAILS).dead.peek()
    return DemoReport(perf_counter() - began, followed, dead)


async def _follow_all(orders: int, counts: ShopCounts) -> list[FollowedOrder]:
    customers: list[asyncio.Task[FollowedOrder]] = []
    try:
        for number in range(1, orders + 1):
            follow = _follow(number, counts)
            customers.append(asyncio.create_task(follow, name=f"tampu-demo-order-{number}"))
            await asyncio.sleep(_PACE_S)
        return await asyncio.gather(*customers)
    finally:
        for each in customers:
            each.cancel()


async def _follow(number: int, counts: ShopCounts) -> FollowedOrder:
    """Place one order and wait for its e-mails."""
    began = perf_counter()
    job = await take_order.enqueue(order_of(number))
    counts.placed += 1
    sent = await job.result()
    emails, confirmed_after_s, late_ms = app.queue(EMAILS), None, None
    try:
        await emails.result(sent.confirmation)
        confirmed_after_s = perf_counter() - began
    except JobFailed:
        pass  # the report lists it as a dead letter
    if sent.reminder is not None:
        late_ms = float(str(await emails.result(sent.reminder)))
        counts.news.append(f"remind ran after its delay, {late_ms:.1f} ms late")
    return FollowedOrder(confirmed_after_s, late_ms)
