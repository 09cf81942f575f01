"""What `tampu queue` does."""

from collections.abc import Sequence
from dataclasses import dataclass

from tampu.admin.queues import Purgeable, is_drained, purge_jobs, remove_queue
from tampu.admin.queues import drain as drained
from tampu.cli.acts.desk import Desk, desk_for
from tampu.cli.acts.inspect import look_over_all
from tampu.cli.ending import Ended, ExitCode
from tampu.cli.screen import Screen, confirm
from tampu.cli.shared import Shared
from tampu.cli.show.shapes import Shape, counts_shape
from tampu.cli.show.tables import queues_table
from tampu.errors import OptionError
from tampu.server.connect import connect
from tampu.util.clock import to_s


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, and whether for delayed jobs as well."""

    timeout: str | None
    delayed: bool


async def ls(shared: Shared, *, group: str) -> None:
    """List all."""
    async with await connect(shared.url) as server:
        found = await look_over_all(server, group)
    shape = {
        "server": server.name,
        "queues": [{"queue": each.queue, **counts_shape(each.counts)} for each in found],
    }
    Screen(shared).show(shape, lambda: queues_table(found))


async def drain(shared: Shared, queue: str, patience: Patience, *, group: str) -> None:
    """Wait for one to be empty."""
    timeout_s = None if patience.timeout is None else to_s("timeout", patience.timeout)
    async with desk_for(shared, queue) as desk:
        counts = await drained(
            desk.lane, desk.keys, group=group, delayed=patience.delayed, timeout_s=timeout_s
        )
    done = is_drained(counts, delayed=patience.delayed)
    left = f"{counts.waiting} waiting, {counts.active} active, {counts.delayed} delayed"
    if done or shared.as_json:
        shape = {"queue": queue, "drained": done, **counts_shape(counts)}
        Screen(shared).show(shape, lambda: f"{queue} is drained: {left}.")
    if not done:
        sentence = f"{queue} is not drained within {patience.timeout}: {left}."
        raise Ended(ExitCode.NO, sentence)


async def purge(
    shared: Shared, queue: str, states: Sequence[str], *, everything: bool, yes: bool
) -> None:
    """Remove jobs, or all that there is."""
    if everything and states:
        raise OptionError("all", True, "cannot be given along with a state")  # noqa: FBT003
    async with desk_for(shared, queue) as desk:
        shape, told = await _purged(desk, states, everything=everything, yes=yes)
    Screen(shared).show({"queue": queue, **shape}, lambda: told)


async def _purged(
    desk: Desk, states: Sequence[str], *, everything: bool, yes: bool
) -> tuple[Shape, str]:
    queue = desk.keys.name
    if everything:
        confirm(f"Remove all that queue {queue} has, running jobs included?", yes=yes)
        keys = await remove_queue(desk.server, desk.keys)
        return {"keys": keys}, f"{queue} was removed: {keys} keys."
    chosen = [each for each in Purgeable if not states or each.value in states]
    words = ", ".join(each.value for each in chosen)
    confirm(f"Remove all jobs of {queue} that are {words}?", yes=yes)
    done = await purge_jobs(desk.lane, desk.keys, chosen)
    shape: Shape = {"waiting": done.waiting, "delayed": done.delayed, "dead": done.dead}
    return shape, f"removed: {done.waiting} waiting, {done.delayed} delayed, {done.dead} dead."
