"""`tampu demo`: runs a small shop, follows each order to its end, and shows what happens."""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from statistics import median
from time import perf_counter
from typing import Annotated, Final, Protocol

import typer
from msgspec import Struct
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tampu.admin.dead import DeadLetter
from tampu.admin.queues import remove_queue
from tampu.admin.workers import WorkerState, workers_of
from tampu.app_worker import AppWorker
from tampu.cli.command import command
from tampu.cli.dead import error_of, reason_of
from tampu.cli.options import SharedOptions, new_app
from tampu.cli.output import CommandFailed
from tampu.cli.screen import JsonObject, Screen, count_of, details, format_span, grid
from tampu.demo import shop
from tampu.demo.shop import EMAILS, ORDERS, order_of, report_backlog, take_order
from tampu.errors import JobFailed
from tampu.metrics.facts import Fact, Firings, JobBuried, JobEnded, OutcomeKind, RetryScheduled
from tampu.server.connect import Server, connect
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys

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
    async with shop.app, AppWorker(shop.app, _SLOTS, metrics=counts):
        followed = await _follow_all(orders, counts)
        await shop.app.queue(ORDERS).schedules.remove(report_backlog.name)
        dead = await shop.app.queue(EMAILS).dead.peek()
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
    emails, confirmed_after_s, late_ms = shop.app.queue(EMAILS), None, None
    try:
        await emails.job(sent.confirmation).result()
        confirmed_after_s = perf_counter() - began
    except JobFailed:
        pass  # the report lists it as a dead letter
    if sent.reminder is not None:
        late_ms = float(str(await emails.job(sent.reminder).result()))
        counts.news.append(f"remind ran after its delay, {late_ms:.1f} ms late")
    return FollowedOrder(confirmed_after_s, late_ms)


_UPDATE_EVERY_S: Final = 0.1
_GROUP: Final = b"default"
_NEWS: Final = 6
_BAR_WIDTH: Final = 30
app = new_app()
Orders = Annotated[
    int, typer.Option("--orders", metavar="N", min=1, max=1000, help="How many orders to place.")
]


@command(app, "demo")
async def run_demo(shared: SharedOptions, *, orders: Orders = 24) -> None:
    """Run a small shop for about ten seconds.

    Uses queues named tampu-demo-... and first removes what an earlier demo left there.
    """
    # The shop is written like any other program; only its server is set from outside.
    shop.app.url = shared.url
    # Dead letters are a part of the demo, and shown: they need no warnings.
    logging.getLogger("tampu.consumer").setLevel(logging.ERROR)
    screen, counts = Screen(shared), ShopCounts(list(shop.app.tasks))
    async with await connect(shared.url) as server:
        for name in (ORDERS, EMAILS):
            await _clear(server, QueueKeys(name))
        if screen.as_json:
            report = await play(orders, counts)
        else:
            screen.console.print(f"A small shop on {server.dialect} at {server.name}.")
            where = "in this directory" if shared.url is None else "with the same --url"
            screen.console.print(
                f"To watch its queues from another terminal, {where}: tampu watch\n"
            )
            report = await _play_visibly(screen, counts, orders)
    screen.show(demo_json(server.name, report, counts), lambda: demo_page(report, counts))


async def _clear(server: Server, keys: QueueKeys) -> None:
    """Remove what an earlier demo left, unless it still runs."""
    async with await Lane.open(server, keys.stream) as lane:
        workers = await workers_of(lane, keys, _GROUP)
    if any(each.state is WorkerState.ALIVE for each in workers):
        raise CommandFailed(
            f"Another demo runs on {server.name}, or was killed within the last half minute. "
            "Try again when it has ended."
        )
    await remove_queue(server, keys)


async def _play_visibly(screen: Screen, counts: ShopCounts, orders: int) -> DemoReport:
    if not screen.console.is_terminal:
        report = await _play_with(DemoLines(screen, counts), counts, orders)
        screen.console.print()
        return report
    with Live(console=screen.console, auto_refresh=False, transient=True) as live:
        return await _play_with(DemoPage(live, counts, orders), counts, orders)


async def _play_with(view: "DemoView", counts: ShopCounts, orders: int) -> DemoReport:
    updating = asyncio.create_task(_keep_updating(view), name="tampu-demo-view")
    try:
        return await play(orders, counts)
    finally:
        updating.cancel()
        with suppress(asyncio.CancelledError):
            await updating


async def _keep_updating(view: "DemoView") -> None:
    began = perf_counter()
    while True:
        view.update(perf_counter() - began)
        await asyncio.sleep(_UPDATE_EVERY_S)


# --- what is shown while it runs ----------------------------------------------------------------


