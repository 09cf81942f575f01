"""Waiting for what arrives on many keys, with one blocking read for all of them.

On a single server one read serves all keys; a cluster lets a read block for the keys of one slot.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar

from tampu.errors import CommandRefused, ServerError, Verdict
from tampu.server.connect import connect
from tampu.server.connection import SharedConnections
from tampu.server.lane import Lane
from tampu.server.service import Service
from tampu.server.streams import read_streams, wait_for_wakeup
from tampu.util.lifecycle import Shared, cancel_all, ignore_outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tampu.server.client import CredentialCallback
    from tampu.server.connect import Server, Target
    from tampu.server.streams import RawEntry

logger = logging.getLogger(__name__)

BLOCK_S: Final = 5.0
ENTRIES_A_READ: Final = 1_000
_TRY_AGAIN_S: Final = 2.0
_GATHER_S: Final = 0.02  # many begin to listen at about the same time

T = TypeVar("T")


class _Listener(Service, Generic[T]):
    """Listens on some keys of one slot, with a connection of its own. `targets` are by key."""

    name = "listener"
    what: ClassVar[str]
    probe: ClassVar[str]
    """A command that a key of the wrong type refuses."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.outage, self.what)
        self._server = server
        self._lane: Lane | None = None
        self._ending_read: asyncio.Task[None] | None = None
        self._refused: dict[bytes, float] = {}  # keys of another type: not to be read until then
        self.targets: dict[bytes, T] = {}

    @abstractmethod
    async def read(self, lane: Lane, targets: Mapping[bytes, T]) -> None:
        """Wait for something on these keys, and hand it over."""

    def add(self, key: bytes, target: T) -> None:
        """Listen on one more key, or for another target on the same one."""
        is_new = key not in self.targets
        self.targets[key] = target
        if is_new and self._lane is not None and self._ending_read is None:
            ending = asyncio.create_task(self._lane.unblock(), name="tampu-listen-to-more")
            ending.add_done_callback(ignore_outcome)
            self._ending_read = ending

    async def tick(self) -> float:
        """Read once."""
        if self._lane is None:
            self._lane = await Lane.open(self._server, next(iter(self.targets)))
            return _GATHER_S
        if self._ending_read is not None:
            await asyncio.wait([self._ending_read])
            self._ending_read = None
        if self._trouble.is_away:
            await self._reach(self._lane)
        now = monotonic()
        usable = {key: it for key, it in self.targets.items() if self._refused.get(key, 0.0) < now}
        if not usable:
            return _TRY_AGAIN_S
        try:
            await self.read(self._lane, usable)
        except CommandRefused:
            if not await self._set_aside(self._lane, usable):
                raise
        return 0.0

    async def _reach(self, lane: Lane) -> None:
        """Note the end of an outage now: a read may block for seconds before it shows that."""
        try:
            await lane.call(self.probe, next(iter(self.targets)), repeatable=True)
        except CommandRefused as error:
            if error.verdict is Verdict.RETRY:
                raise
        self._trouble.end()

    async def clean_up(self) -> None:
        """Close the connection."""
        if self._ending_read is not None:
            await cancel_all([self._ending_read])
        lane, self._lane = self._lane, None
        if lane is not None:
            await lane.close()

    async def _set_aside(self, lane: Lane, keys: Mapping[bytes, T]) -> bool:
        """Leave out the keys of a wrong type, which keep all others from what arrives."""
        found = False
        for key in keys:
            try:
                await lane.call(self.probe, key, repeatable=True)
                self._refused.pop(key, None)
            except CommandRefused as error:
                found = True
                if key not in self._refused:
                    name = key.decode()
                    text = "nothing arrives on %s, looking from time to time instead: %s"
                    logger.warning(text, name, error, extra={"key": name})
                self._refused[key] = monotonic() + _TRY_AGAIN_S
        return found


class _Listeners(Generic[T]):
    """A listener for each slot that has keys."""

    kind: type[_Listener[T]]

    def __init__(self, server: Server) -> None:
        self._server = server
        self._by_slot: dict[int, _Listener[T]] = {}

    def listen(self, key: bytes, target: T) -> None:
        """Listen on a key. May be called again, with another target."""
        slot = self._server.slot(key)
        listener = self._by_slot.get(slot)
        if listener is None:
            listener = self._by_slot[slot] = self.kind(self._server)
            listener.start()
        listener.add(key, target)

    async def ignore(self, key: bytes) -> None:
        """Listen no more; what arrives is left to others. May be called for any key."""
        slot = self._server.slot(key)
        listener = self._by_slot.get(slot)
        if listener is not None:
            listener.targets.pop(key, None)
            if not listener.targets:
                del self._by_slot[slot]
                await listener.stop()


# --- wakeups ------------------------------------------------------------------------------------


class _WakeupListener(_Listener["Callable[[], None]"]):
    what = "listening for wakeups"
    probe = "LLEN"

    async def read(self, lane: Lane, targets: Mapping[bytes, Callable[[], None]]) -> None:
        """Take one wakeup and call its target."""
        key = await wait_for_wakeup(lane, targets, wait_s=BLOCK_S)
        if key in self.targets:
            self.targets[key]()


class Wakeups(_Listeners["Callable[[], None]"]):
    """Calls functions when wakeups arrive on their lists.

    A wakeup that is missed makes a service late, not wrong: it looks from time to time anyway.
    """

    kind = _WakeupListener


# --- streams ------------------------------------------------------------------------------------


class StreamTarget:
    """Whoever follows a stream: takes its entries after an id, and learns of gaps."""

    after: bytes

    @abstractmethod
    def take(self, entries: list[RawEntry]) -> None:
        """Take the entries that followed; `after` is the id of the last one."""

    @abstractmethod
    async def bridge_gap(self, lane: Lane) -> None:
        """The connection broke: entries may have been missed, or the stream lost. Set `after`."""


class _StreamListener(_Listener[StreamTarget]):
    what = "following streams"
    probe = "XLEN"

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._gaps: set[bytes] = set()  # streams that may have missed entries

    async def read(self, lane: Lane, targets: Mapping[bytes, StreamTarget]) -> None:
        """Hand over the entries that have been added."""
        try:
            for key in self._gaps & targets.keys():
                await targets[key].bridge_gap(lane)
                self._gaps.discard(key)
            after = {key: target.after for key, target in targets.items()}
            found = await read_streams(lane, after, count=ENTRIES_A_READ, block_s=BLOCK_S)
        except ServerError:
            self._gaps.update(targets)
            raise
        for key, entries in found.items():
            if key in self.targets:
                following = self.targets[key]
                following.after = entries[-1][0]
                following.take(entries)


class StreamFollower(_Listeners[StreamTarget]):
    """Follows streams from an id on."""

    kind = _StreamListener


class SharedParts:
    """What the queues of a process have together on a server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.connections = SharedConnections(server)
        self.wakeups = Wakeups(server)
        self.streams = StreamFollower(server)


def share(target: Target, credentials: CredentialCallback | None) -> Shared[SharedParts]:
    """Parts that the first user connects and the last one disconnects."""

    async def open_parts() -> SharedParts:
        return SharedParts(await connect(target, credentials=credentials))

    async def close_parts(parts: SharedParts) -> None:
        await parts.server.close()

    return Shared(open_parts, close_parts)
