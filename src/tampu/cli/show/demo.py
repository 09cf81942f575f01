"""What `tampu demo` shows: while it runs, and at its end."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tampu.admin.dead import DeadLetter
from tampu.cli.show.grid import facts, table
from tampu.cli.show.shapes import Shape
from tampu.cli.show.tables import error_of, reason_of
from tampu.cli.show.text import counted, span
from tampu.demo.play import Ending
from tampu.demo.shop import EMAILS
from tampu.demo.tally import Tally

_NEWS: Final = 6
_BAR: Final = 30


def demo_line(tally: Tally) -> str:
    """The counts in one line."""
    tasks = tally.tasks.values()
    done, retried, dead = (
        sum(getattr(each, field) for each in tasks) for field in ("done", "retried", "dead")
    )
    orders = counted(tally.placed, "order")
    return f"{orders}: {counted(done, 'job')} done, {retried} retried, {dead} dead"


def demo_frame(tally: Tally, orders: int, elapsed_s: float) -> RenderableType:
    """The shop at one moment."""
    head = Table.grid(padding=(0, 2, 0, 0))
    placed = f"{tally.placed} of {counted(orders, 'order')}"
    head.add_row(placed, ProgressBar(orders, tally.placed, width=_BAR), f"{elapsed_s:.1f}s")
    news = [Text(sentence, style="dim") for sentence in tally.news[-_NEWS:]]
    return Group(head, Text(""), _tasks(tally), Text(""), *news)


def demo_page(ending: Ending, tally: Tally) -> RenderableType:
    """How it went, and what to try next."""
    return Group(
        Text(f"{counted(tally.placed, 'order')} and all that came of them: {span(ending.took_s)}"),
        Text(""),
        _tasks(tally),
        Text(""),
        facts([*_times(ending), *_buried(ending.dead)]),
        Text(""),
        Text(f"The dead letters are still there: tampu dead ls {EMAILS}"),
    )


def demo_shape(server: str, ending: Ending, tally: Tally) -> Shape:
    """The same for programs."""
    confirmed, late = ending.confirmed_after_s, ending.reminders_late_ms
    return {
        "server": server,
        "orders": tally.placed,
        "seconds": round(ending.took_s, 3),
        "tasks": [
            {"task": name, "runs": e.runs, "done": e.done, "retried": e.retried, "dead": e.dead}
            for name, e in tally.tasks.items()
        ],
        "confirmed_p50_s": round(median(confirmed), 3) if confirmed else None,
        "confirmed_max_s": round(confirmed[-1], 3) if confirmed else None,
        "reminders": len(late),
        "reminders_late_max_ms": round(late[-1], 3) if late else None,
        "dead": [
            {"task": each.name, "reason": reason_of(each), "error": error_of(each)}
            for each in ending.dead
        ],
    }


def _tasks(tally: Tally) -> Table:
    numbers = ("runs", "done", "retried", "dead")
    made = table("task", *numbers, numbers=numbers)
    for name, each in tally.tasks.items():
        made.add_row(name, str(each.runs), str(each.done), str(each.retried), str(each.dead))
    return made


def _times(ending: Ending) -> Iterator[tuple[str, str]]:
    confirmed, late = ending.confirmed_after_s, ending.reminders_late_ms
    if confirmed:
        told = f"half within {median(confirmed):.2f} s, all within {confirmed[-1]:.2f} s"
        yield "order to e-mail", told
    if late:
        yield "reminders", f"{len(late)}, at most {late[-1]:.1f} ms behind their time"


def _buried(dead: Sequence[DeadLetter]) -> Iterator[tuple[str, str]]:
    for number, each in enumerate(dead):
        told = each.failure.message if each.failure else error_of(each)
        yield ("" if number else "dead letters"), f"{each.name}: {told} ({reason_of(each)})"
