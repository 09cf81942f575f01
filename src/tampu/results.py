"""Results of jobs: pushed to those who wait, looked up for those who do not."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from copy import copy
from random import Random
from typing import Final

from msgspec import Struct

from tampu.errors import (
    Closed,
    DecodeError,
    JobFailed,
    ResultTimeout,
    ServerError,
    ServerUnreachable,
)
from tampu.server.connect import Server
from tampu.server.errors import TOO_SLOW
from tampu.server.lane import Lane, LaneOptions, Pauses
from tampu.server.streams import RawEntry, last_id, read_after, values_of
from tampu.wire.keys import QueueKeys, check_job_id
from tampu.wire.result import decode_failure, decode_result, ids_in_notice

logger = logging.getLogger(__name__)

IDS_A_LOOK: Final = 500
BLOCK_MS: Final = 5_000
LINGER_S: Final = 3.0
"""How long the reader stays when nobody waits: who waits again and again finds it there."""

# As many as the server keeps for certain. A reply that is full may follow a gap, no other can.
_NOTICES_A_READ: Final = 1_000
_LEAST_LOOK_S: Final = 1.0
_LONGEST_LOOK_S: Final = 30.0


class _Ending(Struct, frozen=True):
    """How a job ended, as it lies at the server."""

    result: bytes | None
    failure: bytes | None

    def value(self, job_id: str) -> object:
        """What the handler returned, anew for each who asks; raises `JobFailed`."""
        if self.result is not None:
            return decode_result(self.result)
        told = decode_failure(self.failure or b"")
        raise JobFailed(
            job_id,
            reason=told.reason,
            error_type=told.error_type,
            message=told.message,
            traceback=told.traceback,
        )

    def value_or_error(self, job_id: str) -> object:
        """As `value`, but errors are returned."""
        try:
            return self.value(job_id)
        except (JobFailed, DecodeError) as error:
            return error


_Waiter = asyncio.Future[_Ending | Closed]


class _Waiters:
    """Who waits for which job; several may wait for one."""

    def __init__(self) -> None:
        self._by_id: dict[str, set[_Waiter]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def among(self, job_ids: Iterable[str]) -> list[str]:
        """Those of the ids that somebody waits for, each once."""
        return list(self._by_id.keys() & set(job_ids))

    def all_ids(self) -> list[str]:
        """Every id that somebody waits for."""
        return list(self._by_id)

    def add(self, job_id: str) -> _Waiter:
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        self._by_id.setdefault(job_id, set()).add(waiter)
        return waiter

    def remove(self, job_id: str, waiter: _Waiter) -> None:
        left = self._by_id[job_id]
        left.remove(waiter)
        if not left:
            del self._by_id[job_id]

    def tell(self, job_id: str, ending: _Ending | Closed) -> None:
        """Wake those who wait for the job; each leaves by itself."""
        for waiter in self._by_id.get(job_id, ()):
            if not waiter.done():
                waiter.set_result(ending)


class ResultReader:
    """Gives results to any number of waiters, with one blocking read for all of them.

    Workers write the ids of ended jobs to the queue's notices. The reader follows those from before
    the first look at a waiter's keys, so nothing falls between look and notice. It belongs to one
    event loop, opens its connections when they are first needed and keeps them until `close`.
    """

    def __init__(self, server: Server, keys: QueueKeys) -> None:
        self._server = server
        self._keys = keys
        self._waiters = _Waiters()
        self._opening = asyncio.Lock()
        self._looks: Lane | None = None
        self._reads: Lane | None = None  # its own: a blocked read delays all that follow it
        self._task: asyncio.Task[None] | None = None
        self._next_ids: list[str] = []
        self._next_look: asyncio.Task[dict[str, _Ending]] | None = None
        self._needed_at = 0.0  # when somebody last waited
        self._closed = False

    async def wait(self, job_id: str, timeout_s: float) -> object:
        """What the job's handler returned, as soon as it is there; 0 seconds: looks once.

        Raises `JobFailed` if the job was buried, `ResultTimeout` when the time is up, `DecodeError`
        for a result that cannot be read, and a `ServerError` if the server cannot be asked.
        """
        waiter = self._waiters.add(check_job_id(job_id))
        try:
            ending = await self._ending(job_id, waiter, timeout_s)
        finally:
            self._waiters.remove(job_id, waiter)
            self._needed_at = waiter.get_loop().time()
        if ending is None:
            raise ResultTimeout(job_id, timeout_s)
        return ending.value(job_id)

    async def get_many(self, job_ids: Sequence[str]) -> dict[str, object]:
        """The results of those jobs that have ended, in the order given.

        The value of a job that was buried is its `JobFailed`; of one whose result cannot be read,
        the `DecodeError`.
        """
        wanted = list(dict.fromkeys(map(check_job_id, job_ids)))
        if not wanted:
            return {}
        found = await self._look(await self._prepared(_LONGEST_LOOK_S), wanted)
        return {job_id: ending.value_or_error(job_id) for job_id, ending in found.items()}

    async def get_raw(self, job_ids: Sequence[str]) -> list[bytes | None]:
        """What is stored for each job, as it was stored; None if there is nothing."""
        if not job_ids:
            return []
        keys = self._keys.results(map(check_job_id, job_ids))
        return await values_of(await self._prepared(_LONGEST_LOOK_S), keys)

    async def close(self) -> None:
        """Disconnect; those who still wait get `Closed`. May be called twice."""
        self._closed = True
        for job_id in self._waiters.all_ids():
            self._waiters.tell(job_id, Closed(self._server.name))
        async with self._opening:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task])
            for lane in (self._looks, self._reads):
                if lane is not None:
                    await lane.close()

    async def _ending(self, job_id: str, waiter: _Waiter, timeout_s: float) -> _Ending | None:
        """How the job ended; None if it did not in time."""
        if timeout_s <= 0:
            lane = await self._prepared(_LEAST_LOOK_S)
            return (await self._look(lane, [job_id], limit_s=_LEAST_LOOK_S)).get(job_id)
        loop = waiter.get_loop()
        deadline = loop.time() + timeout_s
        limit_s = min(max(timeout_s, _LEAST_LOOK_S), _LONGEST_LOOK_S)
        found = await self._look_together(job_id, limit_s)
        if job_id not in found:
            await asyncio.wait([waiter], timeout=max(0.0, deadline - loop.time()))
            if waiter.done():
                return _checked(waiter.result())
            # A peer's worker keeps results and tells nobody of them.
            with suppress(ServerError):
                found = await self._look_together(job_id, _LEAST_LOOK_S)
        return found.get(job_id)

    async def _look_together(self, job_id: str, limit_s: float) -> dict[str, _Ending]:
        """One look for all who ask at about the same time; the reader sees what comes after it."""
        if self._next_look is None:
            self._next_look = asyncio.create_task(self._look_next(), name="tampu-results-look")
            self._next_look.add_done_callback(_ignore_outcome)
        self._next_ids.append(job_id)
        look = self._next_look
        await asyncio.wait([look], timeout=limit_s)
        if not look.done():
            raise ServerUnreachable(self._server.name, TOO_SLOW)
        try:
            return look.result()
        except ServerError as error:
            raise copy(error) from None  # each gets its own

    async def _look_next(self) -> dict[str, _Ending]:
        try:
            lane = await self._prepared(_LONGEST_LOOK_S, follow=True)
        finally:
            job_ids, self._next_ids, self._next_look = self._next_ids, [], None
        return await self._look(lane, job_ids)

    async def _prepared(self, limit_s: float, *, follow: bool = False) -> Lane:
        """The lane to look over. With `follow`, the reader sees every notice from now on."""
        try:
            # One opens for all; the others wait for it, but no longer than they may.
            async with asyncio.timeout(limit_s), self._opening:
                if follow:
                    await self._follow(limit_s)
                self._looks = await self._opened(self._looks)
                return self._looks
        except TimeoutError:
            raise ServerUnreachable(self._server.name, TOO_SLOW) from None

    async def _follow(self, limit_s: float) -> None:
        lane = self._reads = await self._opened(self._reads)
        if self._task is None or self._task.done():
            after = await last_id(lane, self._keys.notices, limit_s=limit_s)
            reading = self._read(lane, after)
            self._task = asyncio.create_task(reading, name="tampu-results")

    async def _opened(self, lane: Lane | None) -> Lane:
        if self._closed:
            raise Closed(self._server.name)
        return lane or await Lane.open(self._server, self._keys.notices)

    async def _look(
        self, lane: Lane, job_ids: Sequence[str], *, limit_s: float | None = None
    ) -> dict[str, _Ending]:
        """How jobs ended, of those that have."""
        found: dict[str, _Ending] = {}
        result, failure = self._keys.result, self._keys.failure
        for start in range(0, len(job_ids), IDS_A_LOOK):
            some = job_ids[start : start + IDS_A_LOOK]
            keys = [*map(result, some), *map(failure, some)]
            values = await values_of(lane, keys, limit_s=limit_s)
            for job_id, kept, told in zip(some, values, values[len(some) :], strict=False):
                if kept is not None or told is not None:
                    found[job_id] = _Ending(kept, told)
        return found

    async def _read(self, lane: Lane, after: bytes) -> None:
        """The reader's one task: wakes the waiters that a notice names, until nobody waits."""
        loop = asyncio.get_running_loop()
        pauses = Pauses(LaneOptions(), Random())  # noqa: S311 - spreads clients, guards nothing
        troubled = False
        while self._waiters or loop.time() - self._needed_at < LINGER_S:
            try:
                if troubled:
                    # Notices may have gone by meanwhile, or their stream may be gone.
                    after = await last_id(lane, self._keys.notices)
                    await self._wake(lane, self._waiters.all_ids())
                entries = await read_after(
                    lane, self._keys.notices, after, count=_NOTICES_A_READ, block_ms=BLOCK_MS
                )
                if entries:
                    after = entries[-1][0]
                    await self._wake(lane, self._named_in(entries))
            except ServerError as error:
                if not troubled:
                    logger.warning("results cannot be read", extra={"problem": str(error)})
                troubled = True
                await asyncio.sleep(pauses.next_s())
            else:
                troubled = False
                pauses.reset()

    def _named_in(self, entries: Sequence[RawEntry]) -> list[str]:
        """Whom to look for because of notices: those they name, or all if one cannot be read."""
        if len(entries) >= _NOTICES_A_READ:
            return self._waiters.all_ids()
        try:
            named = [job_id for _, flat in entries for job_id in ids_in_notice(flat or ())]
        except DecodeError:
            return self._waiters.all_ids()
        return self._waiters.among(named)

    async def _wake(self, lane: Lane, job_ids: Sequence[str]) -> None:
        for job_id, ending in (await self._look(lane, job_ids)).items():
            self._waiters.tell(job_id, ending)


def _ignore_outcome(look: asyncio.Task[dict[str, _Ending]]) -> None:
    """Look at a failure that nobody waits for any more, so that asyncio does not report it."""
    if not look.cancelled():
        look.exception()


def _checked(told: _Ending | Closed) -> _Ending:
    if isinstance(told, Closed):
        raise told
    return told
