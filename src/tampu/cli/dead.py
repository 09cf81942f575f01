"""`tampu dead`: list, show, replay and delete dead letters."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final, cast

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from tampu.admin.dead import DeadLetter
from tampu.admin.dead_filter import LetterOptions, LetterSettings
from tampu.cli.command import add_group, command
from tampu.cli.options import QueueName, SharedOptions, Yes, new_app
from tampu.cli.output import CommandFailed, confirm, usage_error
from tampu.cli.screen import (
    NOTHING,
    JsonObject,
    Screen,
    count_of,
    details,
    format_age,
    format_instant,
    full_text,
    grid,
    short_text,
    to_json,
)
from tampu.cli.target import open_queue
from tampu.errors import JobFailed, OptionError
from tampu.queue import Queue
from tampu.util.options import check_choice
from tampu.wire.dead import BuryReason

_DEFAULT_REPLAYS: Final = 100

app = new_app()
dead = add_group(app, "dead", "List, show, replay or delete dead letters.")

DeadId = Annotated[
    str, typer.Argument(metavar="ID", help="Id of the dead letter.", show_default=False)
]
DeadIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="Only the dead letters with these ids.", show_default=False),
]
ListLimit = Annotated[
    int, typer.Option("--limit", "-n", metavar="N", min=1, help="List at most N.")
]
ReplayLimit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        "-n",
        metavar="N",
        min=1,
        help="Replay at most N. Default: 100, or all ids given.",
        show_default=False,
    ),
]
After = Annotated[
    str | None,
    typer.Option("--after", metavar="ID", help="Start after this id.", show_default=False),
]
JobName = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="Only jobs with this name.", show_default=False),
]
Reason = Annotated[
    str | None,
    typer.Option(
        "--reason", metavar="REASON", help="Only jobs buried for this reason.", show_default=False
    ),
]
ErrorText = Annotated[
    str | None,
    typer.Option(
        "--error",
        metavar="TEXT",
        help="Only jobs whose error contains this text.",
        show_default=False,
    ),
]
NewerThan = Annotated[
    str | None,
    typer.Option(
        "--newer-than",
        metavar="DURATION",
        help="Only jobs buried less long ago than this.",
        show_default=False,
    ),
]
OlderThan = Annotated[
    str | None,
    typer.Option(
        "--older-than",
        metavar="DURATION",
        help="Only jobs buried longer ago than this.",
        show_default=False,
    ),
]
All = Annotated[bool, typer.Option("--all", help="All dead letters.", show_default=False)]


@command(dead, "ls")
async def list_dead(
    shared: SharedOptions,
    queue: QueueName,
    *,
    limit: ListLimit = 20,
    after: After = None,
    name: JobName = None,
    reason: Reason = None,
    error: ErrorText = None,
    newer_than: NewerThan = None,
    older_than: OlderThan = None,
) -> None:
    """List the dead letters of a queue, oldest first."""
    chosen = _filters(
        name=name, reason=reason, error=error, newer_than=newer_than, older_than=older_than
    )
    async with open_queue(shared, queue) as opened:
        letters = await opened.dead.peek(limit, after=after, **chosen)
        total = (await opened.counts()).dead
    data = {"queue": queue, "total": total, "letters": [dead_json(each) for each in letters]}
    Screen(shared).show(data, lambda: dead_table(letters, total, datetime.now(UTC)))


@command(dead, "show")
async def show_dead(shared: SharedOptions, queue: QueueName, dead_id: DeadId) -> None:
    """Show one dead letter with its data and traceback."""
    async with open_queue(shared, queue) as opened:
        letter = await opened.dead.get(dead_id)
    if letter is None:
        raise CommandFailed(f"Queue {queue!r} has no dead letter {dead_id!r}.")
    Screen(shared).show(dead_json(letter), lambda: dead_page(letter))


@command(dead, "replay")
async def replay_dead(
    shared: SharedOptions,
    queue: QueueName,
    ids: DeadIds = None,
    *,
    limit: ReplayLimit = None,
    name: JobName = None,
    reason: Reason = None,
    error: ErrorText = None,
    newer_than: NewerThan = None,
    older_than: OlderThan = None,
    yes: Yes = False,
) -> None:
    """Put dead letters back on the queue, oldest first.

    Exit code 1 if one of the ids given is not there or cannot be replayed.
    """
    most = limit or len(ids or ()) or _DEFAULT_REPLAYS
    chosen = _filters(
        name=name, reason=reason, error=error, newer_than=newer_than, older_than=older_than
    )
    async with open_queue(shared, queue) as opened:
        total = (await opened.counts()).dead
        not_found = await _missing(opened, ids or ())
        at_most = min(most, total if not ids else len(ids) - len(not_found))
        which = count_of(at_most, "dead letter")
        if chosen:
            which = f"up to {at_most} matching dead letters"
        elif not ids and at_most < total:
            which = f"{at_most} of {count_of(total, 'dead letter')}"
        confirm(f"Put {which} back on {queue}?", yes=yes or not at_most)
        done = await opened.dead.replay(most, ids=ids or None, **chosen)
    data = {"queue": queue, "replayed": done, "not_found": not_found}
    Screen(shared).show(data, lambda: f"{count_of(done, 'job')} put back.")
    _check_all_found(queue, not_found)
    if ids and done < at_most:
        why = "the others do not match the filters or cannot be decoded"
        raise CommandFailed(f"{done} of {count_of(at_most, 'dead letter')} put back; {why}.")


@command(dead, "purge")
async def purge_dead(
    shared: SharedOptions,
    queue: QueueName,
    ids: DeadIds = None,
    *,
    name: JobName = None,
    reason: Reason = None,
    error: ErrorText = None,
    newer_than: NewerThan = None,
    older_than: OlderThan = None,
    everything: All = False,
    yes: Yes = False,
) -> None:
    """Delete dead letters for good.

    Deletes those that match all ids and filters given, or all of them with --all. Exit code 1 if
    one of the ids given is not there.
    """
    chosen = _filters(
        name=name, reason=reason, error=error, newer_than=newer_than, older_than=older_than
    )
    if everything and (ids or chosen):
        raise usage_error("--all cannot be combined with ids or filters.")
    if not everything and not ids and not chosen:
        raise usage_error("Say which: ids, --older-than, --name, --reason, or --all.")
    async with open_queue(shared, queue) as opened:
        total = (await opened.counts()).dead
        not_found = await _missing(opened, ids or ())
        left = len(ids or ()) - len(not_found)
        which = (
            f"{'all' if everything else 'the matching'} dead letters of {queue} ({total} in all)"
        )
        if ids and not chosen:
            which = f"{count_of(left, 'dead letter')} of {queue}"
        confirm(f"Delete {which} for good?", yes=yes or not (left if ids else total))
        done = await opened.dead.purge(ids=ids or None, everything=everything, **chosen)
    data = {"queue": queue, "purged": done, "not_found": not_found}
    Screen(shared).show(data, lambda: f"{count_of(done, 'dead letter')} deleted.")
    _check_all_found(queue, not_found)


def _filters(**typed: str | None) -> LetterOptions:
    """The filters that were typed; refuses a wrong one before anything is asked or done."""
    given = {name: value for name, value in typed.items() if value is not None}
    reason = given.get("reason")
    if reason is not None:
        check_choice("reason", reason, [str(each) for each in BuryReason])
    filters = cast("LetterOptions", given)
    LetterSettings(**filters)
    return filters


async def _missing(queue: Queue, ids: Sequence[str]) -> list[str]:
    """Which of the ids do not belong to dead letters."""
    try:
        return [each for each in ids if await queue.dead.get(each) is None]
    except OptionError as error:
        raise OptionError("ids", error.given, error.problem) from None


def _check_all_found(queue: str, not_found: Sequence[str]) -> None:
    if not_found:
        ids = ", ".join(not_found)
        raise CommandFailed(f"Not found among the dead letters of {queue!r}: {ids}.")


# --- what is printed ----------------------------------------------------------------------------


def dead_json(letter: DeadLetter) -> JsonObject:
    """One dead letter; `raw` has its bytes only if they cannot be decoded."""
    failure = letter.failure
    return {
        "dead_id": letter.dead_id,
        "buried_at": letter.buried_at,
        "job_id": letter.job_id,
        "name": letter.name,
        "reason": letter.reason,
        "detail": letter.detail,
        "attempt": letter.attempt,
        "worker": letter.worker,
        "error": None
        if failure is None
        else {
            "type": failure.error_type,
            "message": failure.message,
            "traceback": failure.traceback,
        },
        "data": letter.data,
        "raw": letter.raw if letter.job_id is None else None,
    }


def dead_table(letters: Sequence[DeadLetter], total: int, now: datetime) -> RenderableType:
    """Dead letters, one a line, and how many there are of each reason."""
    if not letters:
        return Text("There are no dead letters." if not total else "There are no more.")
    columns = ("Id", "Age", "Name", "Reason", "Attempts", "Error")
    table = grid(*columns, numbers=("Age", "Attempts"), shrink=("Name", "Error"))
    for each in letters:
        table.add_row(
            each.dead_id,
            format_age(each.buried_at, now),
            short_text(each.name),
            full_text(reason_of(each)),
            NOTHING if each.attempt is None else str(each.attempt),
            short_text(error_of(each)),
        )
    reasons = Counter(reason_of(each) for each in letters)
    sums = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    return Group(table, Text(""), full_text(f"{len(letters)} of {total}: {sums}"))


def dead_page(letter: DeadLetter) -> RenderableType:
    """One dead letter in full."""
    page: list[RenderableType] = [
        details(
            [
                ("Dead letter", letter.dead_id),
                ("Buried at", format_instant(letter.buried_at)),
                ("Job", letter.job_id or NOTHING),
                ("Name", letter.name or NOTHING),
                ("Reason", reason_of(letter)),
                ("Attempts", NOTHING if letter.attempt is None else letter.attempt),
                ("Worker", letter.worker or NOTHING),
                ("Error", error_of(letter) or NOTHING),
                ("Data", _data_text(letter)),
            ]
        )
    ]
    if letter.failure is not None and letter.failure.traceback:
        page += [Text(""), full_text(letter.failure.traceback.rstrip("\n"))]
    return Group(*page)


def reason_of(letter: DeadLetter) -> str:
    """Why a job was buried, as the wire spells it."""
    return letter.reason.value if isinstance(letter.reason, BuryReason) else letter.reason


def error_of(letter: DeadLetter) -> str:
    """What the last attempt raised, or the detail of the reason."""
    if letter.failure is None:
        return letter.detail or ""
    return f"{letter.failure.error_type}: {letter.failure.message}"


def _data_text(letter: DeadLetter) -> str:
    if letter.job_id is None:
        return f"cannot be decoded ({len(letter.raw)} bytes)"
    return to_json(letter.data, indent=None)


def failure_json(failed: JobFailed) -> JsonObject:
    """Why a job has no result."""
    return {
        "reason": failed.reason,
        "type": failed.error_type,
        "message": failed.message,
        "traceback": failed.traceback,
    }
