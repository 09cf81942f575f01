"""`tampu worker drain`: ask a running worker to stop."""

from tampu.admin.queues import queue_names
from tampu.admin.workers import WorkerState, workers_of
from tampu.cli.options import SharedOptions
from tampu.cli.output import CommandFailed
from tampu.cli.screen import Screen, join_words
from tampu.cli.target import did_you_mean
from tampu.server.connect import Server, connect
from tampu.server.lane import Lane
from tampu.server.scripts.control import request_drain
from tampu.wire.control import DrainRequest
from tampu.wire.holders import CONSUMER_PREFIX
from tampu.wire.keys import QueueKeys


async def drain_worker(shared: SharedOptions, name: str, *, group: str = "default") -> None:
    """Ask the workers with this name or id to stop in good order; they do so by themselves."""
    async with await connect(shared.url) as server:
        alive = await _alive_workers(server, group)
        chosen = {worker: queue for worker, queue in alive.items() if _is_called(worker, name)}
        if not chosen:
            hint = did_you_mean(name, list(alive))
            raise CommandFailed(f"There is no running worker {name!r} on {server.name}.{hint}")
        for worker, queue in chosen.items():
            keys = QueueKeys(queue)
            async with await Lane.open(server, keys.stream) as lane:
                await request_drain(lane, keys, DrainRequest(worker))
    names = sorted(chosen)
    sentence = f"Asked {join_words(names)} to stop. Running jobs may finish first."
    Screen(shared).show({"workers": names}, lambda: sentence)


async def _alive_workers(server: Server, group: str) -> dict[str, str]:
    """The workers of all queues that are alive, each with one of its queues."""
    found: dict[str, str] = {}
    for queue in await queue_names(server):
        keys = QueueKeys(queue)
        async with await Lane.open(server, keys.stream) as lane:
            for each in await workers_of(lane, keys, group.encode()):
                if each.state is WorkerState.ALIVE:
                    found[each.id] = queue
    return found


def _is_called(worker: str, name: str) -> bool:
    """Whether a worker has this id, or was given this name."""
    own = worker.removeprefix(CONSUMER_PREFIX.decode())
    return name in {worker, own, own.rpartition("-")[0]}
