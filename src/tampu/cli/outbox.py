"""`tampu outbox`: show the rows of outboxes, move them to their queues, try refused rows again."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from tampu._version import __version__
from tampu.app import App
from tampu.cli.command import Running, add_group, command
from tampu.cli.options import SharedOptions, new_app
from tampu.cli.output import CommandFailed, usage_error
from tampu.cli.screen import (
    JsonObject,
    Screen,
    count_of,
    format_age,
    full_text,
    grid,
    join_words,
    short_text,
)
from tampu.cli.signals import StopRequest
from tampu.cli.target import find_app
from tampu.outbox import Outbox
from tampu.outbox.rows import ListedRow
from tampu.outbox.schema import DEFAULT_TABLE
from tampu.util.clock import instant_if_any

app = new_app()
outbox_group = add_group(app, "outbox", "Show or move the rows of outboxes in databases.")

Source = Annotated[
    str,
    typer.Argument(
        metavar="APP_OR_DATABASE",
        help="An app as MODULE:APP, or the URL of a database: postgresql://..., sqlite:///PATH.",
        show_default=False,
    ),
]
TableName = Annotated[
    str | None,
    typer.Option(
        "--table",
        metavar="NAME",
        help="With a database: its table. With an app: only the outbox with this name.",
        show_default=False,
    ),
]
Refused = Annotated[
    bool, typer.Option("--refused", help="Only rows that were set aside.", show_default=False)
]
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="How many to list.")]
RowIds = Annotated[
    list[int] | None,
    typer.Argument(metavar="[ID]...", help="Ids of rows. Default: all.", show_default=False),
]


@command(outbox_group, "ls")
def list_rows(
    shared: SharedOptions,
    source: Source,
    *,
    table: TableName = None,
    refused: Refused = False,
    limit: Limit = 20,
) -> Running:
    """List the oldest rows, and why some were set aside."""
    return _list(shared, _find(shared, source, table), limit, refused=refused)


@command(outbox_group, "relay")
def run_relay(shared: SharedOptions, source: Source, *, table: TableName = None) -> Running:
    """Move rows to their queues until Ctrl-C.

    Workers of an app do the same for its outboxes. One relay works at a time, and the others take
    over if it fails.
    """
    return _relay(shared, _find(shared, source, table))


@command(outbox_group, "retry")
def retry_rows(
    shared: SharedOptions, source: Source, row_ids: RowIds = None, *, table: TableName = None
) -> Running:
    """Let rows that were set aside wait again.

    Exit code 1 if there are none.
    """
    return _retry(shared, _find(shared, source, table), row_ids or ())


def _find(shared: SharedOptions, source: str, table: str | None) -> list[Outbox]:
    """The outboxes of an app, or of a database. An app is imported before there is a loop."""
    if "://" in source:
        return [Outbox(App(shared.url), table=table or DEFAULT_TABLE, database=source)]
    found = [each for each in find_app(source, shared).outboxes if isinstance(each, Outbox)]
    names = [each.name for each in found]
    if not found:
        raise usage_error(
            f"{source} has no outbox with a database. Write Outbox(app, database=...), or give the "
            "URL of the database instead of the app."
        )
    if table is not None and table not in names:
        raise usage_error(f"{source} has no outbox {table!r}. It has {join_words(names)}.")
    return [each for each in found if table in {None, each.name}]


async def _list(
    shared: SharedOptions, outboxes: Sequence[Outbox], limit: int, *, refused: bool
) -> None:
    found: list[tuple[str, ListedRow]] = []
    for outbox in outboxes:
        rows = outbox.rows()
        try:
            listed = await rows.list_rows(limit, refused=refused)
        finally:
            await rows.close()
        found += [(outbox.name, each) for each in listed]
    data = {"rows": [_row_json(name, each) for name, each in found]}
    Screen(shared).show(data, lambda: _rows_table(found, datetime.now(UTC)))


async def _relay(shared: SharedOptions, outboxes: Sequence[Outbox]) -> None:
    with StopRequest().listen() as stop:
        async with AsyncExitStack() as stack:
            for outbox in outboxes:
                await stack.enter_async_context(outbox.relay())
            names = [outbox.name for outbox in outboxes]
            data: JsonObject = {"tampu": __version__, "outboxes": names}
            words = f"Moving rows of {join_words(names)}. Press Ctrl-C to stop."
            Screen(shared).show_line(data, lambda each: each, lambda _: words)
            await stop.requested.wait()


async def _retry(shared: SharedOptions, outboxes: Sequence[Outbox], ids: Sequence[int]) -> None:
    if ids and len(outboxes) > 1:
        raise usage_error("The app has several outboxes. Name the one of these rows with --table.")
    done: dict[str, list[int]] = {}
    for outbox in outboxes:
        rows = outbox.rows()
        try:
            done[outbox.name] = await rows.retry(ids)
        finally:
            await rows.close()
    count = sum(map(len, done.values()))
    data = {"outboxes": [{"outbox": name, "ids": moved} for name, moved in done.items()]}
    Screen(shared).show(data, lambda: f"{count_of(count, 'row')} will be tried again.")
    if not count:
        raise CommandFailed("No such row was set aside.")


def _row_json(outbox: str, row: ListedRow) -> JsonObject:
    at = None if row.stored_at_ms is None else instant_if_any(row.stored_at_ms)
    return {
        "outbox": outbox,
        "id": row.id,
        "queue": row.queue,
        "job_id": row.job_id,
        "name": row.name,
        "stored_at": at,
        "problem": row.problem,
    }


def _rows_table(found: Sequence[tuple[str, ListedRow]], now: datetime) -> RenderableType:
    if not found:
        return Text("No rows.")
    table = grid(
        *("Outbox", "Id", "Queue", "Task", "Age", "Problem"),
        numbers=("Id", "Age"),
        shrink=("Problem",),
    )
    for name, row in found:
        at = None if row.stored_at_ms is None else instant_if_any(row.stored_at_ms)
        table.add_row(
            short_text(name),
            str(row.id),
            short_text(row.queue),
            short_text(row.name or "?"),
            format_age(at, now),
            full_text(row.problem or ""),
        )
    return table