class DemoView(Protocol):
    """Shows the shop while it runs."""

    def update(self, elapsed_s: float) -> None:
        """Show it as it is now."""


class DemoLines:
    """Prints a line for each piece of news, and the counts once a second."""

    def __init__(self, screen: Screen, counts: ShopCounts) -> None:
        self._screen, self._counts = screen, counts
        self._printed, self._seconds = 0, 0

    def update(self, elapsed_s: float) -> None:
        """Print what is new."""
        for sentence in self._counts.news[self._printed :]:
            self._print(elapsed_s, sentence)
        self._printed = len(self._counts.news)
        if elapsed_s >= self._seconds + 1:
            self._seconds = int(elapsed_s)
            self._print(elapsed_s, counts_line(self._counts))

    def _print(self, elapsed_s: float, sentence: str) -> None:
        self._screen.console.print(f"{elapsed_s:5.1f}s  {sentence}")


class DemoPage:
    """Draws on a part of the terminal, which is cleared at the end."""

    def __init__(self, live: Live, counts: ShopCounts, orders: int) -> None:
        self._live, self._counts, self._orders = live, counts, orders

    def update(self, elapsed_s: float) -> None:
        """Draw it."""
        counts, orders = self._counts, self._orders
        head = Table.grid(padding=(0, 2, 0, 0))
        placed = f"{counts.placed} of {count_of(orders, 'order')}"
        bar = ProgressBar(orders, counts.placed, width=_BAR_WIDTH)
        head.add_row(placed, bar, f"{elapsed_s:.1f}s")
        news = [Text(sentence, style="dim") for sentence in counts.news[-_NEWS:]]
        frame = Group(head, Text(""), tasks_table(counts), Text(""), *news)
        self._live.update(frame, refresh=True)


def counts_line(counts: ShopCounts) -> str:
    """The counts in one line."""
    tasks = counts.tasks.values()
    done, retried, dead = (
        sum(getattr(each, field) for each in tasks) for field in ("done", "retried", "dead")
    )
    orders = count_of(counts.placed, "order")
    return f"{orders}: {count_of(done, 'job')} done, {retried} retried, {dead} dead"


def tasks_table(counts: ShopCounts) -> Table:
    """The counts of each task."""
    numbers = ("Attempts", "Done", "Retried", "Dead")
    table = grid("Task", *numbers, numbers=numbers)
    for name, each in counts.tasks.items():
        table.add_row(name, str(each.runs), str(each.done), str(each.retried), str(each.dead))
    return table


# --- the report ---------------------------------------------------------------------------------


def demo_page(report: DemoReport, counts: ShopCounts) -> RenderableType:
    """How it went, and what to try next."""
    return Group(
        Text(f"{count_of(counts.placed, 'order')} handled in {format_span(report.took_s)}."),
        Text(""),
        tasks_table(counts),
        Text(""),
        details([*_time_rows(report), *_dead_rows(report.dead)]),
        Text(""),
        Text(f"See the dead letters with: tampu dead ls {EMAILS}"),
    )


def demo_json(server: str, report: DemoReport, counts: ShopCounts) -> JsonObject:
    """The same for programs."""
    confirmed, late = report.confirmed_after_s, report.reminders_late_ms
    return {
        "server": server,
        "orders": counts.placed,
        "seconds": round(report.took_s, 3),
        "tasks": [
            {"task": name, "runs": e.runs, "done": e.done, "retried": e.retried, "dead": e.dead}
            for name, e in counts.tasks.items()
        ],
        "confirmed_p50_s": round(median(confirmed), 3) if confirmed else None,
        "confirmed_max_s": round(confirmed[-1], 3) if confirmed else None,
        "reminders": len(late),
        "reminders_late_max_ms": round(late[-1], 3) if late else None,
        "dead": [
            {"task": each.name, "reason": reason_of(each), "error": error_of(each)}
            for each in report.dead
        ],
    }


def _time_rows(report: DemoReport) -> Iterator[tuple[str, str]]:
    confirmed, late = report.confirmed_after_s, report.reminders_late_ms
    if confirmed:
        text = f"half within {median(confirmed):.2f} s, all within {confirmed[-1]:.2f} s"
        yield "Order to e-mail", text
    if late:
        yield "Reminders", f"{len(late)}, at most {late[-1]:.1f} ms late"


def _dead_rows(dead: Sequence[DeadLetter]) -> Iterator[tuple[str, str]]:
    for number, each in enumerate(dead):
        error = each.failure.message if each.failure else error_of(each)
        yield ("" if number else "Dead letters"), f"{each.name}: {error} ({reason_of(each)})"
