"""Plays the shop: orders come in, and what comes of them is followed to its end."""

import asyncio
from collections.abc import Sequence
from time import perf_counter
from typing import Final

from msgspec import Struct

from tampu.admin.dead import DeadLetter
from tampu.app_worker import AppWorker
from tampu.demo.shop import EMAILS, ORDERS, app, order_of, report_backlog, take_order
from tampu.demo.tally import Tally
from tampu.errors import JobFailed

_PACE_S: Final = 0.25  # from order to order
_SLOTS: Final = {ORDERS: 10, EMAILS: 5}


class Followed(Struct, frozen=True):
    """One order: when its confirmation was sent, and how late its reminder was, if they were."""

    confirmed_after_s: float | None
    reminder_late_ms: float | None


class Ending(Struct, frozen=True):
    """How it went."""

    took_s: float
    followed: Sequence[Followed]
    dead: Sequence[DeadLetter]

    @property
    def confirmed_after_s(self) -> list[float]:
        """From order to confirmation, the shortest first."""
        return sorted(e.confirmed_after_s for e in self.followed if e.confirmed_after_s is not None)

    @property
    def reminders_late_ms(self) -> list[float]:
        """How late reminders were, the least first."""
        return sorted(e.reminder_late_ms for e in self.followed if e.reminder_late_ms is not None)


async def play(orders: int, tally: Tally) -> Ending:
    """Place orders, wait until everything has ended, and tell how it went.

    The schedule is removed at the end; dead letters stay, to be looked at.
    """
    began = perf_counter()
    async with app, AppWorker(app, _SLOTS, store_results=True, metrics=tally):
        followed = await _all_followed(orders, tally)
        await app.queue(ORDERS).unschedule(report_backlog.name)
        dead = await app.queue(EMAILS).dead.peek()
    return Ending(perf_counter() - began, followed, dead)


async def _all_followed(orders: int, tally: Tally) -> list[Followed]:
    customers: list[asyncio.Task[Followed]] = []
    try:
        for number in range(1, orders + 1):
            customers.append(asyncio.create_task(_follow(number, tally)))
            await asyncio.sleep(_PACE_S)
        return await asyncio.gather(*customers)
    finally:
        for each in customers:
            each.cancel()


async def _follow(number: int, tally: Tally) -> Followed:
    began = perf_counter()
    job = await take_order.enqueue(order_of(number))
    tally.placed += 1
    taken = await job.result()
    emails, confirmed_after_s, late_ms = app.queue(EMAILS), None, None
    try:
        await emails.result(taken.confirmation)
        confirmed_after_s = perf_counter() - began
    except JobFailed:
        pass  # it is a dead letter, and told of as such
    if taken.reminder is not None:
        late_ms = float(str(await emails.result(taken.reminder)))
        tally.news.append(f"remind ran after its delay, {late_ms:.1f} ms late")
    return Followed(confirmed_after_s, late_ms)
