"""What the search box finds: queues and tasks by a part of their name."""

from collections.abc import Mapping
from typing import Final

from tampu.dashboard.history import read_trends
from tampu.dashboard.page import Page, View, link
from tampu.metrics.history import Span

_MOST: Final = 50


async def load(view: View) -> Mapping[str, object]:
    """Everything whose name contains the text."""
    wanted = view.text("q")[:600]
    found = await find(view, wanted.casefold()) if wanted else []
    return {"wanted": wanted, "found": found[:_MOST], "more": len(found) > _MOST}


async def find(view: View, wanted: str) -> list[tuple[str, str, str]]:
    """What was found: its kind, its name and the link to it."""
    names = await view.queues()
    found = [
        ("Queue", name, link("queue", name=name)) for name in names if wanted in name.casefold()
    ]
    trends = await read_trends(view.source, names, Span.DAY)
    for queue, trend in trends.by_queue.items():
        found += [
            ("Task", task.name, link("task", queue=queue, name=task.name))
            for task in trend.tasks
            if wanted in task.name.casefold()
        ]
    return found


PAGES = (Page(path="search", template="search.html", load=load),)
