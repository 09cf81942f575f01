"""`tampu demo`: runs a small shop, follows each order to its end, and shows what happens."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from statistics import median
from time import perf_counter
from typing import Annotated, Final, Protocol

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tampu.admin.dead import DeadLetter
from tampu.admin.queues import remove_queue
from tampu.admin.workers import WorkerState, workers_of
from tampu.cli.command import command
from tampu.cli.dead import error_of, reason_of
from tampu.cli.options import SharedOptions, new_app
from tampu.cli.output import CommandFailed, usage_error
from tampu.cli.screen import JsonObject, Screen, count_of, details, format_span, grid
from tampu.cli.signals import StopRequest
from tampu.demo import shop
from tampu.demo.play import DemoReport, Opening, ShopCounts, play
from tampu.demo.shop import EMAILS, INVOICES, ORDERS
from tampu.errors import MissingExtra
from tampu.server.connect import Server, connect
from tampu.server.lane import Lane
from tampu.util.clock import to_positive_ms
from tampu.wire.keys import QueueKeys

_UPDATE_EVERY_S: Final = 0.1
_GROUP: Final = b"default"
_NEWS: Final = 6
_BAR_WIDTH: Final = 30
_MOST_DEAD: Final = 8
_USUAL_ORDERS: Final = 24
app = new_app()
Orders = Annotated[
    int | None,
    typer.Option(
        "--orders",
        metavar="N",
        min=1,
        max=1000,
        help=f"Stop after N orders. Without a terminal: {_USUAL_ORDERS}.",
        show_default=False,
    ),
]
OpenFor = Annotated[
    str | None,
    typer.Option(
        "--for", metavar="DURATION", help="Stop after this time, such as 10s.", show_default=False
    ),
]


@command(app, "demo")
async def run_demo(
    shared: SharedOptions, *, orders: Orders = None, open_for: OpenFor = None
) -> None:
    """Run a small shop, and the dashboard beside it, until Ctrl-C.

    Without a terminal it stops by itself, after about ten seconds. Uses queues named tampu-demo-...
    and first removes what an earlier demo left there.
    """
    screen, counts = Screen(shared), ShopCounts(list(shop.app.tasks))
    opening = choose_opening(screen, orders, open_for)
    # The shop is written like any other program; only its server is set from outside.
    shop.app.url = shared.url
    # Dead letters are a part of the demo, and shown: they need no warnings.
    logging.getLogger("tampu.consumer").setLevel(logging.ERROR)
    async with await connect(shared.url) as server:
        for name in (ORDERS, EMAILS, INVOICES):
            await _clear(server, QueueKeys(name))
        if screen.as_json:
            report = await play(opening, counts, asyncio.Event())
        else:
            screen.console.print(f"A small shop on {server.dialect} at {server.name}.")
            async with _dashboard(screen, shared):
                report = await _play_visibly(screen, counts, opening)
    screen.show(demo_json(server.name, report, counts), lambda: demo_page(report, counts))


def choose_opening(screen: Screen, orders: int | None, open_for: str | None) -> Opening:
    """How long to run: as asked for; else until Ctrl-C, if there is a terminal to press it in."""
    if orders is not None and open_for is not None:
        raise usage_error("Give --orders or --for, not both.")
    if open_for is not None:
        return Opening(for_s=to_positive_ms("for", open_for) / 1000)
    if orders is None and (screen.as_json or not screen.console.is_terminal):
        return Opening(orders=_USUAL_ORDERS)
    return Opening(orders=orders)


@asynccontextmanager
async def _dashboard(screen: Screen, shared: SharedOptions) -> AsyncIterator[None]:
    """The dashboard, if what it needs is installed; says where it is."""
    try:
        # By its name, as any command is imported: only when it runs, and if it can.
        dashboard = import_module("tampu.cli.dashboard")
    except MissingExtra:
        where = "in this directory" if shared.url is None else "with the same --url"
        _say(screen, "To see it in a browser: pip install 'tampu[dashboard]'")
        _say(screen, f"To watch its queues from another terminal, {where}: tampu watch\n")
        yield
    else:
        async with dashboard.open_beside(shared.url) as address:
            _say(screen, f"The dashboard is at {address}\n")
            yield


def _say(screen: Screen, sentence: str) -> None:
    screen.console.print(sentence, markup=False, highlight=False)


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


async def _play_visibly(screen: Screen, counts: ShopCounts, opening: Opening) -> DemoReport:
    if not screen.console.is_terminal:
        report = await _play_with(DemoLines(screen, counts), counts, opening)
        screen.console.print()
        return report
    with Live(console=screen.console, auto_refresh=False, transient=True) as live:
        return await _play_with(DemoPage(live, counts, opening), counts, opening)


async def _play_with(view: "DemoView", counts: ShopCounts, opening: Opening) -> DemoReport:
    updating = asyncio.create_task(_keep_updating(view), name="tampu-demo-view")
    try:
        if opening.ends:
            return await play(opening, counts, asyncio.Event())
        with StopRequest().listen() as stop:  # Ctrl-C is the usual end
            return await play(opening, counts, stop.requested)
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

    def __init__(self, live: Live, counts: ShopCounts, opening: Opening) -> None:
        self._live, self._counts, self._opening = live, counts, opening

    def update(self, elapsed_s: float) -> None:
        """Draw it."""
        counts = self._counts
        news = [Text(sentence, style="dim") for sentence in counts.news[-_NEWS:]]
        head = self._head(elapsed_s)
        frame = Group(head, Text(""), tasks_table(counts), Text(""), *news)
        self._live.update(frame, refresh=True)

    def _head(self, elapsed_s: float) -> RenderableType:
        orders, for_s, placed = self._opening.orders, self._opening.for_s, self._counts.placed
        if not self._opening.ends:
            return Text(f"{count_of(placed, 'order')} in {elapsed_s:.1f}s. Press Ctrl-C to stop.")
        head = Table.grid(padding=(0, 2, 0, 0))
        if orders is not None:
            bar = ProgressBar(orders, placed, width=_BAR_WIDTH)
            head.add_row(f"{placed} of {count_of(orders, 'order')}", bar, f"{elapsed_s:.1f}s")
        elif for_s is not None:
            bar = ProgressBar(for_s, min(for_s, elapsed_s), width=_BAR_WIDTH)
            head.add_row(count_of(placed, "order"), bar, f"{elapsed_s:.1f}s")
        return head


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
    for number, each in enumerate(dead[:_MOST_DEAD]):
        error = each.failure.message if each.failure else error_of(each)
        yield ("" if number else "Dead letters"), f"{each.name}: {error} ({reason_of(each)})"
