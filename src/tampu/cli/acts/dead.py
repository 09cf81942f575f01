"""What `tampu dead` does."""

from dataclasses import dataclass

from tampu.cli.acts.desk import queue_for
from tampu.cli.ending import no
from tampu.cli.screen import Screen, confirm
from tampu.cli.shared import Shared
from tampu.cli.show.shapes import letter_shape
from tampu.cli.show.tables import letter_page, letters_table


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which dead letters are meant; what is None does not matter."""

    ids: list[str] | None
    name: str | None
    reason: str | None
    older_than: str | None = None
    everything: bool = False


async def ls(shared: Shared, queue: str, *, limit: int, after: str | None) -> None:
    """List them."""
    async with queue_for(shared, queue) as opened:
        letters = await opened.dead.peek(limit, after=after)
        total = (await opened.counts()).dead
    shape = {"queue": queue, "total": total, "letters": [letter_shape(each) for each in letters]}
    Screen(shared).show(shape, lambda: letters_table(letters, total))


async def show(shared: Shared, queue: str, dead_id: str) -> None:
    """Show one of them."""
    async with queue_for(shared, queue) as opened:
        letter = await opened.dead.get(dead_id)
    if letter is None:
        raise no(f"queue {queue!r} has no dead letter {dead_id!r}.")
    Screen(shared).show(letter_shape(letter), lambda: letter_page(letter))


async def replay(shared: Shared, queue: str, chosen: Chosen, *, limit: int, yes: bool) -> None:
    """Put some back."""
    async with queue_for(shared, queue) as opened:
        total = (await opened.counts()).dead
        question = f"Put up to {min(limit, total)} of {total} dead letters back on {queue}?"
        confirm(question, yes=yes or not total)
        done = await opened.dead.replay(
            limit, ids=chosen.ids, name=chosen.name, reason=chosen.reason
        )
    Screen(shared).show({"queue": queue, "replayed": done}, lambda: f"{done} jobs were put back.")


async def purge(shared: Shared, queue: str, chosen: Chosen, *, yes: bool) -> None:
    """Delete some for good."""
    async with queue_for(shared, queue) as opened:
        total = (await opened.counts()).dead
        which = "all" if chosen.everything else "the chosen ones of the"
        confirm(f"Delete {which} {total} dead letters of {queue} for good?", yes=yes or not total)
        done = await opened.dead.purge(
            ids=chosen.ids,
            older_than=chosen.older_than,
            name=chosen.name,
            reason=chosen.reason,
            everything=chosen.everything,
        )
    Screen(shared).show({"queue": queue, "purged": done}, lambda: f"{done} dead letters deleted.")
