"""A queue that both worlds use, and what each of them has on it."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Unpack
from uuid import uuid4

from tampu import Queue, Worker
from tampu.consumer.handler import Handlers
from tampu.consumer.options import WorkerOptions
from tampu.metrics.facts import SafeSink
from tampu.schedules.firing import FiringService
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tampu.server.listening import Wakeups
from tampu.services.leader import LeaderContext
from tampu.services.reaper import Fleet
from tampu.wire.entry import decode_member
from tampu.wire.envelope import Envelope, decode_envelope
from tampu.wire.holders import HolderKind, new_holder
from tampu.wire.keys import QueueKeys
from tests.interop.chasqui import Chasqui
from tests.servers import RunningServer
from tests.waiting import wait_until

SOON = 60.0
_numbers = itertools.count()


class SharedQueue:
    """One queue with a name of its own: a reader that a peer left behind finds nothing on it."""

    def __init__(self, running: RunningServer, peer: Chasqui) -> None:
        self.name = f"shared-{next(_numbers)}"
        self.keys = QueueKeys(self.name)
        self.url = running.url
        self.peer = peer
        self.queue = Queue(self.name, running.url)
        self.admin: Any = running.admin()  # its replies are typed as anything that could be
        self._stack = AsyncExitStack()
        self._ours: list[Worker] = []
        self._names = itertools.count()

    # --- ours -----------------------------------------------------------------------------------

    async def start_worker(self, handler: Handlers, **options: Unpack[WorkerOptions]) -> Worker:
        """A worker of tampu at work."""
        worker = Worker(self.name, handler, self.url, **options)
        self._ours.append(worker)
        await worker.start()
        return worker

    async def start_firer(self) -> FiringService:
        """What fires schedules in our workers, alone: it runs no jobs."""
        server = await self._stack.enter_async_context(await connect(self.url))
        lane = await self._stack.enter_async_context(await Lane.open(server, self.keys.stream))
        holder = new_holder(HolderKind.SCHEDULER, uuid4())
        firer = FiringService(
            LeaderContext(
                lane=lane,
                keys=self.keys,
                holder=holder,
                events_max_len=0,
                sink=SafeSink(None),
                wakeups=Wakeups(server),
                fleet=Fleet(),
            )
        )
        firer.start()
        self._stack.push_async_callback(firer.stop)
        return firer

    # --- theirs ---------------------------------------------------------------------------------

    async def ask(self, do: str, **told: object) -> Any:  # noqa: ANN401 - what it answered
        """Ask the peer for something on this queue."""
        return await self.peer.ask(do, queue=self.name, **told)

    async def peer_add(self, name: str, data: object = None, **options: object) -> str:
        """The peer adds a job; its id."""
        return await self.peer.add(self.name, name, data, **options)

    async def peer_repeat(self, name: str, data: object = None, **options: object) -> str:
        """The peer stores a repeat; its key."""
        return await self.peer.repeat(self.name, name, data, **options)

    async def start_peer_worker(
        self, *, handler: dict[str, Any] | None = None, **options: object
    ) -> str:
        """A worker of ChasquiMQ at work; its name."""
        worker = f"c-{self.name}-{next(self._names)}"
        await self.ask("start_worker", worker=worker, handler=handler or {}, options=options)
        return worker

    async def start_busy_peer_worker(self) -> str:
        """A worker of ChasquiMQ that promotes, and holds more jobs than it can run already."""
        worker = await self.start_peer_worker(
            handler={"holds": True}, concurrency=1, read_count=1, run_scheduler=False
        )
        # One runs, two wait in its channel, and its reader holds one.
        for _ in range(4):
            await self.peer_add("block")
        await wait_until(lambda: self.held() == 4, within=SOON, sentence="it reads no more")
        await self.until_led("promoter", worker)
        return worker

    async def start_peer_scheduler(self) -> str:
        """A scheduler of ChasquiMQ at work; its name."""
        worker = f"s-{self.name}-{next(self._names)}"
        await self.ask("schedule", worker=worker)
        return worker

    async def stop_peer_worker(self, worker: str) -> None:
        """Return when the peer's worker has ended, and its last read with it."""
        await self.peer.ask("stop_worker", worker=worker)
        await wait_until(
            lambda: self.blocked_peer_reads() == 0, within=SOON, sentence="its last read has ended"
        )

    async def called(self, worker: str, count: int = 1) -> list[dict[str, Any]]:
        """What a worker of the peer's was called for, as soon as so often; it was not oftener."""
        found = await self.at_least(worker, count)
        assert len(found) == count
        return found

    async def at_least(self, worker: str, count: int) -> list[dict[str, Any]]:
        """What a worker of the peer's was called for, as soon as so often."""
        found: list[dict[str, Any]] = []

        async def enough() -> bool:
            found[:] = await self.peer.calls(worker)
            return len(found) >= count

        await self.until(enough, f"the peer has begun {count} jobs")
        return found

    # --- either ---------------------------------------------------------------------------------

    async def fire_in(self, world: str) -> Callable[[], Awaitable[None]]:
        """Somebody of a world, here or there, who fires and runs nothing; what stops that."""
        if world == "here":
            return (await self.start_firer()).stop
        worker = await self.start_peer_scheduler()
        return partial(self.stop_peer_worker, worker)

    # --- looking --------------------------------------------------------------------------------

    def held(self) -> int:
        """Entries that workers hold."""
        if not self.admin.exists(self.keys.stream):
            return 0
        groups = self.admin.xinfo_groups(self.keys.stream)
        return sum(group["pending"] for group in groups)

    def blocked_peer_reads(self) -> int:
        """Connections of the peer's that wait in a read; unlike ours, they have no name."""
        found = self.admin.client_list(_type="normal")
        return sum(
            each["cmd"] == "xreadgroup" and "b" in each["flags"] and not each["lib-name"]
            for each in found
        )

    def waiting(self) -> list[tuple[Envelope, str]]:
        """The jobs in the stream and their names."""
        return [
            (decode_envelope(fields[b"d"]), fields.get(b"n", b"").decode())
            for _, fields in self.admin.xrange(self.keys.stream)
        ]

    def delayed(self) -> list[tuple[Envelope, str]]:
        """The delayed jobs and their names."""
        members = [decode_member(raw) for raw in self.admin.zrange(self.keys.delayed, 0, -1)]
        return [(decode_envelope(member.envelope), member.name) for member in members]

    def holder(self, of: str) -> str | None:
        """Who leads a kind of service: promoter or scheduler."""
        lock = self.keys.promoter_lock if of == "promoter" else self.keys.scheduler_lock
        held = self.admin.get(lock)
        return None if held is None else held.decode()

    async def until_led(self, of: str, holder: str) -> None:
        await self.until(lambda: self.holder(of) == holder, f"{holder} leads the {of}")

    async def until(self, condition: Callable[[], bool | Awaitable[bool]], sentence: str) -> None:
        await wait_until(condition, within=SOON, sentence=sentence)

    async def settled(self, within: float = SOON) -> None:
        """Return when no job waits, runs or is delayed."""

        def is_settled() -> bool:
            with self.admin.pipeline(transaction=True) as look:
                look.xlen(self.keys.stream)
                look.zcard(self.keys.delayed)
                return bool(look.execute() == [0, 0])

        await wait_until(is_settled, within=within, sentence="every job is settled")

    async def leave(self) -> None:
        for worker in self._ours:
            await worker.stop(grace=0)
        await self._stack.aclose()
        await self.peer.ask("leave")
        await self.queue.close()
        self.admin.close()


@asynccontextmanager
async def open_shared_queue(running: RunningServer, peer: Chasqui) -> AsyncIterator[SharedQueue]:
    """A queue on which both worlds meet; all that was begun there is ended behind the test."""
    shared = SharedQueue(running, peer)
    try:
        yield shared
    finally:
        await shared.leave()
