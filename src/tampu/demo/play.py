"""A run of the shop: places orders, follows each to its end, and counts what happens."""

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from time import perf_counter
from typing import Any, Final

from msgspec import Struct

from tampu.admin.dead import DeadLetter
from tampu.app_worker import AppWorker
from tampu.demo import shop
from tampu.demo.shop import EMAILS, INVOICES, ORDERS, order_of, report_backlog, take_order
from tampu.errors import JobFailed
from tampu.metrics.facts import Fact, Firings, JobBuried, JobEnded, OutcomeKind, RetryScheduled

_PACE_S: Final = 0.25  # between orders
_SLOTS: Final = {ORDERS: 10, EMAILS: 5, INVOICES: 4}
_WAVE_S: Final = 90.0  # between two rush hours, if the shop stays open
_PATIENCE_S: Final = 3600.0  # somebody may pause a queue, a task or a key


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


class Opening(Struct, frozen=True):
    """How long the shop is open: for so many orders, for a time, or until it is stopped."""

    orders: int | None = None
    for_s: float | None = None

    @property
    def ends(self) -> bool:
        """Whether it ends by itself."""
        return self.orders is not None or self.for_s is not None

    def numbers(self, began: float) -> Iterator[int]:
        """The numbers of its orders."""
        for number in count(1) if self.orders is None else range(1, self.orders + 1):
            if self.for_s is not None and perf_counter() - began >= self.for_s:
                return
            yield number

    def pause_s(self, elapsed_s: float) -> float:
        """The time to the next order. A shop that stays open has quiet and busy times."""
        if self.ends:
            return _PACE_S
        return _PACE_S / (1 + 0.6 * math.sin(2 * math.pi * elapsed_s / _WAVE_S))


async def play(opening: Opening, counts: ShopCounts, stop: asyncio.Event) -> DemoReport:
    """Place orders, wait until everything has ended, and report how it went.

    When `stop` is set, it ends at once. Removes the schedule at the end, but leaves the dead
    letters for the user to look at.
    """
    began = perf_counter()
    async with shop.app, AppWorker(shop.app, _SLOTS, metrics=counts):
        followed = await _follow_all(opening, counts, stop)
        await shop.app.queue(ORDERS).schedules.remove(report_backlog.name)
        dead = [*await shop.app.queue(EMAILS).dead.peek()]
        dead += await shop.app.queue(INVOICES).dead.peek()
    return DemoReport(perf_counter() - began, followed, dead)


async def _follow_all(
    opening: Opening, counts: ShopCounts, stop: asyncio.Event
) -> list[FollowedOrder]:
    customers: set[asyncio.Task[None]] = set()
    followed: list[FollowedOrder] = []
    stopping = asyncio.create_task(stop.wait(), name="tampu-demo-stop")
    began = perf_counter()
    try:
        for number in opening.numbers(began):
            follow = _follow(number, counts, followed)
            customer = asyncio.create_task(follow, name=f"tampu-demo-order-{number}")
            customers.add(customer)
            pause_s = opening.pause_s(perf_counter() - began)
            await asyncio.wait({stopping}, timeout=pause_s)
            if stop.is_set():
                return followed
            customers = _still_waiting(customers)
        ending = asyncio.gather(*customers)
        either: set[asyncio.Future[Any]] = {stopping, ending}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            await ending
        return followed
    finally:
        for each in (stopping, *customers):
            each.cancel()


def _still_waiting(customers: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """Those whose jobs have not all ended; raises what one of the others has raised."""
    for each in customers:
        if each.done():
            each.result()
    return {each for each in customers if not each.done()}


async def _follow(number: int, counts: ShopCounts, followed: list[FollowedOrder]) -> None:
    """Place one order and wait for its e-mails, its invoice and its delivery."""
    began = perf_counter()
    job = await take_order.enqueue(order_of(number))
    counts.placed += 1
    following = await job.result(_PATIENCE_S)
    emails, confirmed_after_s, late_ms = shop.app.queue(EMAILS), None, None
    try:
        await emails.job(following.confirmation).result(_PATIENCE_S)
        confirmed_after_s = perf_counter() - began
    except JobFailed:
        pass  # the report lists it as a dead letter
    if following.reminder is not None:
        late_ms = float(str(await emails.job(following.reminder).result(_PATIENCE_S)))
        counts.news.append(f"remind ran after its delay, {late_ms:.1f} ms late")
    with suppress(JobFailed):
        await shop.app.queue(INVOICES).job(following.invoice).result(_PATIENCE_S)
    with suppress(JobFailed):
        await shop.app.flow_run(following.flow).result(_PATIENCE_S)
    followed.append(FollowedOrder(confirmed_after_s, late_ms))
