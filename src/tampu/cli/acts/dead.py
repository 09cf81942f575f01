"""What `tampu dead` does."""

from dataclasses import dataclass
from datetime import UTC, datetime

from tampu.cli.acts.desk import queue_for
from tampu.cli.ending import Ended, ExitCode, no
from tampu.cli.screen import Screen, confirm
from tampu.cli.shared import Shared
from tampu.cli.show.shapes import letter_shape
from tampu.cli.show.tables import letter_page, letters_table
from tampu.cli.show.text import counted
from tampu.errors import OptionError
from tampu.util.clock import to_ms


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which dead letters are meant; what is None does not matter."""

    ids: list[str] | None
    name: str | None
    reason: str | None
    older_than: str | None = None
    everything: bool = False

    @property
    def are_said(self) -> bool:
        """Whether anything was said of them, other than that it is all."""
        filters = (self.ids, self.name, self.reason, self.older_than)
        return any(each is not None for each in filters)


async def ls(shared: Shared, queue: str, *, limit: int, after: str | None) -> None:
    """List them."""
    async with queue_for(shared, queue) as opened:
        letters = await opened.dead.peek(limit, after=after)
        total = (await opened.counts()).dead
    shape = {"queue": queue, "total": total, "letters": [letter_shape(each) for each in letters]}
    Screen(shared).show(shape, lambda: letters_table(letters, total, datetime.now(UTC)))


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
        of_all = counted(total, "dead letter")
        question = f"Put up to {min(limit, total)} of {of_all} back on {queue}?"
        confirm(question, yes=yes or not total)
        done = await opened.dead.replay(
            limit, ids=chosen.ids, name=chosen.name, reason=chosen.reason
        )
    Screen(shared).show(
        {"queue": queue, "replayed": done}, lambda: f"{counted(done, 'job')} put back."
    )


async def purge(shared: Shared, queue: str, chosen: Chosen, *, yes: bool) -> None:
    """Delete some for good."""
    _check(chosen)
    async with queue_for(shared, queue) as opened:
        total = (await opened.counts()).dead
        which = "all of the" if chosen.everything else "those chosen of the"
        question = f"Delete {which} {counted(total, 'dead letter')} of {queue} for good?"
        confirm(question, yes=yes or not total)
        done = await opened.dead.purge(
            ids=chosen.ids,
            older_than=chosen.older_than,
            name=chosen.name,
            reason=chosen.reason,
            everything=chosen.everything,
        )
    Screen(shared).show(
        {"queue": queue, "purged": done}, lambda: f"{counted(done, 'dead letter')} deleted."
    )


def _check(chosen: Chosen) -> None:
    """Refuse what cannot be before anything is asked."""
    if chosen.everything and chosen.are_said:
        raise OptionError("all", True, "cannot be given along with ids or filters")  # noqa: FBT003
    if not chosen.everything and not chosen.are_said:
        raise Ended(ExitCode.USAGE, "say which: ids, --older-than, --name, --reason, or --all.")
    if chosen.older_than is not None:
        to_ms("older_than", chosen.older_than)
